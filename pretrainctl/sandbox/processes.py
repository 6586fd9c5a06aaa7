"""Find a sandbox's processes in /proc and signal them, and no others.

There are no pid files: a pid in a file may belong to somebody else after a crash or a reboot. Every daemon carries
a variable that names it and its sandbox; its slurmstepds inherit it; the jobs' processes are their descendants, or
carry Slurm's own SLURM_CONF and SLURMD_NODENAME when they have detached themselves.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pretrainctl.errors import CommandError

__all__ = ["DAEMON_VARIABLE", "Process", "freeze", "kill", "members", "scan", "send", "wait_until"]

DAEMON_VARIABLE = "PRETRAINCTL_SANDBOX_DAEMON"
"""`<daemon>@<folder of the sandbox>`, in the environment of each daemon; a slurmd's name is its node's."""

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One process at one moment. `start` (clock ticks since boot) tells it from a later one with the same pid."""

    pid: int
    parent: int
    start: int
    state: str
    name: str
    daemon: str | None
    """The value of DAEMON_VARIABLE."""
    node: str | None
    """SLURMD_NODENAME: the node that a job's process runs on."""
    slurm_conf: str | None

    @property
    def stopped(self) -> bool:
        """Frozen by SIGSTOP."""
        return self.state in "Tt"


def scan() -> list[Process]:
    """Every process of this machine that lives and whose environment may be read."""
    seen = [_read(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdigit()]
    return [process for process in seen if process is not None]


def _read(pid: int) -> Process | None:
    directory = _PROC / str(pid)
    try:
        stat = (directory / "stat").read_text(errors="replace")
        threads = sum(1 for _ in (directory / "task").iterdir())
        environ = _environ(directory)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # the program's name is in brackets and may hold brackets and spaces itself
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    # a first thread that is a zombie while others still end holds ports and files as a living one does
    if fields[0] in "ZX" and threads <= 1:
        return None
    wanted = {}
    for item in environ.split(b"\0"):
        key, _, value = item.partition(b"=")
        if key in (b"PRETRAINCTL_SANDBOX_DAEMON", b"SLURMD_NODENAME", b"SLURM_CONF"):
            wanted[key] = os.fsdecode(value)
    return Process(
        pid=pid,
        parent=int(fields[1]),
        start=int(fields[19]),
        state=fields[0],
        name=name,
        daemon=wanted.get(b"PRETRAINCTL_SANDBOX_DAEMON"),
        node=wanted.get(b"SLURMD_NODENAME"),
        slurm_conf=wanted.get(b"SLURM_CONF"),
    )


def _environ(directory: Path) -> bytes:
    try:
        return (directory / "environ").read_bytes()
    except ProcessLookupError:
        # it ends: its memory is gone already, its files and ports are not yet (Linux 6.18)
        return b""


def members(
    processes: Iterable[Process], *, root: Path, slurm_conf: Path, names: Iterable[str] | None = None
) -> set[Process]:
    """The processes of one sandbox, jobs included; with `names` only those of these daemons or nodes.

    The caller itself is never among them, nor what it started on another daemon's or node's behalf.
    """
    every = list(processes)
    wanted = None if names is None else set(names)

    def owner(process: Process) -> str | None:
        if process.daemon is not None:
            daemon, _, folder = process.daemon.partition("@")
            return daemon if folder == str(root) else ""
        if process.node is not None and process.slurm_conf == str(slurm_conf):
            return process.node
        return None

    owners = {process.pid: owner(process) for process in every}
    children: dict[int, list[Process]] = {}
    for process in every:
        children.setdefault(process.parent, []).append(process)
    found: dict[int, Process] = {}
    waiting = [
        process for process in every if owners[process.pid] and (wanted is None or owners[process.pid] in wanted)
    ]
    while waiting:
        process = waiting.pop()
        if process.pid in found or process.pid == os.getpid():
            continue
        found[process.pid] = process
        waiting.extend(child for child in children.get(process.pid, []) if owners[child.pid] is None)
    return set(found.values())


def send(process: Process, number: signal.Signals) -> None:
    """Signal a process if it is still the one that was seen; one that is gone is no error."""
    now = _read(process.pid)
    if now is None or now.start != process.start:
        return
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return


def freeze(find: Callable[[], set[Process]]) -> set[Process]:
    """SIGSTOP all that `find` finds until it finds nobody new: nobody can fork away from this."""
    told: set[tuple[int, int]] = set()
    end = time.monotonic() + 10.0
    while True:
        found = find()
        running = [process for process in found if not process.stopped]
        new = [process for process in running if (process.pid, process.start) not in told]
        if not new:
            return found
        if time.monotonic() > end:
            raise CommandError("the processes multiply faster than they can be stopped")
        for process in new:
            send(process, signal.SIGSTOP)
            told.add((process.pid, process.start))


def kill(find: Callable[[], set[Process]]) -> int:
    """SIGKILL all that `find` finds, at one moment, and wait for their end; how many they were.

    CommandError if one does not die.
    """
    found = freeze(find)
    # Children first: where the parent of a stopped process group dies, the kernel lets the group go on with SIGHUP, and
    # an srun ends its Slurm step on all other nodes before it is killed itself (seen), which no power cut does.
    for process in sorted(found, key=lambda process: _depth(process, found), reverse=True):
        send(process, signal.SIGKILL)
    if not wait_until(lambda: not any(_lives(process) for process in found), 10.0):
        left = ", ".join(f"{process.name} {process.pid}" for process in found if _lives(process))
        raise CommandError(f"these processes do not die: {left}")
    return len(found)


def _depth(process: Process, found: Iterable[Process]) -> int:
    """How many of its ancestors are among those found."""
    parents = {one.pid: one.parent for one in found}
    depth, pid = 0, process.parent
    while pid in parents and depth < len(parents):
        depth, pid = depth + 1, parents[pid]
    return depth


def _lives(process: Process) -> bool:
    now = _read(process.pid)
    return now is not None and now.start == process.start


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Wait at most `timeout` seconds for `condition`; whether it came."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
