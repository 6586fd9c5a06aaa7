"""Why a start of the training program, or an attempt, ended: evidence in, exactly one class out.

What is believed, in this order: the end record (written by rank 0 after a barrier of all ranks), what the
watch of the nodes and Slurm say, the log, the first bad task. The exit status of srun only supports them:
srun was seen to return 0 after a node failure. Without any of these the class is *unknown*, which is neither
success nor failure.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pretrainctl.records.contract import End, ExitCode, Failure, Request
from pretrainctl.records.job import JobClass
from pretrainctl.records.run import Diagnosis
from pretrainctl.recovery.signatures import Finding, find_cause

__all__ = ["Evidence", "FailureClass", "diagnose"]


class FailureClass(str, Enum):
    """How something ended; the value is `Diagnosis.failure_class`."""

    FINISHED = "finished"
    CHECKPOINTED = "checkpointed"
    """Saved and left, nobody says why: most likely a signal to the ranks."""
    STOPPED = "stopped"
    """A person asked for it (`stop --save`)."""
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    NODE_FAILURE = "node_failure"
    HOST_OOM = "host_oom"
    DIVERGENCE = "divergence"
    CONFIG = "config"
    APPLICATION_ERROR = "application_error"
    FILE_SYSTEM = "file_system"
    """Full, or over quota: it stays so until a person acts."""
    CHECKPOINT_INCOMPLETE = "checkpoint_incomplete"
    HANG = "hang"
    USER_CANCEL = "user_cancel"
    ADMIN_CANCEL = "admin_cancel"
    FENCED = "fenced"
    UNKNOWN = "unknown"


_SLURM_SAYS = {
    FailureClass.TIME_LIMIT,
    FailureClass.PREEMPTED,
    FailureClass.NODE_FAILURE,
    FailureClass.HOST_OOM,
}
_BLAMES_RANKS = {
    FailureClass.HOST_OOM,
    FailureClass.DIVERGENCE,
    FailureClass.CONFIG,
    FailureClass.APPLICATION_ERROR,
    FailureClass.FILE_SYSTEM,
    FailureClass.CHECKPOINT_INCOMPLETE,
    FailureClass.UNKNOWN,
}


@dataclass(frozen=True)
class Evidence:
    """All that is known about an end; leave out what is not known.

    `srun_status`: exit status of the training srun, negative for a signal, None where it has not returned.
    `dead_nodes`: name to how it was noticed. `job_class`: Slurm's word on the job, for one that is over.
    `cancelled_by_us`: why our own program cancelled the job or its Slurm step, empty if it did not.
    `signals`: names of signals that the attempt received. `request`: the last request sent to the ranks.
    `hang`: what the watch of the progress saw, empty if nothing. `start_step` is the step it resumed from,
    `last_step` the last optimizer step it did, None where it did none. `log_tail`: last lines, oldest first.
    """

    srun_status: int | None = None
    end: End | None = None
    failure: Failure | None = None
    dead_nodes: Mapping[str, str] = field(default_factory=dict)
    job_class: JobClass | None = None
    cancelled_by_us: str = ""
    signals: tuple[str, ...] = ()
    request: Request | None = None
    hang: str = ""
    start_step: int = 0
    last_step: int | None = None
    log_tail: tuple[str, ...] = ()


def diagnose(evidence: Evidence) -> Diagnosis:
    """The one class that the evidence supports, where, and which facts say so."""
    cause = find_cause(evidence.log_tail, stepped=evidence.last_step is not None)
    for rule in (_ended, _cancelled, _stopped, _saved, _outside, _by_itself):
        found = rule(evidence, cause)
        if found is not None:
            return found
    if evidence.srun_status == 0:
        message = "srun returned 0, but there is no end record: it is not known how the training ended"
    else:
        message = "no evidence tells how the training ended"
    return _diagnosis(evidence, cause, FailureClass.UNKNOWN, message)


def _ended(evidence: Evidence, cause: Finding | None) -> Diagnosis | None:
    """Ends that nothing else can overrule."""
    end, failure = evidence.end, evidence.failure
    if end is not None and end.kind == "reached":
        message = f"the target was reached at step {end.step}"
        return _diagnosis(evidence, cause, FailureClass.FINISHED, message)
    if (end is not None and end.kind == "fenced") or (failure is not None and failure.status == ExitCode.FENCED):
        return _diagnosis(
            evidence, cause, FailureClass.FENCED, "a newer attempt or restart owns the run; nothing was saved"
        )
    return None


def _cancelled(evidence: Evidence, cause: Finding | None) -> Diagnosis | None:
    # By uid alone our own scancel looks like the user's; only our own event tells them apart.
    if evidence.cancelled_by_us:
        return None
    if evidence.job_class is JobClass.USER_CANCEL:
        return _diagnosis(evidence, cause, FailureClass.USER_CANCEL, "the user cancelled the job")
    if evidence.job_class is JobClass.CANCELLED:
        message = "the job was cancelled, by whom is not known: taken as a person's wish"
        return _diagnosis(evidence, cause, FailureClass.USER_CANCEL, message)
    if evidence.job_class is JobClass.ADMIN_CANCEL:
        return _diagnosis(evidence, cause, FailureClass.ADMIN_CANCEL, "an administrator cancelled the job")
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


def _stopped(evidence: Evidence, cause: Finding | None) -> Diagnosis | None:
    """A person asked for the stop: whatever happened to the save, nothing goes on by itself."""
    end = evidence.end
    if _asked(evidence) != "stop" or (end is not None and end.kind == "diverged"):
        return None
    saved = end is not None and end.kind == "checkpointed"
    what = f"saved at step {end.step} and stopped" if end is not None and saved else "stopped before it had saved"
    return _diagnosis(evidence, cause, FailureClass.STOPPED, f"{what}, as was asked")


def _saved(evidence: Evidence, cause: Finding | None) -> Diagnosis | None:
    """Ends in good order."""
    end = evidence.end
    if end is not None and end.kind == "diverged":
        return _diagnosis(evidence, cause, FailureClass.DIVERGENCE, end.reason or "the loss is NaN or Inf")
    if end is None or end.kind != "checkpointed":
        return None
    asked = _asked(evidence)
    saved = f"saved at step {end.step}"
    if asked == "time_limit" or evidence.job_class is JobClass.TIME_LIMIT:
        return _diagnosis(evidence, cause, FailureClass.TIME_LIMIT, f"{saved} before the time limit")
    if asked == "preempted" or evidence.job_class in (JobClass.PREEMPTED, JobClass.REQUEUED):
        return _diagnosis(evidence, cause, FailureClass.PREEMPTED, f"{saved} before the nodes were taken")
    message = f"{saved} and left ({asked or end.reason or 'no reason given'})"
    return _diagnosis(evidence, cause, FailureClass.CHECKPOINTED, message)


def _outside(evidence: Evidence, cause: Finding | None) -> Diagnosis | None:
    """What came from outside the program."""
    job = evidence.job_class
    if evidence.dead_nodes:
        told = ", ".join(f"{node} ({how})" for node, how in sorted(evidence.dead_nodes.items()))
        return _diagnosis(
            evidence,
            cause,
            FailureClass.NODE_FAILURE,
            f"lost {told}",
            nodes=tuple(sorted(evidence.dead_nodes)),
        )
    if job in (JobClass.NODE_FAILURE, JobClass.BOOT_FAILURE):
        named = cause.nodes if cause is not None and cause.signature.failure_class == "node_failure" else ()
        return _diagnosis(evidence, cause, FailureClass.NODE_FAILURE, "Slurm says that a node failed", nodes=named)
    if job is JobClass.HOST_OOM:
        return _diagnosis(evidence, cause, FailureClass.HOST_OOM, "the host's memory ran out")
    if job in (JobClass.TIME_LIMIT, JobClass.DEADLINE):
        message = "the time limit was reached before a save was done"
        return _diagnosis(evidence, cause, FailureClass.TIME_LIMIT, message)
    if job in (JobClass.PREEMPTED, JobClass.REQUEUED):
        message = "the nodes were taken before a save was done"
        return _diagnosis(evidence, cause, FailureClass.PREEMPTED, message)
    return None


def _by_itself(evidence: Evidence, cause: Finding | None) -> Diagnosis | None:
    """What the program did, by its log, its first bad task and its own end record."""
    failure, end = evidence.failure, evidence.end
    if failure is not None and failure.status == ExitCode.DIVERGED:
        return _diagnosis(evidence, cause, FailureClass.DIVERGENCE, "the loss is NaN or Inf")
    proven = failure is not None or (end is not None and end.kind == "failed")
    if cause is not None and cause.signature.weight == "root":
        kind = FailureClass(cause.signature.failure_class)
        # Programs print errors that they survive; Slurm prints its lines only when it acts.
        if not proven and kind not in _SLURM_SAYS:
            message = f"it is not known how the training ended, but the log says: {cause.line}"
            return _diagnosis(evidence, cause, FailureClass.UNKNOWN, message)
        return _diagnosis(evidence, cause, kind, f"{cause.signature.meaning}: {cause.line}", nodes=cause.nodes)
    if evidence.hang:
        return _diagnosis(evidence, cause, FailureClass.HANG, evidence.hang)
    if _asked(evidence) == "time_limit":
        message = "the time limit came before the save that was asked for was done"
        return _diagnosis(evidence, cause, FailureClass.TIME_LIMIT, message)
    when = "before its first step" if evidence.last_step is None else f"after step {evidence.last_step}"
    raised = cause.line if cause is not None and cause.signature.weight == "error" else ""
    if end is not None and end.kind == "failed":
        message = f"the program failed {when}: {end.reason or raised or 'no reason given'}"
        return _diagnosis(evidence, cause, FailureClass.APPLICATION_ERROR, message)
    if failure is None:
        return None
    who = f"rank {failure.rank} on {failure.node}"
    killed = failure.status - 128
    if killed in (signal.SIGKILL, signal.SIGTERM):
        message = f"{who} was ended by {signal.Signals(killed).name} {when}; by whom is not known"
        return _diagnosis(evidence, cause, FailureClass.UNKNOWN, message)
    if failure.status in (ExitCode.REACHED, ExitCode.CHECKPOINTED):
        return None
    message = f"{who} ended with status {failure.status} {when}" + (f": {raised}" if raised else "")
    return _diagnosis(evidence, cause, FailureClass.APPLICATION_ERROR, message)


def _diagnosis(
    evidence: Evidence,
    cause: Finding | None,
    kind: FailureClass,
    message: str,
    *,
    nodes: tuple[str, ...] = (),
) -> Diagnosis:
    facts = []
    if evidence.end is not None:
        facts.append(f"end record: {evidence.end.kind} at step {evidence.end.step}")
    facts += [f"node {node}: {how}" for node, how in sorted(evidence.dead_nodes.items())]
    if evidence.job_class is not None:
        facts.append(f"Slurm: {evidence.job_class.value}")
    if evidence.failure is not None:
        failure = evidence.failure
        facts.append(f"first bad task: rank {failure.rank} on {failure.node}, status {failure.status}")
    if evidence.srun_status is not None:
        facts.append(f"srun status {evidence.srun_status} (a hint only)")
    facts += [f"signal {name} received" for name in evidence.signals]
    if evidence.request is not None:
        facts.append(f"request sent: {evidence.request.action} ({evidence.request.reason})")
    if evidence.cancelled_by_us:
        facts.append(f"cancelled by ourselves: {evidence.cancelled_by_us}")
    if cause is not None:
        facts.append(f"log{' (a consequence)' if cause.signature.weight == 'echo' else ''}: {cause.line}")
    ranks: tuple[int, ...] = ()
    if kind in _BLAMES_RANKS:
        ranks = cause.ranks if cause is not None else ()
        if not ranks and evidence.failure is not None:
            ranks = (evidence.failure.rank,)
    return Diagnosis(kind.value, message, nodes, ranks, tuple(facts))
