"""The sandbox's verbs: up, down, status, env, and nodes that die and come back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pretrainctl.errors import InputError, MissingError
from pretrainctl.sandbox import Sandbox, SandboxStatus, Shape, packages
from pretrainctl.workflows.interrupted import uninterrupted

__all__ = [
    "Ended",
    "Say",
    "discard",
    "down",
    "env",
    "kill_node",
    "prepare",
    "revive_node",
    "status",
    "up",
]

Say = Callable[[str], None]


def up(
    root: Path | None,
    *,
    nodes: int | None = None,
    gpus: int | None = None,
    say: Say,
    confirm: Callable[[str], bool],
) -> SandboxStatus:
    """Start what does not run of the sandbox in `root`; packages that are missing are installed first.

    `nodes` and `gpus` default to the sandbox's last shape. `confirm` is asked before packages are installed.
    """
    absent = packages.missing()
    if absent:
        say(f"these Debian packages are missing: {' '.join(absent)}")
        if packages.can_install() and not confirm("Install them now?"):
            raise MissingError("the packages were not installed", hint=packages.install_hint(absent))
        packages.install(absent, say=say)
    sandbox = Sandbox(root, say=say)
    return sandbox.up(_shape(sandbox.shape, nodes, gpus))


def _shape(last: Shape | None, nodes: int | None, gpus: int | None) -> Shape | None:
    if nodes is None and gpus is None:
        return None
    shape = last or Shape()
    return replace(shape, nodes=shape.nodes if nodes is None else nodes, gpus=shape.gpus if gpus is None else gpus)


@dataclass(frozen=True)
class Ended:
    """What `down` did: processes ended, what lies in the sandbox's folder still, and what was removed of it."""

    root: str
    processes: int
    bytes_left: int
    bytes_removed: int = 0


def down(root: Path | None, *, purge: bool = False, say: Say) -> Ended:
    """End every process of the sandbox; with `purge`, remove its folder too."""
    sandbox = Sandbox(root, say=say)
    processes = sandbox.down()
    files = (path.lstat() for path in sandbox.root.rglob("*")) if sandbox.shape is not None else ()
    size = sum(file.st_size for file in files)
    if purge and sandbox.shape is not None:  # a folder that no sandbox was made in is none of ours
        shutil.rmtree(sandbox.root)
        return Ended(str(sandbox.root), processes, 0, size)
    return Ended(str(sandbox.root), processes, size)


def prepare(folder: Path) -> None:
    """Make a folder to work in, with a sandbox in it; InputError where nothing can be made there."""
    try:
        (folder / "data").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} is no folder to work in: {error.strerror}",
            hint="name one that can be made and written: --folder",
        ) from error


def discard(folder: Path, sandbox: Path, *, say: Say) -> bool:
    """Remove `folder`, in which `sandbox` lies; not where something of the sandbox still runs, which is said.

    Without its folder nothing could take it down. Returns whether the folder is gone.
    """
    with uninterrupted():
        if Sandbox(sandbox).lives():
            say(f"the sandbox in {sandbox} runs still: PRETRAINCTL_SANDBOX={sandbox} pretrainctl sandbox down --purge")
            return False
        shutil.rmtree(folder, ignore_errors=True)
        return True


def status(root: Path | None) -> SandboxStatus:
    """What runs of the sandbox."""
    return Sandbox(root).status()


def env(root: Path | None) -> dict[str, str]:
    """The variables by which plain Slurm commands find the sandbox; MissingError when it is not up."""
    sandbox = Sandbox(root)
    if not sandbox.status().up:
        raise MissingError(f"the sandbox in {sandbox.root} is not up", hint="pretrainctl sandbox up")
    return sandbox.env()


def kill_node(root: Path | None, name: str, *, silent: bool = False) -> int:
    """Let a node die with all its processes, or fall silent; how many processes."""
    return Sandbox(root).kill_node(name, silent=silent)


def revive_node(root: Path | None, name: str) -> None:
    """Start a node again and wait until it takes jobs."""
    Sandbox(root).revive_node(name)
