"""Reconcile: one idempotent look that repairs the ledger and tops up the queue. No process of ours stays."""

from __future__ import annotations

from pretrainctl.errors import PretrainctlError, SlurmError
from pretrainctl.records.job import JobClass
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
    state = fold(ledger.read_events(run.path))
    jobs = slurm.queued(run.record.job_name)
    queued = [job.job_id for job in jobs if job.state.job_class in {JobClass.PENDING, JobClass.HELD}]
    running = [job.job_id for job in jobs if job.state.job_class is JobClass.RUNNING]
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
    past = look_back(run, slurm)
    if past is not None and past.stop is not None:
        ledger.append(run.path, "stopped", past.stop.reason, data={"class": past.diagnosis.failure_class})
        return Outcome(run.record.name, f"stopped: {past.stop.reason}")
    try:
        submitted, _ = queue_jobs(run, launch, slurm)
    except SlurmError as error:
        return Outcome(run.record.name, f"nothing queued: {error}")
    why = past.diagnosis.message if past is not None else "no attempt yet"
    return Outcome(run.record.name, f"queued job {submitted[0]} ({why})", submitted)
