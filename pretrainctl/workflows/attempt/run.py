"""An attempt from its claim to its end."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path

from pretrainctl.errors import CheckpointError, PretrainctlError, SlurmError, UnreadableError
from pretrainctl.frameworks.checkpoint_gate import gate
from pretrainctl.frameworks.checkpoint_owner import own, refuse_stranger
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import Fence
from pretrainctl.records.job import JobClass
from pretrainctl.records.run import Action, AttemptRecord, Decision, Diagnosis
from pretrainctl.recovery import decision as decisions
from pretrainctl.recovery.diagnosis import FailureClass, diagnose
from pretrainctl.recovery.placement import Placement
from pretrainctl.runs import ledger
from pretrainctl.runs.claim import claim, rival
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold
from pretrainctl.slurm.client import Slurm
from pretrainctl.workflows.attempt.chain import Chain
from pretrainctl.workflows.attempt.context import Attempt, this_job
from pretrainctl.workflows.attempt.limits import spent_now, too_far_back, used_up
from pretrainctl.workflows.attempt.lineage import LineageCheck
from pretrainctl.workflows.attempt.node_choice import NodeChoice
from pretrainctl.workflows.attempt.node_watch import NodeWatch
from pretrainctl.workflows.attempt.patience import MAY_PASS, Patience, say
from pretrainctl.workflows.attempt.restart import Restart, RestartEnd
from pretrainctl.workflows.attempt.signals import Signals
from pretrainctl.workflows.look_back import Past, evidence_of, expected_checkpoint, look_back, restart_summaries

__all__ = ["run_attempt"]

_IDLE_PAUSE = 120.0
"""Seconds that a job which could do nothing waits before it hands over: the next would most likely find the same."""
_STOP_LOOK = 2.0
"""Seconds between two looks whether people have stopped the run, in a pause."""


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
        moved = patience.until("the ledger", lambda: ledger.set_aside_unreadable(run.path))
        record = patience.until("a place for this attempt", lambda: claim(run.path, job))
    except (PretrainctlError, OSError) as error:
        return _leave_idle(chain, patience, f"this job could not take the run: {error}")
    attempt = Attempt(run, launch, record, slurm, signals)
    attempt.event(
        "claimed",
        f"job {record.job_id} on {len(record.nodes)} nodes, batch host {record.host}",
        {"job_id": record.job_id, "slurm_restart": record.slurm_restart},
    )
    chain.adopt(attempt)
    _tell_set_aside(attempt, moved)
    try:
        patience.until("the ledger", attempt.write_events)
        other = patience.until("Slurm's word on earlier attempts", lambda: _find_rival(attempt))
    except (PretrainctlError, OSError) as error:
        message = f"whether an earlier attempt is alive cannot be known: {error}"
        attempt.event("refused", message)
        return _leave_idle(chain, patience, message)
    if other is not None:  # it has a chain of its own
        attempt.event("refused", f"attempt {other.attempt} owns the run: its job {other.job_id} is alive")
        return 0
    try:
        decision, failure_class = _carry(attempt, chain, patience)
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
    return _leave(attempt, chain, patience, decision, failure_class)


def _tell_set_aside(attempt: Attempt, moved: Sequence[Path]) -> None:
    for path in moved:
        attempt.event("set_aside", f"an unreadable event was set aside as {path.name}", {"path": str(path)})


def _is_over(run: RunFolder) -> bool:
    """Whether the ledger says that nothing goes on; False where it cannot be read."""
    try:
        state = fold(ledger.read_events(run.path))
    except MAY_PASS:
        return False
    return state.finished is not None or state.stopped is not None


def _carry(attempt: Attempt, chain: Chain, patience: Patience) -> tuple[Decision, str]:
    fence = Fence(attempt.number, 0)
    patience.until("the fence", lambda: codec.write(contract.fence_file(attempt.run.path), fence))
    state = fold(patience.until("the ledger", lambda: ledger.read_events(attempt.run.path)))
    if state.finished is not None:
        return Decision(Action.FINISH, "the run was finished before"), "finished"
    if state.stopped is not None:
        return Decision(Action.STOP, f"stopped before: {state.stopped}"), "user_cancel"
    watch = NodeWatch(attempt)
    lineage = LineageCheck(attempt)
    watch.start()
    nodes = NodeChoice(attempt, watch, chain)
    nodes.start()
    try:
        chain.ensure()
        past = patience.until("the last attempt's end", lambda: _look_back(attempt))
        if past is not None:
            found = {"class": past.diagnosis.failure_class, "of": past.attempt}
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
        return _train(attempt, watch, chain, nodes)
    finally:
        watch.stop()
        nodes.stop()


def _look_back(attempt: Attempt) -> Past | None:
    return look_back(attempt.run, attempt.slurm, before=attempt.number)


def _train(attempt: Attempt, watch: NodeWatch, chain: Chain, nodes: NodeChoice) -> tuple[Decision, str]:
    needed = attempt.launch.srun.nodes
    patience = Patience(attempt.signals, idle=watch.poll)
    number = 0
    while True:
        usable = nodes.usable()
        if len(usable) < needed:
            avoided = nodes.keep_off()
            if number == 0 and not avoided:
                if nodes.take_unfit(needed):
                    continue
                patience.pause(_IDLE_PAUSE)  # until Slurm knows, the chained job would get the same nodes
            return Decision(Action.HAND_OVER, nodes.lack(needed)), FailureClass.NODE_FAILURE.value
        resume_tag = patience.until("the checkpoints", functools.partial(_open_gate, attempt, number))
        back = too_far_back(attempt, patience)
        if back is not None:
            return back, FailureClass.CHECKPOINT_INCOMPLETE.value
        restart = Restart(attempt, watch, chain, number, usable[:needed], resume_tag)
        patience.until("the run folder, and Slurm", restart.prepare)
        end = restart.run()
        set_aside = functools.partial(ledger.set_aside_unreadable, attempt.run.path, since=attempt.number)
        _tell_set_aside(attempt, patience.until("the ledger", set_aside))
        diagnosis = restart.resumed.from_scratch or diagnose(
            evidence_of(
                restart.folder,
                job_class=_taken_away(attempt, end),
                srun_status=end.srun_status,
                dead_nodes={node.node: node.how for node in end.dead},
                request=end.asked,
                signals=["SIGTERM"] if end.terminated else [],
                hang=end.hang,
                placement=Placement(restart.nodes, attempt.launch.srun.tasks_per_node),
            )
        )
        attempt.event(
            "restart_ended",
            diagnosis.message,
            {
                "restart": number,
                "class": diagnosis.failure_class,
                "nodes": list(diagnosis.nodes),
                "ranks": list(diagnosis.ranks),
                "evidence": list(diagnosis.evidence),
                "confidence": diagnosis.confidence,
                "hint": decisions.hint_of(diagnosis),
            },
        )
        patience.until("the ledger", attempt.write_events)
        history = patience.until("the ledger", functools.partial(restart_summaries, attempt.run, attempt.number))
        nodes.listing.add_diagnosed(diagnosis, history)
        decision = _stopped_meanwhile(attempt, diagnosis) or decisions.decide(
            diagnosis,
            history,
            attempt.launch.recovery,
            healthy_nodes=nodes.count(),
            needed_nodes=needed,
            job_is_ending=attempt.signals.terminated or attempt.signals.time_limit_near,
        )
        decision = decisions.hold_to_limits(decision, history, attempt.launch.recovery, spent_now(attempt, patience))
        attempt.event(
            "decided",
            f"{decision.action.value}: {decision.reason}",
            {"action": decision.action.value, "exclude": list(decision.exclude)},
        )
        nodes.leave_out(decision.exclude)
        if decision.action is not Action.RESTART_HERE:
            nodes.keep_off()
            return decision, diagnosis.failure_class
        changed = _wait(attempt, watch, patience, diagnosis, decision.pause)
        if changed is not None:
            return changed, diagnosis.failure_class
        number += 1


def _wait(
    attempt: Attempt, watch: NodeWatch, patience: Patience, diagnosis: Diagnosis, seconds: float
) -> Decision | None:
    """Wait before the next start, and go on watching; what is to be done instead where something else came."""
    while seconds > 0:
        step = min(seconds, _STOP_LOOK)
        seconds -= step
        if not patience.pause(step):
            return Decision(Action.HAND_OVER, f"{diagnosis.message}; this allocation is ending")
        watch.note_dead()
        with contextlib.suppress(*MAY_PASS):
            stopped = _stopped_meanwhile(attempt, diagnosis)
            if stopped is not None:
                return stopped
    return None


def _stopped_meanwhile(attempt: Attempt, diagnosis: Diagnosis) -> Decision | None:
    """STOP where people stopped the run while it trained, unless it got to its target all the same."""
    state = fold(ledger.read_events(attempt.run.path))
    if state.stopped is None or diagnosis.failure_class == FailureClass.FINISHED.value:
        return None
    return Decision(Action.STOP, f"{diagnosis.message}; {state.stopped}")


def _taken_away(attempt: Attempt, end: RestartEnd) -> JobClass | None:
    """PREEMPTED where the ranks were told to leave, not by us, and Slurm says that it takes the nodes away."""
    if end.end is None or end.end.kind != "checkpointed" or end.asked is not None:
        return None
    with contextlib.suppress(SlurmError):
        if attempt.slurm.is_preempted(attempt.record.job_id):
            return JobClass.PREEMPTED
    return None


def _open_gate(attempt: Attempt, restart: int) -> str | None:
    """The tag to resume from, None for a fresh start; CheckpointError where neither is right, or the checkpoints are
    another run's."""
    directory = attempt.launch.checkpoint.directory
    refuse_stranger(directory, attempt.launch.run_id)
    expected = expected_checkpoint(attempt.run)
    result = gate(
        directory,
        attempt.launch.checkpoint,
        **expected,
        label=f"attempt-{attempt.number}-restart-{restart}",
        tasks_per_node=attempt.launch.srun.ranks_per_node,
    )
    # Only now: a folder that is not mounted is the gate's to find, and not ours to make.
    own(directory, attempt.launch.run_id, attempt.run.path)
    quarantined = [
        {"tag": checkpoint.tag, "reason": checkpoint.reason, "path": str(path)}
        for checkpoint, path in result.quarantined
    ]
    message = f"resume from {result.resume_tag}" if result.resume_tag else "fresh start: nothing was ever saved"
    for entry in quarantined:
        message += f"; {entry['tag']} quarantined: {entry['reason']}"
    attempt.event(
        "checkpoint_gate",
        message,
        {
            "restart": restart,
            "resume_tag": result.resume_tag,
            "resume_step": result.resume_step,
            "last_saved_step": expected["last_saved_step"],
            "quarantined": quarantined,
            "pointer_rewritten": result.pointer_rewritten,
            "notes": list(result.notes),
        },
    )
    return result.resume_tag


def _find_rival(attempt: Attempt) -> AttemptRecord | None:
    return rival(attempt.run.attempts(), attempt.record, attempt.run.path, functools.partial(_running, attempt.slurm))


def _running(slurm: Slurm, job_ids: list[int]) -> set[int]:
    jobs = slurm.jobs(job_ids)
    return {job_id for job_id, job in jobs.items() if job.is_running}


def _leave_idle(chain: Chain, patience: Patience, message: str) -> int:
    """Leave without the run, for a reason that may pass: the chained job tries again, a bounded number of times."""
    say(message)
    chain.last_try(patience)
    patience.pause(_IDLE_PAUSE)
    return 0 if chain.hand_over_idle() else 1


def _leave(attempt: Attempt, chain: Chain, patience: Patience, decision: Decision, failure_class: str) -> int:
    """Write how the attempt ends, settle the queue, and say what the batch script ends with."""
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
            patience.pause(_IDLE_PAUSE)
    attempt.event("attempt_ended", decision.reason, {"action": decision.action.value, "class": failure_class})
    with contextlib.suppress(OSError):
        patience.until("the ledger", attempt.write_events)
    return 1 if failed else 0


def _has_trained(attempt: Attempt) -> bool:
    try:
        return bool(attempt.run.restarts(attempt.number))
    except OSError:
        return False
