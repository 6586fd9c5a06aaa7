"""An attempt from its claim to its end."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import replace
from pathlib import Path

from pretrainctl.errors import CheckpointError, PretrainctlError, SupersededError, UnreadableError
from pretrainctl.records.run import Action, AttemptRecord, Decision
from pretrainctl.recovery.diagnosis import FailureClass
from pretrainctl.runs import ledger
from pretrainctl.runs.claim import claim, rival
from pretrainctl.runs.fence import hold, raise_fence
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold
from pretrainctl.slurm.client import Slurm
from pretrainctl.workflows.attempt.chain import Chain
from pretrainctl.workflows.attempt.context import Attempt, this_job
from pretrainctl.workflows.attempt.limits import used_up
from pretrainctl.workflows.attempt.lineage import LineageCheck
from pretrainctl.workflows.attempt.node_choice import NodeChoice
from pretrainctl.workflows.attempt.node_watch import NodeWatch
from pretrainctl.workflows.attempt.patience import IDLE_PAUSE, MAY_PASS, Patience, say, tell_fault
from pretrainctl.workflows.attempt.restarts import train
from pretrainctl.workflows.attempt.signals import Signals
from pretrainctl.workflows.look_back import Past, look_back

__all__ = ["run_attempt"]


def run_attempt(run_dir: Path) -> int:
    """Carry the run as far as this job can; returns the exit status of the batch script.

    0 where the run is finished, goes on in the chained job, or is none of ours to run; 1 where it stopped.
    """
    signals = Signals()
    signals.install()
    job = this_job()
    patience = Patience(signals)
    run = patience.until("the run folder", lambda: RunFolder(run_dir))
    launch = patience.until("launch.json", run.launch)
    slurm = Slurm()
    chain = Chain(run, launch, slurm, job.job_id)
    # First of all: whatever ends this job from now on, another goes on.
    if not _is_over(run):
        chain.ensure()
    try:
        return _take_and_carry(Attempt(run, launch, job, slurm, signals), chain, patience)
    except Exception as error:  # noqa: BLE001 - a fault of ours ends no run, and makes no chain of jobs without end
        say(f"this job could not take the run: {tell_fault(error)}")
        return _leave_idle(chain, patience)


def _take_and_carry(unclaimed: Attempt, chain: Chain, patience: Patience) -> int:
    """Claim the run and carry it; returns the exit status of the batch script."""
    run, job = unclaimed.run, unclaimed.record
    try:
        moved = patience.until("the ledger", lambda: ledger.set_aside_unreadable(run.path))
        record = patience.until("a place for this attempt", lambda: claim(run.path, job))
    except (PretrainctlError, OSError) as error:
        say(f"this job could not take the run: {error}")
        return _leave_idle(chain, patience)
    attempt = replace(unclaimed, record=record)
    attempt.event(
        "claimed",
        f"job {record.job_id} on {len(record.nodes)} nodes, batch host {record.host}",
        {"job_id": record.job_id, "slurm_restart": record.slurm_restart},
    )
    chain.adopt(attempt)
    attempt.tell_set_aside(moved)
    try:
        patience.until("the ledger", attempt.write_events)
        other = patience.until("Slurm's word on earlier attempts", lambda: _find_rival(attempt))
    except (PretrainctlError, OSError) as error:
        attempt.event("refused", f"whether an earlier attempt is alive cannot be known: {error}")
        return _leave_idle(chain, patience)
    if other is not None:  # it has a chain of its own
        attempt.event("refused", f"attempt {other.attempt} owns the run: its job {other.job_id} is alive")
        return 0
    with contextlib.ExitStack() as closing:  # heard by the lookouts until the last word is written
        return _carry_to_end(attempt, chain, patience, closing)


def _carry_to_end(attempt: Attempt, chain: Chain, patience: Patience, closing: contextlib.ExitStack) -> int:
    """Carry the run, and leave it whatever happens; returns the exit status of the batch script."""
    try:
        decision, failure_class = _carry(attempt, chain, patience, closing)
    except SupersededError as error:
        decision, failure_class = Decision(Action.STOP, str(error)), FailureClass.FENCED.value
    except UnreadableError as error:
        decision, failure_class = Decision(Action.HAND_OVER, str(error)), FailureClass.UNKNOWN.value
    except CheckpointError as error:
        decision, failure_class = Decision(Action.STOP, str(error)), FailureClass.CHECKPOINT_INCOMPLETE.value
    except (PretrainctlError, OSError) as error:
        # What cannot be read or done now is unknown: the progress gate bounds how often that is tried.
        decision, failure_class = (
            Decision(Action.HAND_OVER, f"this attempt failed: {error}"),
            FailureClass.UNKNOWN.value,
        )
    except Exception as error:  # noqa: BLE001 - as above; the next attempt may do better, a bounded number of times
        decision = Decision(Action.HAND_OVER, f"this attempt failed: {tell_fault(error)}")
        failure_class = FailureClass.UNKNOWN.value
    return _leave(attempt, chain, patience, decision, failure_class)


def _is_over(run: RunFolder) -> bool:
    """Whether the ledger says that nothing goes on; False where it cannot be read."""
    try:
        state = fold(ledger.read_events(run.path))
    except MAY_PASS:
        return False
    except Exception as error:  # noqa: BLE001 - the chained job comes first
        tell_fault(error)
        return False
    return state.finished is not None or state.stopped is not None


def _carry(attempt: Attempt, chain: Chain, patience: Patience, closing: contextlib.ExitStack) -> tuple[Decision, str]:
    patience.until("the fence", functools.partial(raise_fence, attempt.run.path, attempt.number, 0))
    state = fold(patience.until("the ledger", lambda: ledger.read_events(attempt.run.path)))
    if state.finished is not None:
        return Decision(Action.FINISH, "the run was finished before"), "finished"
    if state.stopped is not None:
        return Decision(Action.STOP, f"stopped before: {state.stopped}"), "user_cancel"
    watch = NodeWatch(attempt)
    closing.callback(watch.listener.close)
    lineage = LineageCheck(attempt)
    watch.start()
    nodes = NodeChoice(attempt, watch, chain)
    nodes.start()
    try:
        chain.ensure()
        past = patience.until("the last attempt's end", lambda: _look_back(attempt))
        if past is not None:
            found = {"class": past.diagnosis.failure_class, "of": past.attempt, **past.loading}
            attempt.event("looked_back", past.diagnosis.message, found)
            nodes.listing.add_past(past.attempt, past.diagnosis)
            if past.stop is not None:
                return past.stop, past.diagnosis.failure_class
        stop = used_up(attempt, patience)
        if stop is not None:
            return stop, FailureClass.BUDGET.value
        nodes.settle()
        stop = lineage.settle()
        if stop is not None:
            return stop, FailureClass.CHANGED.value
        return train(attempt, watch, chain, nodes)
    finally:
        watch.stop()
        nodes.stop()


def _look_back(attempt: Attempt) -> Past | None:
    return look_back(attempt.run, attempt.slurm, before=attempt.number)


def _find_rival(attempt: Attempt) -> AttemptRecord | None:
    return rival(attempt.run.attempts(), attempt.record, attempt.run.path, functools.partial(_running, attempt.slurm))


def _running(slurm: Slurm, job_ids: list[int]) -> set[int]:
    jobs = slurm.jobs(job_ids)
    return {job_id for job_id, job in jobs.items() if job.is_running}


def _leave_idle(chain: Chain, patience: Patience) -> int:
    """Leave without the run, for a reason that may pass: the chained job tries again, a bounded number of times."""
    chain.last_try(patience)
    patience.pause(IDLE_PAUSE)
    return 0 if chain.hand_over_idle() else 1


def _leave(attempt: Attempt, chain: Chain, patience: Patience, decision: Decision, failure_class: str) -> int:
    """Write how the attempt ends, settle the queue, and say what the batch script ends with."""
    with contextlib.suppress(*MAY_PASS):
        try:
            hold(attempt.run.path, attempt.number)
        except SupersededError as error:
            decision, failure_class = Decision(Action.STOP, str(error)), FailureClass.FENCED.value
    if failure_class == FailureClass.FENCED.value:
        # Another attempt has the run: its state and its queue are no longer ours to settle.
        attempt.event("attempt_ended", decision.reason, {"action": "wait", "class": failure_class})
        return 0
    failed = False
    if decision.action in {Action.FINISH, Action.STOP}:
        try:
            known = fold(patience.until("the ledger", lambda: ledger.read_events(attempt.run.path)))
            if decision.action is Action.FINISH and known.finished is None:
                attempt.event("finished", decision.reason)
            elif decision.action is Action.STOP and known.stopped is None:
                attempt.event("stopped", decision.reason, {"class": failure_class})
                failed = failure_class != FailureClass.USER_CANCEL.value
            patience.until("the ledger", attempt.write_events)
        except MAY_PASS as error:
            # The chained job stays: it finds out the same, and writes it.
            say(f"the end could not be written: {error}")
            return 1
        chain.cancel()
    else:
        chain.last_try(patience)
        if failure_class == FailureClass.UNKNOWN.value and not _has_trained(attempt):
            patience.pause(IDLE_PAUSE)
            # The look back, which bounds attempts without progress, may be what failed.
            failed = not chain.hand_over_idle()
    attempt.event("attempt_ended", decision.reason, {"action": decision.action.value, "class": failure_class})
    with contextlib.suppress(OSError):
        patience.until("the ledger", attempt.write_events)
    return 1 if failed else 0


def _has_trained(attempt: Attempt) -> bool:
    try:
        return bool(attempt.run.restarts(attempt.number))
    except OSError:
        return False
