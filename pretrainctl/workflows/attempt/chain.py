"""The chained job of an attempt: queued before any work, cancelled when there is nothing left to do."""

from __future__ import annotations

from pretrainctl.errors import CommandError, SlurmError
from pretrainctl.records.job import JobClass
from pretrainctl.runs import ledger
from pretrainctl.workflows.attempt.context import Attempt

__all__ = ["cancel_queued", "exclude_from_queued", "queue_chained", "queue_refused"]


def queue_chained(attempt: Attempt) -> None:
    """Queue the job that goes on after this one, if attempts of this run do that and none is queued yet.

    A refusal (a queue that allows one submitted job) is a note: this attempt trains all the same.
    """
    if attempt.launch.chain != "inside":
        return
    try:
        queued = _queued(attempt)
        if queued:
            attempt.event("note", f"job {queued[0]} is queued already", {"job_ids": queued})
            return
        submission = attempt.slurm.submit(
            attempt.run.script, options=["--dependency=singleton"], job_name=attempt.launch.job_name
        )
    except CommandError as error:
        attempt.event("chain_refused", f"no chained job: {error}", {"stderr": error.stderr[-2000:]})
        return
    attempt.event("chained", f"queued chained job {submission.job_id}", {"job_id": submission.job_id})


def queue_refused(attempt: Attempt) -> None:
    """Try again, at the end, to queue a chained job that was refused at the start.

    One that was queued and is gone was cancelled by a person, who does not want it back.
    """
    kinds = {event.kind for event in ledger.read_events(attempt.run.path, attempt.number)}
    if "chain_refused" in kinds and "chained" not in kinds:
        queue_chained(attempt)


def cancel_queued(attempt: Attempt) -> None:
    """Cancel every job of this run that is still queued."""
    try:
        queued = _queued(attempt)
        attempt.slurm.cancel(queued)
    except SlurmError as error:
        attempt.event("note", f"queued jobs could not be cancelled: {error}; each will find nothing to do")
        return
    if queued:
        attempt.event("note", f"cancelled queued jobs {', '.join(map(str, queued))}", {"cancelled": queued})


def exclude_from_queued(attempt: Attempt, nodes: tuple[str, ...]) -> None:
    """Keep the chained job off nodes that are dead; the scheduler may not know yet that they are."""
    if not nodes:
        return
    try:
        for job in _queued(attempt):
            attempt.slurm.exclude(job, nodes)
    except SlurmError as error:
        attempt.event("note", f"the chained job could not be kept off {', '.join(nodes)}: {error}")


def _queued(attempt: Attempt) -> list[int]:
    jobs = attempt.slurm.queued(attempt.launch.job_name)
    return [
        job.job_id
        for job in jobs
        if job.job_id != attempt.record.job_id and job.state.job_class in {JobClass.PENDING, JobClass.HELD}
    ]
