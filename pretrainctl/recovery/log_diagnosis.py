"""Why the training ended, from logs alone: no run folder, no word of Slurm."""

from __future__ import annotations

from pretrainctl.records.run import Diagnosis
from pretrainctl.recovery.log_reading import LogReading
from pretrainctl.recovery.log_verdict import read_verdict
from pretrainctl.recovery.placement import Placement
from pretrainctl.recovery.policies import FailureClass
from pretrainctl.recovery.spread import Spread, blamed, settle
from pretrainctl.recovery.standing import Standing

__all__ = ["diagnose_log"]


def diagnose_log(log: LogReading, placement: Placement, spread: Spread | None = None) -> Diagnosis:
    """Why it ended, where a person says that it ended badly; `spread`: who printed the cause."""
    told = settle(read_verdict(log, placement), spread or Spread())
    done = log.done()
    if done is not None and (told is None or told.weak or told.weight == "echo" or told.standing is Standing.EARLIER):
        message = f"the log says that the training is done: {done.line}"
        return Diagnosis(FailureClass.FINISHED.value, message, evidence=(done.shown,), confidence="medium")
    if told is None:
        faint = tuple(f"{one.place}{one.line}" for one in log.faint()[:1])
        message = "no line of the log says why it ended"
        return Diagnosis(FailureClass.UNKNOWN.value, message, evidence=faint, confidence="low")
    if told.killed:
        return Diagnosis(told.kind.value, told.message, told.nodes, told.ranks, told.evidence, "low", hint=told.hint)
    if told.weight == "echo" or told.standing is Standing.PASSING:
        message = f"no line of the log says why it ended; what it survived or only quotes: {told.line}"
        if told.weight == "echo":
            message = f"the log shows only consequences of something else: {told.line}"
        return Diagnosis(FailureClass.UNKNOWN.value, message, evidence=told.evidence, confidence="low")
    nodes, ranks = blamed(told.kind, told.nodes, told.ranks, spread or Spread(), placement)
    return Diagnosis(
        told.kind.value,
        told.message,
        nodes,
        ranks,
        told.evidence,
        told.confidence,
        told.lasting,
        told.hint,
    )
