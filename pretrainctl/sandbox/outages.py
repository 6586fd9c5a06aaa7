"""What goes away on a sandbox: a daemon, the room on a disk, the right to write, which come back at the end; and a node
that is shut down."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from pretrainctl import process
from pretrainctl.errors import CommandError, MissingError
from pretrainctl.sandbox import daemons, processes
from pretrainctl.sandbox import layout as places
from pretrainctl.sandbox.machine import Sandbox

__all__ = ["can_mount", "daemon_away", "fill", "read_only", "shut_down", "small_disk"]

_PATIENCE = 20.0
"""Seconds that a daemon, a mount, or a node that is shut down, may take."""
_NODE_DAEMONS = {"slurmd", "slurmstepd"}


@contextlib.contextmanager
def daemon_away(sandbox: Sandbox, name: str) -> Iterator[None]:
    """Without one of `CONTROL_DAEMONS`; it is started again at the end. MissingError where it does not run.

    It is asked to end: a slurmctld that is killed has not saved which job ids it gave away, and gives them again.
    """
    pid = sandbox.status().daemons[name]
    if pid is None:
        raise MissingError(f"{name} does not run", hint="pretrainctl sandbox up")
    os.kill(pid, signal.SIGTERM)
    if not processes.wait_until(lambda: sandbox.status().daemons[name] is None, _PATIENCE):
        raise CommandError(f"{name} does not end")
    try:
        yield
    finally:
        settings = places.load(sandbox.layout)
        if settings is not None and sandbox.status().daemons[name] is None:
            daemons.start_daemon(sandbox.layout, settings, name, say=lambda _: None)


def shut_down(sandbox: Sandbox, node: str) -> None:
    """Let a node go down in order: all processes of jobs are told to end, and are killed in the end with what is left.

    Slurm's own on it are stopped before, as where they end, or the network does, sooner than the jobs: nobody tells
    Slurm of a job's end. `Sandbox.revive_node` starts it again.
    """
    where = sandbox.layout

    def find() -> set[processes.Process]:
        return processes.members(processes.scan(), root=where.root, slurm_conf=where.slurm_conf, names=[node])

    def of_jobs() -> set[processes.Process]:
        return {one for one in find() if one.name not in _NODE_DAEMONS}

    if not processes.freeze(lambda: find() - of_jobs()):
        raise MissingError(f"nothing of {node} runs", hint=f"pretrainctl sandbox revive-node {node}")
    for one in of_jobs():
        processes.send(one, signal.SIGTERM)
    processes.wait_until(lambda: not of_jobs(), _PATIENCE)
    processes.kill(find)


def can_mount() -> bool:
    """Whether this user may mount a file system here; one is, for a moment, to know."""
    if os.geteuid() != 0:
        return False
    with contextlib.suppress(CommandError, MissingError):
        done = process.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], timeout=_PATIENCE)
        return done.status == 0
    return False


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """A file system of `size` (as mount reads it, `64m`) at `path`, which is made; gone at the end with all in it."""
    path.mkdir(parents=True, exist_ok=True)
    process.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], timeout=_PATIENCE)
    try:
        yield path
    finally:
        process.run(["umount", "--lazy", str(path)], timeout=_PATIENCE)


@contextlib.contextmanager
def fill(path: Path) -> Iterator[None]:
    """No room left on the file system of the folder `path`."""
    filler = path / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 12)):
                pass
        yield
    finally:
        filler.unlink(missing_ok=True)


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Nothing new can be written below `path`, by root neither; files that are open stay so, as on a real remount.

    A mount of its own over the folder, since a file system with open files cannot be made read-only at all.
    """
    process.run(["mount", "--bind", str(path), str(path)], timeout=_PATIENCE)
    try:
        process.run(["mount", "-o", "remount,bind,ro", str(path)], timeout=_PATIENCE)
        yield
    finally:
        process.run(["umount", "--lazy", str(path)], timeout=_PATIENCE)
