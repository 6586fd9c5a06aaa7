"""The starts of the training inside one job: each judged by its evidence, until nothing more can be done here."""

from __future__ import annotations

import contextlib
import functools

from pretrainctl.errors import SlurmError
from pretrainctl.frameworks.checkpoint_gate import gate
from pretrainctl.frameworks.checkpoint_owner import own, refuse_stranger
from pretrainctl.records.job import JobClass
from pretrainctl.records.run import Action, Decision, Diagnosis
from pretrainctl.recovery import decision as decisions
from pretrainctl.recovery.diagnosis import FailureClass, diagnose
from pretrainctl.recovery.placement import Placement
from pretrainctl.runs import ledger
from pretrainctl.runs.fence import hold
from pretrainctl.runs.requests import BATCH_HOST_LOST, withdraw
from pretrainctl.runs.state import fold
from pretrainctl.workflows.attempt.chain import Chain
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.limits import spent_now, too_far_back
from pretrainctl.workflows.attempt.node_choice import NodeChoice
from pretrainctl.workflows.attempt.node_watch import NodeWatch
from pretrainctl.workflows.attempt.patience import IDLE_PAUSE, MAY_PASS, Patience
from pretrainctl.workflows.attempt.restart import Restart, RestartEnd
from pretrainctl.workflows.loading import judge_load
from pretrainctl.workflows.look_back import evidence_of, expected_checkpoint, restart_summaries, trained_before

__all__ = ["open_gate", "train"]

_STOP_LOOK = 2.0
"""Seconds between two looks whether people have stopped the run, in a pause."""


def train(attempt: Attempt, watch: NodeWatch, chain: Chain, nodes: NodeChoice) -> tuple[Decision, str]:
    """Start the training again and again; what is to be done when this job can do no more, and the failure class."""
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
                patience.pause(IDLE_PAUSE)  # until Slurm knows, the chained job would get the same nodes
            return Decision(Action.HAND_OVER, nodes.lack(needed)), FailureClass.NODE_FAILURE.value
        ended = patience.until("Slurm", functools.partial(_end_of_job, attempt))
        if ended:
            return Decision(Action.HAND_OVER, ended), FailureClass.NODE_FAILURE.value
        resume_tag = patience.until("the checkpoints", functools.partial(open_gate, attempt, number))
        back = too_far_back(attempt, patience)
        if back is not None:
            return back, FailureClass.CHECKPOINT_INCOMPLETE.value
        restart = Restart(attempt, watch, chain, number, usable[:needed], resume_tag)
        patience.until("the run folder", restart.prepare)
        end = restart.run()
        patience.until("the fence", functools.partial(hold, attempt.run.path, attempt.number))
        set_aside = functools.partial(ledger.set_aside_unreadable, attempt.run.path, since=attempt.number)
        attempt.tell_set_aside(patience.until("the ledger", set_aside))
        diagnosis = _diagnose(attempt, restart, end, patience)
        patience.until("the ledger", attempt.write_events)
        decision = _decide(attempt, patience, diagnosis, nodes, false_alarm=_false_alarm(attempt, end, patience))
        nodes.leave_out(decision.exclude)
        if decision.action is not Action.RESTART_HERE:
            nodes.keep_off()
            return decision, diagnosis.failure_class
        changed = _wait(attempt, watch, patience, diagnosis, decision.pause)
        if changed is not None:
            return changed, diagnosis.failure_class
        number += 1


def _diagnose(attempt: Attempt, restart: Restart, end: RestartEnd, patience: Patience) -> Diagnosis:
    """Why a start ended, told in the ledger."""
    told = patience.until("the ledger", functools.partial(ledger.read_events, attempt.run.path, attempt.number))
    evidence = evidence_of(
        restart.folder,
        job_class=_taken_away(attempt, end),
        srun_status=end.srun_status,
        dead_nodes=end.lost,
        request=end.asked,
        signals=["SIGTERM"] if end.terminated else [],
        hang=end.hang,
        placement=Placement(restart.nodes, attempt.launch.srun.tasks_per_node),
        trained=trained_before(attempt.run, attempt.number, restart.number, told),
        target_steps=attempt.launch.target_steps,
    )
    diagnosis = restart.resumed.from_scratch or diagnose(evidence)
    stepped = evidence.last_step is not None
    judge = functools.partial(judge_load, attempt.run, restart.folder, restart.resume_tag, diagnosis, stepped=stepped)
    diagnosis, loading = patience.until("the ledger", judge)
    attempt.event(
        "restart_ended",
        diagnosis.message,
        {
            "restart": restart.number,
            "class": diagnosis.failure_class,
            "nodes": list(diagnosis.nodes),
            "ranks": list(diagnosis.ranks),
            "evidence": list(diagnosis.evidence),
            "confidence": diagnosis.confidence,
            "hint": decisions.hint_of(diagnosis, attempt.launch.recovery),
            **loading,
        },
    )
    return diagnosis


def _false_alarm(attempt: Attempt, end: RestartEnd, patience: Patience) -> bool:
    """Whether the ranks left because this batch host was taken for lost, as one is that stood still for a while."""
    if end.end is None or (end.end.kind, end.end.reason) != ("checkpointed", BATCH_HOST_LOST):
        return False
    patience.until("the run folder", functools.partial(withdraw, attempt.run.path, attempt.number, BATCH_HOST_LOST))
    return True


def _decide(
    attempt: Attempt, patience: Patience, diagnosis: Diagnosis, nodes: NodeChoice, *, false_alarm: bool
) -> Decision:
    """What follows from a diagnosis, told in the ledger."""
    history = patience.until("the ledger", functools.partial(restart_summaries, attempt.run, attempt.number))
    nodes.listing.add_diagnosed(diagnosis, history)
    limits = attempt.launch.recovery
    decision = _stopped_meanwhile(attempt, diagnosis) or decisions.decide(
        diagnosis,
        history,
        limits,
        healthy_nodes=nodes.count(),
        needed_nodes=attempt.launch.srun.nodes,
        job_is_ending=attempt.signals.terminated or attempt.signals.time_limit_near,
        false_alarm=false_alarm,
    )
    decision = decisions.hold_to_limits(decision, history, limits, spent_now(attempt, patience))
    attempt.event(
        "decided",
        f"{decision.action.value}: {decision.reason}",
        {"action": decision.action.value, "exclude": list(decision.exclude)},
    )
    return decision


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
            hold(attempt.run.path, attempt.number)
        with contextlib.suppress(*MAY_PASS):
            stopped = _stopped_meanwhile(attempt, diagnosis)
            if stopped is not None:
                return stopped
    return None


def _end_of_job(attempt: Attempt) -> str:
    """How this attempt's own job was ended meanwhile, empty where it runs or nobody knows it.

    Of a batch host that stood still the witness has ended the job, and the next one may train. Without an answer of
    Slurm no srun starts either: that would look like a program that fails before its first step.
    """
    job = attempt.slurm.jobs([attempt.record.job_id]).get(attempt.record.job_id)
    if job is None or not (job.state.alive is False or job.state.job_class is JobClass.ENDING):
        return ""
    return f"Slurm has ended job {job.job_id} of this attempt: {job.state.text}"


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


def open_gate(attempt: Attempt, restart: int) -> str | None:
    """The tag to resume from, None for a fresh start; CheckpointError where neither is right, or the checkpoints are
    another run's."""
    directory = attempt.launch.checkpoint.directory
    hold(attempt.run.path, attempt.number)
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
    for checkpoint in result.left:
        message += f"; {checkpoint.tag} could not be moved away: {checkpoint.reason}"
    attempt.event(
        "checkpoint_gate",
        message,
        {
            "restart": restart,
            "resume_tag": result.resume_tag,
            "resume_step": result.resume_step,
            "last_saved_step": expected["last_saved_step"],
            "quarantined": quarantined,
            "left": [checkpoint.tag for checkpoint in result.left],
            "pointer_rewritten": result.pointer_rewritten,
            "notes": list(result.notes),
        },
    )
    return result.resume_tag
