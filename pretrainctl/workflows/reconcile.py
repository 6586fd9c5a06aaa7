"""Reconcile: one idempotent look that repairs the ledger and tops up the queue. No process of ours stays."""

from __future__ import annotations

from collections.abc import Sequence

from pretrainctl.errors import PretrainctlError, SlurmError
from pretrainctl.records.job import JobClass
from pretrainctl.records.run import Action, Event, EventKind
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold
from pretrainctl.slurm.client import Slurm
from pretrainctl.workflows.control import Outcome
from pretrainctl.workflows.launch import queue_jobs
from pretrainctl.workflows.look_back import look_back

__all__ = ["reconcile"]


def reconcile(name: str | None = None) -> list[Outcome]:
    """Look once at a run, or at every run of this user under the roots.

    What Slurm cannot say is unknown: then nothing is decided. With several runs, trouble with one is its outcome.
    """
    if name is not None:
        return [_reconcile_one(folder.find(name), Slurm())]
    runs, unreadable = folder.all_runs()
    slurm = Slurm()
    outcomes = [Outcome("?", str(error)) for error in unreadable]
    for run in runs:
        try:
            outcomes.append(_reconcile_one(run, slurm))
        except PretrainctlError as error:
            outcomes.append(Outcome(run.record.name, f"nothing done: {error}"))
    return outcomes


def _reconcile_one(run: RunFolder, slurm: Slurm) -> Outcome:
    run.refuse_others()
    events = ledger.read_events(run.path)
    state = fold(events)
    jobs = slurm.queued(run.record.job_name)
    queued = [job.job_id for job in jobs if job.is_waiting]
    running = [job.job_id for job in jobs if job.is_running]
    for job_id in sorted({*queued, *running} - set(state.jobs)):
        ledger.append(run.path, "submitted", f"found job {job_id} by its name", data={"job_id": job_id})
    if state.finished is not None or state.stopped is not None:
        slurm.cancel(queued)
        word = "finished" if state.finished is not None else "stopped"
        left = f"; cancelled {len(queued)} queued jobs" if queued else ""
        return Outcome(run.record.name, f"{word}: {state.finished or state.stopped}{left}", tuple(queued))
    launch = run.launch()
    if queued or running:
        submitted: tuple[int, ...] = ()
        if launch.chain == "prequeued":
            submitted, _ = queue_jobs(run, launch, slurm, already=len(queued) + len(running))
        message = f"running job {running[0]}" if running else f"queued job {queued[0]}"
        return Outcome(run.record.name, message + (f"; queued {len(submitted)} more" if submitted else ""), submitted)
    lost = _lost_before_their_attempt(run, events, slurm)
    if lost:
        ledger.append(run.path, "stopped", lost)
        return Outcome(run.record.name, f"stopped: {lost}")
    past = look_back(run, slurm)
    if past is not None and past.stop is not None:
        kind: EventKind = "finished" if past.stop.action is Action.FINISH else "stopped"
        ledger.append(run.path, kind, past.stop.reason, data={"class": past.diagnosis.failure_class})
        return Outcome(run.record.name, f"{kind}: {past.stop.reason}")
    try:
        submitted, _ = queue_jobs(run, launch, slurm)
    except SlurmError as error:
        return Outcome(run.record.name, f"nothing queued: {error}")
    why = past.diagnosis.message if past is not None else "no attempt yet"
    return Outcome(run.record.name, f"queued job {submitted[0]} ({why})", submitted)


def _lost_before_their_attempt(run: RunFolder, events: Sequence[Event], slurm: Slurm) -> str:
    """Why a run stops whose jobs, since the last resume, ended without an attempt; empty where it may go on.

    One that a person cancelled is a stop. Two that ended by themselves would be followed by a third.
    """
    outside = [event for event in events if event.attempt == 0]
    resumed = max((event.sequence for event in outside if event.kind == "resume_requested"), default=0)
    claimed = {event.data.get("job_id") for event in events if event.kind == "claimed"}
    submitted = [event.data["job_id"] for event in outside if event.kind == "submitted" and event.sequence > resumed]
    lost = [job for job in submitted if job not in claimed]
    if not lost:
        return ""
    jobs = slurm.jobs(lost)
    for job in jobs.values():
        if job.state.job_class in {JobClass.USER_CANCEL, JobClass.ADMIN_CANCEL, JobClass.CANCELLED}:
            return f"job {job.job_id} was cancelled before it began: nothing goes on until `resume`"
    ended = [job for job in jobs.values() if job.state.alive is False]
    if len(ended) < 2:
        return ""
    told = ", ".join(f"{job.job_id} {job.state.text}" for job in ended)
    return f"jobs ended before their attempt began ({told}): see {run.path / 'attempts'}/slurm-{ended[-1].job_id}.out"
