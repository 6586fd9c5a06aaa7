"""What one attempt is and has at hand."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pretrainctl.errors import RunError
from pretrainctl.records.launch import Launch
from pretrainctl.records.run import AttemptRecord, EventKind
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.sayings import Sayings
from pretrainctl.slurm.client import Slurm
from pretrainctl.slurm.nodes import expand
from pretrainctl.workflows.attempt.patience import say
from pretrainctl.workflows.attempt.signals import Signals

__all__ = ["Attempt", "this_job"]


@dataclass(frozen=True)
class Attempt:
    """One start of the batch script: its number, its job, its nodes (the batch host first)."""

    run: RunFolder
    launch: Launch
    record: AttemptRecord
    slurm: Slurm
    signals: Signals
    _sayings: Sayings = field(default_factory=Sayings)
    _unwritten: list[tuple[EventKind, str, dict[str, Any]]] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Number of the attempt, from 1."""
        return self.record.attempt

    def event(
        self, kind: EventKind, message: str, data: Mapping[str, Any] | None = None, *, said: bool = False
    ) -> None:
        """Write an event of this attempt, and say it in the job's own log, unless it was `said` there.

        Where the file system refuses it, it is kept and written before the next one: an attempt does not end, and
        its ranks do not die, for want of a line in the ledger.
        """
        words = "" if said else self._sayings.words(kind, message)
        if words:
            say(f"attempt {self.number}: {words}")
        self._unwritten.append((kind, message, dict(data or {})))
        with contextlib.suppress(OSError):
            self.write_events()

    def tell_set_aside(self, moved: Sequence[Path]) -> None:
        """Say of each unreadable event where it lies now."""
        for path in moved:
            self.event("set_aside", f"an unreadable event was set aside as {path.name}", {"path": str(path)})

    def write_events(self) -> None:
        """Write events that could not be written when they happened; OSError where they still cannot."""
        while self._unwritten:
            kind, message, data = self._unwritten[0]
            ledger.append(self.run.path, kind, message, attempt=self.number, data=data)
            del self._unwritten[0]


def this_job() -> AttemptRecord:
    """Who we are, from the environment that Slurm gives a batch script; RunError outside of one."""
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job.isdigit():
        raise RunError(
            "this is not inside a Slurm job", hint="`attempt` is run by the batch script; use `pretrainctl launch`"
        )
    return AttemptRecord(
        attempt=0,
        job_id=int(job),
        slurm_restart=int(os.environ.get("SLURM_RESTART_COUNT", "0") or 0),
        host=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        pid=os.getpid(),
        nodes=tuple(expand(os.environ.get("SLURM_JOB_NODELIST", ""))),
        time=time.time(),
    )
