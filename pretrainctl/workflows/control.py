"""Stop, save, cancel, resume: what people tell a run."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pretrainctl.errors import CheckpointError, MissingError, RunError, SlurmError
from pretrainctl.frameworks.checkpoint_gate import check
from pretrainctl.frameworks.checkpoint_owner import refuse_stranger
from pretrainctl.records.launch import Launch
from pretrainctl.records.run import Event
from pretrainctl.recovery.budgets import check_node_hours
from pretrainctl.recovery.consent import describe
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.requests import ask
from pretrainctl.runs.state import AttemptState, fold
from pretrainctl.slurm.client import Slurm
from pretrainctl.workflows.go_back import WayBack, find_way_back, step_of
from pretrainctl.workflows.interrupted import record_stop
from pretrainctl.workflows.launch import queue_jobs
from pretrainctl.workflows.lineage import compare_to_trained
from pretrainctl.workflows.look_back import expected_checkpoint
from pretrainctl.workflows.reach import reach_own
from pretrainctl.workflows.revise import install, revise, tell_kept
from pretrainctl.workflows.spending import spent_by
from pretrainctl.workflows.training_data import refuse_missing_data
from pretrainctl.workflows.training_program import refuse_missing_program
from pretrainctl.workflows.turn import find_holder

__all__ = ["Outcome", "cancel", "resume", "save", "stop"]

_FURTHER = (
    "to train further, launch a new run with a higher training.tokens, `--set checkpoint.directory={directory}` and "
    "`--set checkpoint.adopt=true`: from its last step on the learning rate follows the new target's schedule"
)


@dataclass(frozen=True)
class Outcome:
    """What was done to a run, in one line, and the Slurm jobs that it concerned."""

    run: str
    message: str
    job_ids: tuple[int, ...] = ()


def stop(name: str) -> Outcome:
    """End the run at the next step boundary, after a save; nothing is submitted or resumed until `resume`.

    The event is written first, so that an attempt that starts in between reads it and leaves; the request reaches
    the ranks through the run folder, whether Slurm answers or not. Where the request cannot be written, the attempt
    finds the event and signals the ranks. A run that is stopped already stays as it is.
    """
    run = _open_unfinished(name)
    before = fold(ledger.read_events(run.path))
    if before.stopped is None or before.unsubmitted:
        ledger.append(run.path, "stop_requested", "stop asked for: save, then end")
    state = fold(ledger.read_events(run.path))
    unwritten = _ask_to_end(run, state.open_attempt)
    with _recorded(name, "stop --save"):
        slurm = reach_own(run)
        queued, running = _jobs(run, slurm)
        slurm.cancel(queued)
    if running:
        when = "will save at the next step and end"
        if unwritten:
            when = f"will save and end when its attempt has read the ledger, within half a minute ({unwritten})"
        return Outcome(run.record.name, when, tuple(running))
    if before.stopped is not None:
        return Outcome(run.record.name, f"is stopped already: {before.stopped}", tuple(queued))
    return Outcome(run.record.name, "nothing was running; what was queued is cancelled", tuple(queued))


def _ask_to_end(run: RunFolder, attempt: AttemptState | None) -> str:
    """Ask the ranks of an attempt; why they could not be asked, empty where they were."""
    if attempt is None:
        return ""
    try:
        ask(run.path, "save_and_exit", attempt.attempt, "stop")
    except OSError as error:
        return f"the request cannot be written: {error.strerror}: {error.filename2 or error.filename}"
    return ""


def save(name: str) -> Outcome:
    """Ask for a checkpoint at the next step boundary; the run goes on. RunError where nothing runs."""
    run = _open_unfinished(name)
    state = fold(ledger.read_events(run.path))
    _, running = _jobs(run, reach_own(run))
    if not running or state.owner is None:
        raise RunError(f"the run {run.record.name!r} is not running, so it cannot save")
    ask(run.path, "save", state.owner.attempt, "save")
    ledger.append(run.path, "save_requested", "a save was asked for")
    return Outcome(run.record.name, "will save at the next step", tuple(running))


def cancel(name: str) -> Outcome:
    """Cancel all jobs of the run at once; nothing goes on until `resume`. Ranks may save within Slurm's KillWait."""
    run = _open_unfinished(name)
    before = fold(ledger.read_events(run.path))
    if before.stopped is None or before.unsubmitted or before.open_attempt is not None:
        ledger.append(run.path, "cancel_requested", "cancelled by command")
    with _recorded(name, "cancel"):
        slurm = reach_own(run)
        queued, running = _jobs(run, slurm)
        # Queued ones first: a chained job must not start in the moment in which the running one ends.
        slurm.cancel(queued)
        slurm.cancel(running)
    count = len(queued) + len(running)
    if not count and before.stopped is not None:
        return Outcome(run.record.name, f"is stopped already: {before.stopped}")
    return Outcome(run.record.name, f"cancelled {count} job{'s' * (count != 1)}", (*running, *queued))


def resume(
    name: str,
    *,
    set_values: Sequence[str] = (),
    recipe: Path | None = None,
    accept: bool = False,
    back_to: str | None = None,
    confirm: Callable[[WayBack], bool] = lambda _: True,
) -> Outcome | None:
    """Let a stopped run go on, or one that has no job: a new job is queued.

    With `set_values` (`key=value`) or `recipe` it is planned anew before. `back_to` names an older checkpoint to go on
    from, by its tag or step: a finished run may go back, too, and None is returned where `confirm` said no. RunError
    where it is finished, where a job of it is queued or running, another `resume` is at work, its node-hours are used
    up, or what it trains with was changed and `accept` is false; InputError where its data, its program, or the
    checkpoint to go back to are not there; CheckpointError where it had checkpoints and could load none, or another run
    took them over.
    After Ctrl-C or SIGTERM it is stopped.
    """
    run = _open_unfinished(name, hint=_FURTHER) if back_to is None else _open(name)
    slurm = reach_own(run)
    events = ledger.read_events(run.path, 0)
    given = _as_typed(set_values, recipe, back_to)
    _refuse_jobs(run, *_jobs(run, slurm), given)
    revision = revise(run, set_values, recipe) if set_values or recipe is not None else None
    launch = run.launch() if revision is None else revision.launch
    _refuse_spent(run, launch)
    planned = run.planned() if revision is None else revision.planned
    refuse_missing_data(planned.recipe)
    refuse_missing_program(launch, run.path, planned.profile)
    refuse_stranger(launch.checkpoint.directory, launch.run_id)
    back = find_way_back(run, launch.checkpoint, back_to) if back_to is not None else None
    if back is None:
        _refuse_finished(run, _FURTHER)
        # Now, what the attempt's own gate would refuse after the job has waited in the queue.
        newest = check(launch.checkpoint.directory, launch.checkpoint, **expected_checkpoint(run))
    else:
        newest = back.tag
    if revision is not None and newest is not None:
        _refuse_reached(launch, newest, given)
    changes, waiting = compare_to_trained(run, launch, revision)
    kept = f"; {tell_kept(revision.kept)}" if revision is not None and revision.kept else ""
    if waiting and not accept:
        besides = describe([change for change in changes if change not in waiting])
        raise RunError(
            f"this is not what the run {run.record.name!r} trained with before: {describe(waiting)}"
            f"{f'; besides: {besides}' if besides else ''}{kept}",
            hint=f"put back what was not meant, or go on with it: `{_resume_with(name, *given, '--accept')}`",
        )
    if back is not None and not confirm(back):
        return None
    try:
        mine = ledger.append(run.path, "resume_requested", "resume asked for")
        other = _other_resume(ledger.read_events(run.path, 0), mine, known=events[-1].sequence if events else 0)
        if other is not None:
            raise RunError(
                f"another `resume` or `reconcile` of the run {run.record.name!r} is at work, on {other.host}",
                hint=f"look at `pretrainctl status {run.record.name}`; what it queues is enough",
            )
        if back is not None:
            back.take(run)
        if revision is not None:
            install(run, revision)
        if waiting:
            said = f"accepted for what follows: {describe(waiting)}"
            ledger.append(run.path, "change_accepted", said, data={"changes": list(waiting)})
        job_ids, _ = queue_jobs(run, launch, slurm)
    except (SlurmError, CheckpointError, OSError) as error:
        record_stop(run.path, f"could not be resumed: {error}")
        raise
    except (KeyboardInterrupt, SystemExit):
        # A job may have been accepted in this moment: it will find this and leave.
        record_stop(run.path, "the resume was interrupted")
        raise
    message = f"queued job {', '.join(map(str, job_ids))}"
    if back_to is not None:
        message += f"; {back.cost if back is not None else f'{back_to} is the newest: nothing to go back from'}"
    return Outcome(
        run.record.name,
        message + (f"; changed since it trained: {describe(changes)}" if changes else "") + kept,
        job_ids,
    )


def _refuse_spent(run: RunFolder, launch: Launch) -> None:
    """RunError where a budget that a resume does not give back is used up."""
    if launch.recovery.node_hours is None:
        return
    used = check_node_hours(spent_by(run), launch.recovery)
    if used:
        raise RunError(
            f"the run {run.record.name!r} stays stopped: {used}",
            hint=f"`pretrainctl resume {run.record.name} --set recovery.node_hours=N`",
        )


def _as_typed(set_values: Sequence[str], recipe: Path | None, back_to: str | None) -> list[str]:
    """The options of a `resume` that say what it is to be, for the hint that repeats it."""
    words = [word for one in set_values for word in ("--set", one)]
    words += ["--recipe", str(recipe)] if recipe is not None else []
    return [*words, *(["--from", back_to] if back_to is not None else [])]


def _resume_with(name: str, *given: str) -> str:
    return shlex.join(["pretrainctl", "resume", name, *given])


def _refuse_reached(launch: Launch, newest: str, given: Sequence[str]) -> None:
    """RunError where another target lies no further than the checkpoint from which a run goes on."""
    step = step_of(newest)
    if step is None or not 0 < launch.target_steps <= step:
        return
    raise RunError(
        f"the run goes on from {newest}, and with {shlex.join(given)} its target would be step {launch.target_steps}: "
        "nothing would be trained",
        hint=f"set training.tokens to more than those of step {step}, or go back with `--from` an older checkpoint",
    )


def _refuse_jobs(run: RunFolder, queued: Sequence[int], running: Sequence[int], given: Sequence[str]) -> None:
    name, state = run.record.name, fold(ledger.read_events(run.path))
    if running and state.stopped is not None:
        raise RunError(
            f"the run {name!r} is being stopped, and its job {running[0]} has not ended yet",
            hint=f"give `resume` again when `pretrainctl status {name}` says stopped",
        )
    if running or queued:
        what = f"is running: job {running[0]}" if running else f"is queued: job {queued[0]}"
        hint = f"there is nothing to resume; `pretrainctl stop --save {name}` ends it after a save, `cancel` at once"
        if given:
            hint = f"end it first, with `pretrainctl stop --save {name}`; when it has: `{_resume_with(name, *given)}`"
        raise RunError(f"the run {name!r} {what}", hint=hint)


def _other_resume(events: Sequence[Event], mine: Event, *, known: int) -> Event | None:
    """The resume that came before `mine`, and whose job may not be in the queue yet; `known` was seen before."""
    before = [event for event in events if event.sequence < mine.sequence]
    news = [event for event in before if event.sequence > known and event.kind in {"resume_requested", "submitted"}]
    if news:
        return news[0]
    holder = find_holder(events, until=mine)
    return holder if holder is not None and holder.sequence != mine.sequence else None


@contextlib.contextmanager
def _recorded(name: str, command: str) -> Iterator[None]:
    """Say so where the wish is in the ledger, and Slurm did not hear of it: nothing new starts."""
    try:
        yield
    except (SlurmError, MissingError) as error:
        raise SlurmError(
            f"the stop of {name!r} is recorded, so no new job of it trains, but Slurm did not answer: {error}",
            hint=f"give `pretrainctl {command} {name}` again where Slurm answers; `reconcile` does it too",
        ) from error


def _open_unfinished(name: str, *, hint: str = "") -> RunFolder:
    run = _open(name)
    _refuse_finished(run, hint)
    return run


def _open(name: str) -> RunFolder:
    run = folder.find(name)
    run.refuse_foreign()
    return run


def _refuse_finished(run: RunFolder, hint: str) -> None:
    finished = fold(ledger.read_events(run.path)).finished
    if finished is not None:
        raise RunError(
            f"the run {run.record.name!r} is finished: {finished}",
            hint=hint.replace("{directory}", str(run.launch().checkpoint.directory)) if hint else "",
        )


def _jobs(run: RunFolder, slurm: Slurm) -> tuple[list[int], list[int]]:
    """Queued and running jobs of a run, by its unique job name."""
    jobs = slurm.queued(run.record.job_name)
    running = [job.job_id for job in jobs if job.is_running]
    queued = [job.job_id for job in jobs if job.is_waiting]
    return queued, running
