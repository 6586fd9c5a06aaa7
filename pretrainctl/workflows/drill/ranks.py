"""Signals to ranks of an own run: here, or on their node by `python -m pretrainctl.workflows.drill.ranks`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pretrainctl.records.contract import RUN_DIR_VARIABLE

__all__ = ["find", "send"]

_PROGRAMS = (b"pretrainctl.trainer", b"pretrainctl.workflows.drill.program")


def find(run_dir: Path, rank: int) -> int | None:
    """The pid of a rank of a run on this machine: the program itself, not Slurm's script before it."""
    wanted = {f"{RUN_DIR_VARIABLE}={run_dir}".encode(), f"RANK={rank}".encode()}
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            environment = (path / "environ").read_bytes().split(b"\0")
            command = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is another user's
            continue
        if wanted <= set(environment) and any(program in command for program in _PROGRAMS):
            return int(path.name)
    return None


def send(run_dir: Path, rank: int, number: int) -> float | None:
    """Signal a rank; when, in epoch seconds, or None where it does not run here."""
    pid = find(run_dir, rank)
    if pid is None:
        return None
    now = time.time()
    os.kill(pid, signal.Signals(number))
    return now


if __name__ == "__main__":
    moment = send(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    print(moment if moment is not None else "no such rank here")
    sys.exit(moment is None)
