"""What a sandbox is made of: its shape, the places in its folder, its ports; kept in `sandbox.json`."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from pretrainctl.errors import InputError, MissingError
from pretrainctl.records import codec

__all__ = [
    "ROOT_VARIABLE",
    "Layout",
    "Settings",
    "Shape",
    "choose",
    "default_root",
    "free_ports",
    "load",
    "save",
]

ROOT_VARIABLE = "PRETRAINCTL_SANDBOX"
"""Names the sandbox's folder where the caller does not."""

_LONGEST = 60
"""A Unix socket's path has 107 bytes; slurmstepd adds up to 45 (`/spool/node01/node01_1234567.4294967291`)."""
_PLAIN = re.compile(r"[A-Za-z0-9/._-]+")


@dataclass(frozen=True)
class Shape:
    """How large the pretended cluster is.

    `nodes` answer; `down_nodes` exist beside them in the state DOWN, so that a job too large for this
    machine can still be submitted. `gpus` and `cpus` are per node and need not exist.
    """

    nodes: int = 4
    gpus: int = 4
    cpus: int = 80
    down_nodes: int = 0

    def words(self) -> str:
        """As people read it."""
        return f"{self.nodes} nodes, each claims {self.gpus} GPUs and {self.cpus} CPUs"

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= 64:
            raise InputError(f"{self.nodes} nodes cannot be held here", hint="1 to 64 nodes can")
        if not 0 <= self.gpus <= 16:
            raise InputError(f"{self.gpus} GPUs a node cannot be claimed", hint="0 to 16 can")
        if not 1 <= self.cpus <= 1024:
            raise InputError(f"{self.cpus} CPUs a node cannot be claimed", hint="1 to 1024 can")
        if not 0 <= self.down_nodes <= 4096:
            raise InputError(f"{self.down_nodes} nodes that are down cannot be claimed", hint="0 to 4096 can")

    @property
    def width(self) -> int:
        """Digits of a node's number."""
        return max(2, len(str(self.nodes + self.down_nodes)))

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes that answer: node01, node02 ..."""
        return tuple(f"node{number:0{self.width}d}" for number in range(1, self.nodes + 1))


@dataclass(frozen=True)
class Settings:
    """`sandbox.json`: what must stay the same from one `up` to the next."""

    shape: Shape
    controller_port: int
    database_port: int
    node_port: int
    cluster: str = ""
    """Slurm's name of the cluster; empty in a file that was written before it stood there."""


@dataclass(frozen=True)
class Layout:
    """A sandbox's folder. `root` is where it lies, `short` the same folder by a path that fits in a socket's name."""

    root: Path
    short: Path

    @staticmethod
    def at(root: Path) -> Layout:
        """The layout under `root`; nothing is made."""
        try:
            whole = root.expanduser().resolve()
        except RuntimeError as error:
            raise InputError(f"{root} names the home folder of nobody here", hint="write the path out") from error
        text = str(whole)
        if len(text.encode()) <= _LONGEST and _PLAIN.fullmatch(text):
            return Layout(whole, whole)
        mark = hashlib.sha256(text.encode()).hexdigest()[:10]
        return Layout(whole, Path(tempfile.gettempdir()) / f"pretrainctl-{os.getuid()}-{mark}")

    @property
    def settings(self) -> Path:
        """Where `save` writes."""
        return self.root / "sandbox.json"

    @property
    def slurm_conf(self) -> Path:
        """Slurm's configuration; its other files lie beside it."""
        return self.short / "etc" / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """Where munged listens."""
        return self.short / "run" / "munge.sock"

    @property
    def munge_key(self) -> Path:
        """The key of this sandbox alone."""
        return self.short / "etc" / "munge.key"

    @property
    def database_socket(self) -> Path:
        """Where mariadbd listens, and only there."""
        return self.short / "run" / "mariadb.sock"

    @property
    def database(self) -> Path:
        """The files of mariadbd: the history of jobs."""
        return self.short / "db"

    @property
    def state(self) -> Path:
        """What slurmctld remembers from one start to the next."""
        return self.short / "state"

    @property
    def log(self) -> Path:
        """What the daemons write; `<daemon>.out` is their standard output."""
        return self.short / "log"

    def spool(self, node: str) -> Path:
        """The spool folder of a node; the sockets of its slurmstepds lie in it."""
        return self.short / "spool" / node

    def make(self) -> None:
        """Make the folders, for this user only, and the short path to them where it is another one."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.root.stat().st_uid != os.getuid():
            raise InputError(f"{self.root} belongs to another user", hint="name another folder for the sandbox")
        self.root.chmod(0o700)
        if self.short != self.root:
            self._make_short()
        for name in ("etc", "run", "db", "state", "log", "spool"):
            (self.root / name).mkdir(mode=0o700, exist_ok=True)

    def _make_short(self) -> None:
        try:
            self.short.symlink_to(self.root)
        except FileExistsError:
            # the folder for temporary files is everybody's: the link must be ours, and lead where we think
            if not self.short.is_symlink() or self.short.lstat().st_uid != os.getuid():
                raise InputError(
                    f"{self.short} is in the way", hint="choose a shorter folder for the sandbox, or remove it"
                ) from None
            if self.short.readlink() != self.root:
                self.short.unlink()
                self.short.symlink_to(self.root)

    def forget_short(self) -> None:
        """Remove the short path again."""
        if self.short != self.root and self.short.is_symlink():
            self.short.unlink()


def default_root() -> Path:
    """$PRETRAINCTL_SANDBOX, or a folder in the user's state folder."""
    named = os.environ.get(ROOT_VARIABLE)
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "pretrainctl" / "sandbox"


def load(layout: Layout) -> Settings | None:
    """The settings that an earlier `up` wrote, or None."""
    if not layout.settings.exists():
        return None
    settings = codec.read(Settings, layout.settings)
    return settings if settings.cluster else replace(settings, cluster=_cluster_name(layout))


def save(layout: Layout, settings: Settings) -> None:
    """Keep the settings for the next commands."""
    codec.write(layout.settings, settings)


def choose(layout: Layout, shape: Shape) -> Settings:
    """Settings for the next start: its ports are free now, and the name of the cluster stays; nothing is written."""
    known = load(layout)
    first = free_ports(shape.nodes + 2)  # anew each time: another program may have taken the last ones
    cluster = known.cluster if known is not None else _cluster_name(layout)
    return Settings(shape, first, first + 1, first + 2, cluster)


def _cluster_name(layout: Layout) -> str:
    """Slurm's name of this cluster: what it is called already, else a new one, which no other sandbox has had.

    Job ids count from 1 in each sandbox, and what was found of the nodes of one says nothing of another's: one that
    was purged must not come back under its name. Slurm refuses state of a cluster of another name.
    """
    known = layout.state / "clustername"  # slurmctld's own, which is there without settings too
    told = known.read_text(encoding="utf-8").strip() if known.is_file() else ""
    return told or f"sandbox_{secrets.token_hex(4)}"


def free_ports(count: int) -> int:
    """The first of `count` free TCP ports in a row, below those that the kernel hands out by itself."""
    first, last = 20000, 32000
    start = first + int.from_bytes(os.urandom(4), "big") % (last - first)
    for offset in range(0, last - first, count):
        port = first + (start - first + offset) % (last - first - count)
        if all(_is_free(number) for number in range(port, port + count)):
            return port
    raise MissingError(f"no {count} free TCP ports in a row", hint=f"free some between {first} and {last}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
