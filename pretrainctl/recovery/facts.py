"""What is known of an end, line by line, as people are shown it under a diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pretrainctl.recovery.log_verdict import CONSEQUENCE
from pretrainctl.recovery.policies import FailureClass

if TYPE_CHECKING:
    from pretrainctl.recovery.diagnosis import Evidence
    from pretrainctl.recovery.log_verdict import LogVerdict

__all__ = ["SURVIVED", "facts_of", "log_facts"]

SURVIVED = "(survived) "
"""Marks a line of the evidence, after the place where it stands."""


def _is_in_good_order(evidence: Evidence) -> bool:
    """The end record says how it ended: what tasks and srun print while they leave adds nothing."""
    return evidence.end is not None and evidence.end.kind in {"reached", "checkpointed"}


def log_facts(evidence: Evidence, told: LogVerdict | None, kind: FailureClass) -> list[str]:
    """What the log adds to a diagnosis of this kind; nothing to an end in good order."""
    wished = kind in {FailureClass.STOPPED, FailureClass.USER_CANCEL}
    if told is None or _is_in_good_order(evidence) or (wished and told.weight == "echo"):
        return []
    mark = SURVIVED if told.weak else CONSEQUENCE if told.weight == "echo" else ""
    first, *more = told.evidence
    return [f"log: {told.place}{mark}{first.removeprefix(told.place)}", *(f"log: {line}" for line in more)]


def facts_of(evidence: Evidence) -> list[str]:
    """What records, Slurm and the watch of the nodes say."""
    facts = []
    if evidence.end is not None:
        facts.append(f"end record: {evidence.end.kind} at step {evidence.end.step}")
    facts += [f"node {node}: {how}" for node, how in sorted(evidence.dead_nodes.items())]
    if evidence.job_class is not None:
        printed = f" ({evidence.job_state})" if evidence.job_state else ""
        facts.append(f"Slurm: {evidence.job_class.value}{printed}")
    failure = None if _is_in_good_order(evidence) else evidence.failure
    if failure is not None:
        facts.append(f"first bad task: rank {failure.rank} on {failure.node}, status {failure.status}")
    if evidence.left is not None and evidence.end is None:
        facts.append(f"first task that left: rank {evidence.left.rank}, status {evidence.left.status}")
    if evidence.srun_status is not None and not _is_in_good_order(evidence):
        facts.append(f"srun status {evidence.srun_status} (a hint only)")
    facts += evidence.stuck.facts if evidence.stuck is not None else ()
    facts += [f"signal {name} received" for name in evidence.signals]
    if evidence.request is not None:
        facts.append(f"request sent: {evidence.request.action} ({evidence.request.reason})")
    if evidence.cancelled_by_us:
        facts.append(f"cancelled by ourselves: {evidence.cancelled_by_us}")
    return facts
