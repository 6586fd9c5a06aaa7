"""The chained job of an attempt: queued before any work, cancelled when there is nothing left to do."""

from __future__ import annotations

import time

from pretrainctl.errors import CommandError, SlurmError
from pretrainctl.workflows.attempt.context import Attempt

__all__ = ["Chain"]

_FIRST_PAUSE = 60.0
_LONGEST_PAUSE = 900.0


class Chain:
    """What is queued of this run besides this job."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self._missing = False
        self._pause = _FIRST_PAUSE
        self._next_try = 0.0

    def queue(self) -> None:
        """Queue the job that goes on after this one, if attempts of this run do that and none is queued yet.

        A refusal (a queue that allows one submitted job), or a controller that does not answer, is a note: this
        attempt trains all the same, and tries again later.
        """
        attempt = self.attempt
        if attempt.launch.chain != "inside":
            return
        self._missing = True
        self._next_try = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        try:
            queued = self._queued()
            if queued:
                attempt.event("note", f"job {queued[0]} is queued already", {"job_ids": queued})
                self._missing = False
                return
            submission = attempt.slurm.submit(
                attempt.run.script, options=["--dependency=singleton"], job_name=attempt.launch.job_name
            )
        except CommandError as error:
            attempt.event("chain_refused", f"no chained job: {error}", {"stderr": error.stderr[-2000:]})
            return
        attempt.event("chained", f"queued chained job {submission.job_id}", {"job_id": submission.job_id})
        self._missing = False

    def tick(self) -> None:
        """Try again where no chained job could be queued, with growing pauses.

        One that was queued and is gone was cancelled by a person, who does not want it back.
        """
        if self._missing and time.monotonic() >= self._next_try:
            self.queue()

    def last_try(self) -> None:
        """Try once more before this attempt hands over to the chained job that is not there."""
        if self._missing:
            self.queue()

    def cancel(self) -> None:
        """Cancel every job of this run that is still queued."""
        try:
            queued = self._queued()
            self.attempt.slurm.cancel(queued)
        except SlurmError as error:
            self.attempt.event("note", f"queued jobs could not be cancelled: {error}; each will find nothing to do")
            return
        if queued:
            numbers = ", ".join(map(str, queued))
            self.attempt.event("note", f"cancelled queued jobs {numbers}", {"cancelled": queued})

    def keep_off(self, nodes: tuple[str, ...]) -> None:
        """Keep the chained job off nodes that are dead, as far as enough others are left to it; the scheduler may not
        know yet that they are."""
        if not nodes:
            return
        try:
            for job in self._queued():
                kept = self.attempt.slurm.exclude(job, nodes)
                if kept:
                    message = f"job {job} may get {', '.join(kept)} again: without, too few nodes are in service"
                    self.attempt.event("note", message)
        except SlurmError as error:
            self.attempt.event("note", f"the chained job could not be kept off {', '.join(nodes)}: {error}")

    def _queued(self) -> list[int]:
        jobs = self.attempt.slurm.queued(self.attempt.launch.job_name)
        return [job.job_id for job in jobs if job.job_id != self.attempt.record.job_id and job.is_waiting]
