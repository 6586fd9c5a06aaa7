"""Stop, save, cancel, resume: what people tell a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from pretrainctl.errors import MissingError, RunError, SlurmError
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.requests import ask
from pretrainctl.runs.state import RunState, fold
from pretrainctl.slurm.client import Slurm
from pretrainctl.workflows.launch import queue_jobs

__all__ = ["Outcome", "cancel", "resume", "save", "stop"]


@dataclass(frozen=True)
class Outcome:
    """What was done to a run, in one line, and the Slurm jobs that it concerned."""

    run: str
    message: str
    job_ids: tuple[int, ...] = ()


def stop(name: str) -> Outcome:
    """End the run at the next step boundary, after a save; nothing is submitted or resumed until `resume`.

    The event is written first, so that an attempt that starts in between reads it and leaves.
    """
    run, state = _open_unfinished(name)
    ledger.append(run.path, "stop_requested", "stop asked for: save, then end")
    slurm = Slurm()
    with _recorded(name, "stop --save"):
        queued, running = _jobs(run, slurm)
        slurm.cancel(queued)
    if not running:
        return Outcome(run.record.name, "nothing was running; what was queued is cancelled", tuple(queued))
    if state.owner is not None:
        ask(run.path, "save_and_exit", state.owner.attempt, "stop")
    return Outcome(run.record.name, "will save at the next step and end", tuple(running))


def save(name: str) -> Outcome:
    """Ask for a checkpoint at the next step boundary; the run goes on. RunError where nothing runs."""
    run, state = _open_unfinished(name)
    _, running = _jobs(run, Slurm())
    if not running or state.owner is None:
        raise RunError(f"the run {run.record.name!r} is not running, so it cannot save")
    ledger.append(run.path, "save_requested", "a save was asked for")
    ask(run.path, "save", state.owner.attempt, "save")
    return Outcome(run.record.name, "will save at the next step", tuple(running))


def cancel(name: str) -> Outcome:
    """Cancel all jobs of the run at once, without a save; nothing goes on until `resume`."""
    run, _ = _open_unfinished(name)
    ledger.append(run.path, "cancel_requested", "cancelled by command")
    slurm = Slurm()
    with _recorded(name, "cancel"):
        queued, running = _jobs(run, slurm)
        # Queued ones first: a chained job must not start in the moment in which the running one ends.
        slurm.cancel(queued)
        slurm.cancel(running)
    return Outcome(run.record.name, f"cancelled {len(queued) + len(running)} jobs", (*running, *queued))


def resume(name: str) -> Outcome:
    """Let a stopped run go on, or one that has no job: a new job is queued.

    RunError where it is finished, or a job of it is queued or running.
    """
    run, _ = _open_unfinished(name)
    slurm = Slurm()
    queued, running = _jobs(run, slurm)
    if queued or running:
        raise RunError(
            f"the run {run.record.name!r} has jobs already: {', '.join(map(str, [*running, *queued]))}",
            hint="wait for them to end, or `pretrainctl cancel` first",
        )
    run.refuse_if_moved()
    ledger.append(run.path, "resume_requested", "resume asked for")
    try:
        job_ids, _ = queue_jobs(run, run.launch(), slurm)
    except SlurmError as error:
        ledger.append(run.path, "stopped", f"could not be resumed: {error}")
        raise
    return Outcome(run.record.name, f"queued job {', '.join(map(str, job_ids))}", job_ids)


@contextlib.contextmanager
def _recorded(name: str, command: str) -> Iterator[None]:
    """Say so where the wish is in the ledger, and Slurm did not hear of it: nothing new starts, what runs goes on."""
    try:
        yield
    except (SlurmError, MissingError) as error:
        raise SlurmError(
            f"the stop of {name!r} is recorded, so no new job of it trains, but Slurm did not answer: {error}",
            hint=f"what runs goes on: give `pretrainctl {command} {name}` again where Slurm answers",
        ) from error


def _open_unfinished(name: str) -> tuple[RunFolder, RunState]:
    run = folder.find(name)
    run.refuse_others()
    state = fold(ledger.read_events(run.path))
    if state.finished is not None:
        raise RunError(f"the run {run.record.name!r} is finished: {state.finished}")
    return run, state


def _jobs(run: RunFolder, slurm: Slurm) -> tuple[list[int], list[int]]:
    """Queued and running jobs of a run, by its unique job name."""
    jobs = slurm.queued(run.record.job_name)
    running = [job.job_id for job in jobs if job.is_running]
    queued = [job.job_id for job in jobs if job.is_waiting]
    return queued, running
