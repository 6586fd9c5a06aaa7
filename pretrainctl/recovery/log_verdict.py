"""What the logs of an end say, in one verdict: class, nodes, ranks, and the lines that say so."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pretrainctl.records.contract import Failure
from pretrainctl.recovery.collective import Suspects
from pretrainctl.recovery.log_reading import Finding, LogReading
from pretrainctl.recovery.placement import Placement
from pretrainctl.recovery.policies import FailureClass
from pretrainctl.recovery.signatures import Confidence, Weight
from pretrainctl.recovery.signatures.consequences import KILLED
from pretrainctl.recovery.signatures.program import TRAINER
from pretrainctl.recovery.standing import Standing

__all__ = ["CONSEQUENCE", "LogVerdict", "read_verdict"]

_MORE_OF_THE_SAME = 3
_WEAK = {Standing.HANDLED, Standing.SURVIVED, Standing.PASSING}
_SIGNALS = 128
"""From here on an exit status tells a signal."""
_HINT = ": hint: "
_TASK_0 = re.compile(r"0\b")
_CONSEQUENCES = 2
CONSEQUENCE = "(a consequence) "
"""Marks a line of the evidence, after the place where it stands."""
_SEVERAL_NODES = {FailureClass.NODE_FAILURE, FailureClass.HOST_OOM}
"""Classes in which each line that fits may name another culprit; elsewhere the first line names it."""
_OF_ONE_NODE = {
    FailureClass.GPU_HARDWARE,
    FailureClass.GPU_OOM,
    FailureClass.HOST_OOM,
    FailureClass.FILESYSTEM,
    FailureClass.APPLICATION_ERROR,
}
"""Classes in which the first task that ends badly is likely the culprit's: the last resort, and a guess."""


@dataclass(frozen=True)
class LogVerdict:
    """The cause as the logs tell it; the fields are those of a Diagnosis. `weight` is that of the line it rests on.
    So is `standing`. `place` is where that line stands, `file:number: `. `if_alone`: the class where one of several
    nodes says so, and the others do not. `killed`: the first bad thing is that SIGKILL ended a task.
    """

    kind: FailureClass
    weight: Weight
    message: str
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    evidence: tuple[str, ...]
    line: str
    confidence: Confidence
    lasting: bool = False
    hint: str = ""
    standing: Standing = Standing.FIRM
    place: str = ""
    if_alone: FailureClass | None = None
    killed: bool = False

    @property
    def weak(self) -> bool:
        """The program dealt with it or went on after it: beside another fact it explains nothing."""
        return self.standing in _WEAK

    def is_last_word_of(self, failure: Failure | None) -> bool:
        """Whether the rank that failed said it: steps below it may be what other ranks still had in their buffers."""
        survived = self.standing is Standing.SURVIVED
        return survived and failure is not None and failure.rank in self.ranks and 0 < failure.status < _SIGNALS


def read_verdict(reading: LogReading, placement: Placement) -> LogVerdict | None:
    """The verdict, None where no line says anything."""
    cause = reading.cause()
    if cause is None:
        return None
    signature = cause.signature
    kind = FailureClass(signature.failure_class)
    suspects = reading.collectives.suspects(placement.ranks) if kind is FailureClass.COLLECTIVE_TIMEOUT else None
    # Who prints that it waited is not who was waited for, unless the words blame the rank that they name.
    waited = kind is FailureClass.COLLECTIVE_TIMEOUT and "rank" not in signature.pattern.groupindex
    ranks = suspects.ranks if suspects else () if waited else cause.ranks
    message = f"{signature.meaning}: {_describe(suspects) if suspects else cause.line}"
    nodes = _nodes(reading, cause, kind, ranks, placement)
    if_alone = FailureClass(signature.if_alone) if signature.if_alone else None
    killed = signature.meaning == KILLED
    if killed:
        nodes, ranks = _named_by_srun(cause, placement)
    ended_on = placement.named(reading.first_exit_on(ranks)) if not nodes else ()
    if if_alone is not None and not _is_alone(reading, nodes or ended_on, placement):
        if_alone = None
    guessed = ended_on if kind in _OF_ONE_NODE or if_alone is not None else ()
    return LogVerdict(
        kind=kind,
        weight=signature.weight,
        message=message,
        nodes=nodes or guessed,
        ranks=ranks,
        evidence=_evidence(reading, cause),
        line=cause.line,
        confidence=_confidence(reading, cause, guessed=bool(guessed)),
        lasting=signature.lasting,
        hint=signature.hint or _own_hint(reading, cause),
        standing=reading.standing(cause),
        place=cause.place,
        if_alone=if_alone,
        killed=killed,
    )


def _named_by_srun(cause: Finding, placement: Placement) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The node and the task of srun's line; no rank where it lists several."""
    match = cause.signature.pattern.search(cause.line)
    if match is None:
        return (), ()
    return placement.named((match["node"],)), (int(match["rank"]),) if match["rank"].isdigit() else ()


def _is_alone(reading: LogReading, nodes: Sequence[str], placement: Placement) -> bool:
    """Whether one node is named, and nothing says that the first node of the job ended as badly.

    Where the nodes of the job are not known, rank 0 would be among those that end, if all nodes were alike.
    """
    ended = reading.exits
    if len(nodes) != 1 or not set(placement.named(tuple(ended.values()))) <= set(nodes):
        return False
    return len(placement.nodes) > 1 or (bool(ended) and not any(_TASK_0.match(tasks) for tasks in ended))


def _confidence(reading: LogReading, cause: Finding, *, guessed: bool) -> Confidence:
    standing = reading.standing(cause)
    if standing in _WEAK:
        return "low"
    unsure = guessed or standing in {Standing.LINGERING, Standing.EARLIER} or not reading.is_order_known(cause)
    return "medium" if unsure and cause.signature.confidence == "high" else cause.signature.confidence


def _nodes(
    reading: LogReading, cause: Finding, kind: FailureClass, ranks: Sequence[int], placement: Placement
) -> tuple[str, ...]:
    """The culprit's node: as the lines name it, else where its rank lies; never a word that is no node of the job."""
    if cause.signature.weight == "echo" or kind is FailureClass.CONFIG:
        return ()
    several = placement.named(reading.nodes(kind.value, cause.standing)) if kind in _SEVERAL_NODES else ()
    return several or placement.named(cause.nodes) or placement.nodes_of(ranks)


def _evidence(reading: LogReading, cause: Finding) -> tuple[str, ...]:
    found = [
        one
        for one in reading.findings()
        if one.standing is (Standing.FIRM if one.signature.weight == "echo" else cause.standing)
    ]
    echoes = [one for one in found if one.signature.weight == "echo"]
    kind = cause.signature.failure_class
    again = [one for one in found if one is not cause and one not in echoes and one.signature.failure_class == kind]
    # Ranks that waited in vain after another error waited because of it.
    waited = [one for one in found if _waits(one) and not _waits(cause) and not _is_before(one, cause)]
    vague = [one for one in found if _is_vague(one) and not _is_vague(cause) and not _is_before(one, cause)]
    after = [one for one in found if one is not cause and (one in echoes or one in waited or one in vague)]
    count = reading.count(cause)
    lines = [f"{cause.place}{cause.line}" + (f" (and {count - 1} lines like it)" if count > 1 else "")]
    lines += [f"{one.place}{one.line}" for one in again[:_MORE_OF_THE_SAME]]
    lines += [f"{one.place}{CONSEQUENCE}{one.line}" for one in after[:_CONSEQUENCES]]
    lines += [f"{one.place}{one.line}" for one in reading.faint()[:1] if cause.signature.weight != "root"]
    return (*lines, *reading.starts(cause.file))


def _waits(found: Finding) -> bool:
    return found.signature.failure_class == FailureClass.COLLECTIVE_TIMEOUT.value


def _is_vague(found: Finding) -> bool:
    """An error that says only that something else went wrong."""
    signature = found.signature
    return signature.weight == "error" and signature.survivable and signature.failure_class == "unknown"


def _is_before(one: Finding, other: Finding) -> bool:
    """Whether a line was surely printed before another one: without times, files tell nothing of each other."""
    if one.file == other.file:
        return one.number < other.number
    return one.time is not None and other.time is not None and one.time < other.time


def _own_hint(reading: LogReading, cause: Finding) -> str:
    """What the reference trainer says below its error."""
    if cause.signature.source != TRAINER:
        return ""
    below = (one for one in reading.findings() if one.file == cause.file and one.number > cause.number)
    return next((one.line.partition(_HINT)[2] for one in below if one.signature.clue == _HINT), "")


def _describe(suspects: Suspects) -> str:
    since = ""
    if suspects.began is not None:
        since = f" since {dt.datetime.fromtimestamp(suspects.began, tz=dt.timezone.utc):%H:%M:%S}"
    said = [f"{_ranks(suspects.waiting)} waited in {suspects.operation} {suspects.seq}{since}"]
    if suspects.silent:
        said.append(f"{_ranks(suspects.silent)} never reported")
    if suspects.behind:
        said.append(f"{_ranks(suspects.behind)} had not come so far")
    return "; ".join(said)


def _ranks(ranks: Sequence[int]) -> str:
    shown = " ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
