"""The chained job of an attempt: queued before anything else, cancelled when there is nothing left to do."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from typing import Any

from pretrainctl.errors import CommandError, PretrainctlError, SlurmError
from pretrainctl.records.launch import Launch
from pretrainctl.records.run import EventKind
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold
from pretrainctl.slurm.client import Slurm
from pretrainctl.slurm.refusals import read_refusal
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.patience import Patience, say, tell_fault
from pretrainctl.workflows.exclusions import avoid_at_submit, push

__all__ = ["Chain"]

_FIRST_PAUSE = 60.0
_LONGEST_PAUSE = 900.0
_MOST_IDLE_JOBS = 8
"""Jobs in a row that could not take the run. Each has waited its time: this is a fault of hours."""
_IDLE = re.compile(r"pretrainctl: (\d+) jobs? in a row could not take the run")


class Chain:
    """What is queued of this run besides job `job_id`, which is this one.

    It needs no attempt: the next job is queued before this one has claimed anything, so that whatever happens to this
    one, somebody goes on. What it says before there is an attempt is kept until `adopt`.
    """

    def __init__(self, run: RunFolder, launch: Launch, slurm: Slurm, job_id: int) -> None:
        self._run = run
        self._launch = launch
        self._slurm = slurm
        self._job_id = job_id
        self._attempt: Attempt | None = None
        self._early: list[tuple[EventKind, str, Mapping[str, Any]]] = []
        self._missing = launch.chain == "inside" or launch.tops_up
        self._wanted = max(launch.chained_jobs, 1) if launch.chain == "inside" else launch.chained_jobs
        self._refused = False
        self._waiting: list[int] = []
        self._pause = _FIRST_PAUSE
        self._next_try = 0.0

    def adopt(self, attempt: Attempt) -> None:
        """Write events as this attempt from now on, those that wait for it first; they were said as they happened."""
        self._attempt = attempt
        for event in self._early:
            attempt.event(*event, said=True)
        self._early = []

    def ensure(self) -> None:
        """Queue the jobs that go on after this one, if attempts of this run do that, and as many as are missing.

        A refusal (a queue that allows one submitted job), or a controller that does not answer, is a note: this
        attempt trains all the same, and tries again later where none is queued. One that was queued and is gone was
        cancelled by a person, who does not want it back.
        """
        if not self._missing:
            return
        self._next_try = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        try:
            self._queue()
        except CommandError as error:
            self._refused = bool(error.stderr) and read_refusal(error.stderr).spoke
            self._give_up(str(error), {"stderr": error.stderr[-2000:]})
        except Exception as error:  # noqa: BLE001 - this attempt may train all the same
            self._give_up(tell_fault(error))

    def _give_up(self, why: str, data: Mapping[str, Any] | None = None) -> None:
        queued = ", ".join(map(str, self._waiting))
        self._say("chain_refused", f"{f'queued is {queued}, and no more' if queued else 'no chained job'}: {why}", data)

    def tick(self) -> None:
        """Try again where no chained job could be queued, with growing pauses; not where sbatch may not work at all."""
        pressing = self._missing and not self._waiting and not self._launch.tops_up
        if pressing and time.monotonic() >= self._next_try:
            self.ensure()

    def last_try(self, patience: Patience) -> None:
        """Before this job hands over: wait for a controller that does not answer, since without a chained job nobody
        goes on. What Slurm refused is asked for once more only. Where nothing is queued, since a person cancelled it or
        all jobs of the launch are used, that is said."""
        self.ensure()
        name = self._run.record.name
        if not self._missing:
            with contextlib.suppress(PretrainctlError, OSError):
                if not self._queued() and fold(ledger.read_events(self._run.path)).stopped is None:
                    said = f"no job of this run is queued: nothing goes on by itself; see `pretrainctl status {name}`"
                    self._say("note", said)
        elif not self._waiting and not self._refused:
            try:
                patience.until("Slurm to take the chained job", self._queue)
            except Exception as error:  # noqa: BLE001 - what this attempt knows is written all the same
                why = error if isinstance(error, PretrainctlError) else tell_fault(error)
                self._say("note", f"nothing goes on by itself, `pretrainctl reconcile {name}` does: {why}")

    def _queue(self) -> None:
        self._waiting = []
        self._waiting = self._queued()
        while len(self._waiting) < self._wanted:
            avoided = avoid_at_submit(self._run, self._launch, self._slurm)
            options = ["--dependency=singleton", *avoided.options]
            submission = self._slurm.submit(
                self._run.script, options=options, job_name=self._launch.job_name, known=self._waiting
            )
            self._waiting.append(submission.job_id)
            said = f"queued chained job {submission.job_id}" + (f"; {avoided.message}" if avoided.message else "")
            self._say("chained", said, {"job_id": submission.job_id, "exclude": list(avoided.nodes)})
        self._missing = False

    def cancel(self) -> None:
        """Cancel every job of this run that is still queued."""
        try:
            queued = self._queued()
            self._slurm.cancel(queued)
        except SlurmError as error:
            self._say("note", f"queued jobs could not be cancelled: {error}; each will find nothing to do")
            return
        if queued:
            numbers = ", ".join(map(str, queued))
            self._say("note", f"cancelled queued jobs {numbers}", {"cancelled": queued})

    def keep_off(self, nodes: tuple[str, ...]) -> bool:
        """Keep the chained job off nodes that are dead, as far as enough others are left to it; the scheduler may not
        know yet that they are. False where it may get one of them again."""
        kept: tuple[str, ...] = ()
        try:
            for job in self._queued() if nodes else ():
                kept = push(self._run, self._slurm, [job], nodes)
                if kept:
                    message = f"job {job} may get {', '.join(kept)} again: without, too few nodes are in service"
                    self._say("note", message)
        except SlurmError as error:
            self._say("note", f"the chained job could not be kept off {', '.join(nodes)}: {error}")
            return False
        return not kept

    def hand_over_idle(self) -> bool:
        """Tell the chained job that this one could not take the run; False where that was once too often, and the
        chained job was cancelled.

        The run folder could not be written, or its owner is not known: so the count goes with the jobs, as a part of
        Slurm's comment on them.
        """
        try:
            count = self._idle_jobs() + 1
            if count >= _MOST_IDLE_JOBS:
                self._say("note", f"{count} jobs in a row could not take the run: nothing goes on until `reconcile`")
                self.cancel()
                return False
            for job in self._queued():
                comment = _IDLE.sub("", self._slurm.comment(job)).strip()
                mark = f"pretrainctl: {count} job{'s' * (count != 1)} in a row could not take the run"
                self._slurm.update(job, "Comment", f"{comment} {mark}".strip())
        except SlurmError as error:
            self._say("note", f"the chained job could not be told that this one was idle: {error}")
        return True

    def _idle_jobs(self) -> int:
        found = _IDLE.search(self._slurm.comment(self._job_id))
        return int(found[1]) if found else 0

    def _queued(self) -> list[int]:
        jobs = self._slurm.queued(self._launch.job_name)
        return [job.job_id for job in jobs if job.job_id != self._job_id and job.is_waiting]

    def _say(self, kind: EventKind, message: str, data: Mapping[str, Any] | None = None) -> None:
        if self._attempt is not None:
            self._attempt.event(kind, message, data)
            return
        self._early.append((kind, message, data or {}))
        say(message)
