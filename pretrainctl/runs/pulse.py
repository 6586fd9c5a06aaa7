"""The pulse of an attempt: a file that it touches while it is in charge, for those who cannot reach its node.

What an attempt that is stopped, or held in the kernel, leaves running looks well from outside: its job runs, and its
ranks may train on, with nobody who would notice their end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from pretrainctl.records import contract
from pretrainctl.records.job import Job
from pretrainctl.units import show_duration

__all__ = ["HEARD_WITHIN", "Pulse", "silence_of", "tell_silence"]

_EVERY = 60.0
_LONG = 900.0
"""Seconds: longer than an attempt waits for anything else, such as a slow look at its checkpoints."""
_NAME = "alive"
HEARD_WITHIN = 300.0
"""Seconds since its last pulse in which an attempt counts as alive, where Slurm says that its host is gone."""


class Pulse:
    """Touched by attempt `number`, at most each minute."""

    def __init__(self, run_dir: Path, number: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = contract.attempt_dir(run_dir, number) / _NAME
        self._clock = clock
        self._next = clock()

    def tick(self) -> None:
        """Touch it, if it is time to; a file system that refuses it matters elsewhere."""
        if self._clock() >= self._next:
            self._next = self._clock() + _EVERY
            with contextlib.suppress(OSError):
                self._path.touch()


def silence_of(run_dir: Path, attempt: int) -> float | None:
    """Seconds since the last pulse of an attempt, by the clock of this host; None where it has none."""
    try:
        return time.time() - (contract.attempt_dir(run_dir, attempt) / _NAME).stat().st_mtime
    except OSError:
        return None


def tell_silence(run_dir: Path, attempt: int, host: str, job: Job) -> str:
    """What people are told where nothing was heard of an attempt for long, though its job runs, or of one whose job is
    suspended, which nobody can hear; empty where all is well, or it has no pulse."""
    if job.is_suspended:
        return (
            f"job {job.job_id} is suspended: it keeps its place, and goes on when Slurm or an administrator resumes "
            "it; nothing is to be done"
        )
    silent = silence_of(run_dir, attempt)
    if silent is None or silent < _LONG:
        return ""
    return (
        f"nothing was heard of attempt {attempt} for {show_duration(silent)}, though job {job.job_id} runs: see "
        f"whether its process on {host} is stopped; if so, give `pretrainctl cancel {run_dir.name}`, then "
        f"`pretrainctl resume {run_dir.name}`"
    )
