"""Why a start of the training program, or an attempt, ended: evidence in, exactly one class out.

What is believed, in this order: the end record (written by rank 0 after a barrier of all ranks), what the
watch of the nodes and Slurm say, the log, the first bad task. The exit status of srun only supports them:
srun was seen to return 0 after a node failure. Without any of these the class is *unknown*, which is neither
success nor failure.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pretrainctl.records.contract import End, ExitCode, Failure, Request
from pretrainctl.records.job import JobClass
from pretrainctl.records.progress import Hang
from pretrainctl.records.run import Diagnosis
from pretrainctl.recovery.facts import facts_of, log_facts
from pretrainctl.recovery.log_reading import LogReading
from pretrainctl.recovery.log_verdict import LogVerdict, read_verdict
from pretrainctl.recovery.new_nodes import lay_on_new_nodes
from pretrainctl.recovery.placement import Placement
from pretrainctl.recovery.policies import FailureClass
from pretrainctl.recovery.signatures import Confidence
from pretrainctl.recovery.spread import BLAMES_NO_RANK, Spread, blamed, settle
from pretrainctl.recovery.stuck import show_ranks

__all__ = ["Evidence", "FailureClass", "diagnose"]

_SLURM_PRINTS = {
    FailureClass.TIME_LIMIT,
    FailureClass.PREEMPTED,
    FailureClass.NODE_FAILURE,
    FailureClass.BOOT_FAILURE,
    FailureClass.HOST_OOM,
}


@dataclass(frozen=True)
class Evidence:
    """All that is known about an end; leave out what is not known.

    `srun_status`: exit status of the training srun, negative for a signal, None where it has not returned.
    `left`: the first task that ended well without an end record.
    `dead_nodes`: name to how it was noticed. `job_class`: Slurm's word on the job, for one that is over, and
    `job_state` as Slurm printed it; `job_signal` is the signal that ended it.
    `cancelled_by_us`: why our own program cancelled the job or its Slurm step, empty if it did not.
    `signals`: names of signals that the attempt received. `request`: the last request sent to the ranks.
    `hang`: what the watch of the progress saw, empty if nothing, and `stuck` its record. `start_step` is the step it
    resumed from, `last_step` the last optimizer step it did, None where it did none. `placement`: where its ranks lay.
    `trained`: nodes on which the same attempt did steps before. `target_steps` is the step to which the run was
    launched, 0 where that is not known. `spread`: who printed the line on which the log's verdict rests.
    """

    srun_status: int | None = None
    end: End | None = None
    failure: Failure | None = None
    left: Failure | None = None
    dead_nodes: Mapping[str, str] = field(default_factory=dict)
    job_class: JobClass | None = None
    job_state: str = ""
    job_signal: int | None = None
    cancelled_by_us: str = ""
    signals: tuple[str, ...] = ()
    request: Request | None = None
    hang: str = ""
    stuck: Hang | None = None
    start_step: int = 0
    last_step: int | None = None
    log: LogReading = field(default_factory=LogReading)
    placement: Placement = field(default_factory=Placement)
    trained: frozenset[str] = frozenset()
    target_steps: int = 0
    spread: Spread = field(default_factory=Spread)


def diagnose(evidence: Evidence) -> Diagnosis:
    """The one class that the evidence supports, where, and which facts say so."""
    told = settle(read_verdict(evidence.log, evidence.placement), evidence.spread)
    if told is not None and told.weak and not told.is_last_word_of(evidence.failure):
        # What was survived, or dealt with, must not stop a run, blame a rank or leave out a node.
        told = replace(told, weight="echo")
    for rule in (_ended, _cancelled, _stopped, _saved, _outside, _by_itself):
        found = rule(evidence, told)
        if found is not None:
            return lay_on_new_nodes(found, evidence.trained, evidence.placement, evidence.last_step)
    if evidence.srun_status == 0:
        message = "srun returned 0, but there is no end record: it is not known how the training ended"
    elif evidence.job_signal is not None:
        killer = signal.Signals(evidence.job_signal).name
        message = f"the job was ended by {killer}; by whom is not known"
    else:
        message = "no evidence tells how the training ended"
    return _diagnosis(evidence, told, FailureClass.UNKNOWN, message, confidence="low")


def _ended(evidence: Evidence, told: LogVerdict | None) -> Diagnosis | None:
    """Ends that nothing else can overrule."""
    end, failure = evidence.end, evidence.failure
    if end is not None and end.kind == "reached":
        if end.step < evidence.target_steps:
            message = (
                f"the program says that its target was reached at step {end.step}, but it was launched to train to "
                f"step {evidence.target_steps}"
            )
            hint = "let the program train to the recipe's training.tokens, or set those to what it trains to"
            return _diagnosis(evidence, told, FailureClass.CONFIG, message, hint=hint)
        message = f"the target was reached at step {end.step}"
        return _diagnosis(evidence, told, FailureClass.FINISHED, message)
    if (end is not None and end.kind == "fenced") or (failure is not None and failure.status == ExitCode.FENCED):
        return _diagnosis(
            evidence, told, FailureClass.FENCED, "a newer attempt or restart owns the run; nothing was saved"
        )
    return None


def _cancelled(evidence: Evidence, told: LogVerdict | None) -> Diagnosis | None:
    # By uid alone our own scancel looks like the user's; only our own event tells them apart.
    if evidence.cancelled_by_us:
        return None
    if evidence.job_class is JobClass.USER_CANCEL:
        return _diagnosis(evidence, told, FailureClass.USER_CANCEL, "the user cancelled the job")
    if evidence.job_class is JobClass.CANCELLED:
        message = "the job was cancelled, by whom is not known: taken as a person's wish"
        return _diagnosis(evidence, told, FailureClass.USER_CANCEL, message, confidence="low")
    if evidence.job_class is JobClass.ADMIN_CANCEL:
        return _diagnosis(evidence, told, FailureClass.ADMIN_CANCEL, "an administrator cancelled the job")
    return None


def _asked(evidence: Evidence) -> str:
    """Why the ranks were asked to save and leave, empty if they were not.

    A program that saved and left wrote the reason of the request that it obeyed into its end record.
    """
    end, request = evidence.end, evidence.request
    sent = request.reason if request is not None and request.action == "save_and_exit" else ""
    obeyed = end.reason if end is not None and end.kind == "checkpointed" else ""
    if "stop" in {sent, obeyed}:
        return "stop"
    return obeyed if obeyed in {"time_limit", "preempted"} else sent


def _stopped(evidence: Evidence, told: LogVerdict | None) -> Diagnosis | None:
    """A person asked for the stop: whatever happened to the save, nothing goes on by itself."""
    end = evidence.end
    if _asked(evidence) != "stop" or (end is not None and end.kind == "diverged"):
        return None
    saved = end is not None and end.kind == "checkpointed"
    what = f"saved at step {end.step} and stopped" if end is not None and saved else "stopped before it had saved"
    return _diagnosis(evidence, told, FailureClass.STOPPED, f"{what}, as was asked")


def _saved(evidence: Evidence, told: LogVerdict | None) -> Diagnosis | None:
    """Ends in good order."""
    end = evidence.end
    if end is not None and end.kind == "diverged":
        return _diagnosis(evidence, told, FailureClass.DIVERGENCE, end.reason or "the loss is NaN or Inf")
    if end is None or end.kind != "checkpointed":
        return None
    asked = _asked(evidence)
    saved = f"saved at step {end.step}"
    if asked == "time_limit" or evidence.job_class is JobClass.TIME_LIMIT:
        return _diagnosis(evidence, told, FailureClass.TIME_LIMIT, f"{saved} before the time limit")
    if asked == "preempted" or evidence.job_class in (JobClass.PREEMPTED, JobClass.REQUEUED):
        return _diagnosis(evidence, told, FailureClass.PREEMPTED, f"{saved} before the nodes were taken")
    message = f"{saved} and left ({asked or end.reason or 'no reason given'})"
    return _diagnosis(evidence, told, FailureClass.CHECKPOINTED, message)


def _outside(evidence: Evidence, told: LogVerdict | None) -> Diagnosis | None:
    """What came from outside the program."""
    job = evidence.job_class
    named = told.nodes if told is not None else ()
    same = told.kind if told is not None and not told.weak else None
    if evidence.dead_nodes:
        lost = ", ".join(f"{node} ({how})" for node, how in sorted(evidence.dead_nodes.items()))
        nodes = tuple(sorted(evidence.dead_nodes))
        return _diagnosis(evidence, told, FailureClass.NODE_FAILURE, f"lost {lost}", nodes=nodes)
    if job is JobClass.NODE_FAILURE:
        nodes = named if same is FailureClass.NODE_FAILURE else ()
        return _diagnosis(evidence, told, FailureClass.NODE_FAILURE, "Slurm says that a node failed", nodes=nodes)
    if job in (JobClass.BOOT_FAILURE, JobClass.LAUNCH_FAILURE):
        return _diagnosis(evidence, told, FailureClass.BOOT_FAILURE, "the nodes of the job did not come up")
    if job is JobClass.HOST_OOM:
        nodes = named if same is FailureClass.HOST_OOM else ()
        return _diagnosis(evidence, told, FailureClass.HOST_OOM, "the host's memory ran out", nodes=nodes)
    if job is JobClass.TIME_LIMIT:
        message = "the time limit was reached before a save was done"
        return _diagnosis(evidence, told, FailureClass.TIME_LIMIT, message)
    if job is JobClass.DEADLINE:
        message = "the deadline that the job was given has passed"
        return _diagnosis(evidence, told, FailureClass.TIME_LIMIT, message, lasting=True)
    if job in (JobClass.PREEMPTED, JobClass.REQUEUED):
        message = "the nodes were taken before a save was done"
        return _diagnosis(evidence, told, FailureClass.PREEMPTED, message)
    return None


def _by_itself(evidence: Evidence, told: LogVerdict | None) -> Diagnosis | None:
    """What the program did, by its log, its first bad task and its own end record."""
    failure, end = evidence.failure, evidence.end
    if failure is not None and failure.status == ExitCode.DIVERGED:
        return _diagnosis(evidence, told, FailureClass.DIVERGENCE, "the loss is NaN or Inf")
    failed = failure is not None or (end is not None and end.kind == "failed")
    # A run folder that takes no file takes no record of the first bad task either; srun saw one end with this status.
    # From 129 to 192 it is a signal, which may be Slurm's own; 255 is a program's too.
    status = evidence.srun_status or 0
    failed = failed or 0 < status < 128 or status > 192 or _left_others(evidence)
    if told is not None and told.weight == "root":
        # Programs print errors that they survive; Slurm prints its lines only when it acts.
        if not failed and not evidence.hang and told.kind not in _SLURM_PRINTS:
            message = f"it is not known how the training ended, but the log says: {told.line}"
            return _diagnosis(evidence, told, FailureClass.UNKNOWN, message, confidence="low")
        return _from_log(evidence, told)
    gone = _left(evidence, told)
    if gone is not None:
        return gone
    if evidence.hang:
        return _diagnosis(evidence, told, FailureClass.HANG, evidence.hang)
    if _asked(evidence) == "time_limit":
        message = "the time limit came before the save that was asked for was done"
        return _diagnosis(evidence, told, FailureClass.TIME_LIMIT, message)
    if _asked(evidence) == "terminated" and (told is None or told.weight == "echo"):
        # Where a host is shut down, or a job ends, the sruns are told to end too: the ranks die of that.
        message = "the job's processes were told to end (SIGTERM) before the save that was asked for was done"
        return _diagnosis(evidence, told, FailureClass.UNKNOWN, message, confidence="low")
    # That a job was cancelled is Slurm's to say: a step that we end ourselves prints nearly the same.
    if failed and told is not None and told.weight == "symptom" and told.kind is not FailureClass.USER_CANCEL:
        return _from_log(evidence, told)
    return _program_failed(evidence, told)


def _left_others(evidence: Evidence) -> bool:
    """Whether a task ended well before the training did, unasked, and before any task failed. Where all have left, srun
    has returned 0, and nobody was left behind."""
    if evidence.end is not None or evidence.left is None or evidence.srun_status == 0 or _asked(evidence):
        return False
    return evidence.failure is None or evidence.left.time < evidence.failure.time


def _left(evidence: Evidence, told: LogVerdict | None) -> Diagnosis | None:
    """A rank that is not there any more is an end of the program, and no hang of the others or of its node."""
    stuck, left = evidence.stuck, evidence.left
    when = "before its first step" if evidence.last_step is None else f"after step {evidence.last_step}"
    ranks: tuple[int, ...]
    if left is not None and _left_others(evidence):
        ranks, who = (left.rank,), f"rank {left.rank} left with status {left.status}"
    elif stuck is not None and stuck.gone and evidence.end is None:  # a failure comes of our own kill
        ranks, who = stuck.ranks, f"{show_ranks(stuck.ranks)} left without a word"
    else:
        return None
    message = f"{who} {when}, without an end record"
    if told is not None and told.weight == "error":
        message += f": {told.line}"
    facts = (*facts_of(evidence), *log_facts(evidence, told, FailureClass.APPLICATION_ERROR))
    hint = (
        "see why the program ends there: rank 0 writes the end record when all ranks are done, and Slurm ends the "
        "others a minute after the first"
    )
    return Diagnosis(FailureClass.APPLICATION_ERROR.value, message, (), ranks, facts, "medium", hint=hint)


def _program_failed(evidence: Evidence, told: LogVerdict | None) -> Diagnosis | None:
    failure, end = evidence.failure, evidence.end
    when = "before its first step" if evidence.last_step is None else f"after step {evidence.last_step}"
    raised = told.line if told is not None and told.weight == "error" else ""
    if end is not None and end.kind == "failed":
        message = f"the program failed {when}: {end.reason or raised or 'no reason given'}"
        return _diagnosis(evidence, told, FailureClass.APPLICATION_ERROR, message, confidence="medium")
    if failure is None:
        return None
    who = f"rank {failure.rank} on {failure.node}"
    killed = failure.status - 128
    if killed in (signal.SIGKILL, signal.SIGTERM):
        message = f"{who} was ended by {signal.Signals(killed).name} {when}; by whom is not known"
        return _diagnosis(evidence, told, FailureClass.UNKNOWN, message, confidence="low")
    if failure.status in (ExitCode.REACHED, ExitCode.CHECKPOINTED):
        return None
    message = f"{who} ended with status {failure.status} {when}"
    if raised:
        message += f": {raised}"
    elif told is not None:
        what = "what was survived or dealt with" if told.weak else "a consequence"
        message += f"; the log shows only {what}: {told.line}"
    confidence: Confidence = "medium" if raised else "low"
    return _diagnosis(evidence, told, FailureClass.APPLICATION_ERROR, message, confidence=confidence)


def _from_log(evidence: Evidence, told: LogVerdict) -> Diagnosis:
    return _diagnosis(
        evidence,
        told,
        told.kind,
        told.message,
        nodes=told.nodes,
        confidence=told.confidence,
        lasting=told.lasting,
        hint=told.hint,
    )


def _diagnosis(
    evidence: Evidence,
    told: LogVerdict | None,
    kind: FailureClass,
    message: str,
    *,
    nodes: tuple[str, ...] = (),
    confidence: Confidence = "high",
    lasting: bool = False,
    hint: str = "",
) -> Diagnosis:
    ranks: tuple[int, ...] = ()
    if kind not in BLAMES_NO_RANK:
        ranks = told.ranks if told is not None and told.weight != "echo" else ()
        # The first bad task of a hang is one that we killed ourselves.
        hung = kind is FailureClass.HANG and evidence.stuck is not None
        if hung and evidence.stuck is not None and evidence.stuck.ranks:
            ranks, nodes = evidence.stuck.ranks, evidence.stuck.nodes
        if not ranks and not hung and evidence.failure is not None:
            ranks, nodes = (evidence.failure.rank,), nodes or (evidence.failure.node,)
        nodes = nodes or evidence.placement.nodes_of(ranks)
        if kind is FailureClass.DIVERGENCE and (told is None or told.kind is not kind):
            ranks = ()  # who ends first is not who saw it first
        spread = evidence.spread if told is not None and told.kind is kind else Spread()
        nodes, ranks = blamed(kind, nodes, ranks, spread, evidence.placement)
    facts = (*facts_of(evidence), *log_facts(evidence, told, kind))
    return Diagnosis(kind.value, message, nodes, ranks, facts, confidence, lasting, hint)
