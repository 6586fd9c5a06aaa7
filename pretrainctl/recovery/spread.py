"""Who shows an error: one node alone, or ranks of several, which no single node explains."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pretrainctl.recovery.log_lines import ranks_in, split
from pretrainctl.recovery.log_reading import Finding
from pretrainctl.recovery.log_verdict import LogVerdict
from pretrainctl.recovery.placement import Placement
from pretrainctl.recovery.policies import FailureClass

__all__ = ["BLAMES_NO_RANK", "Spread", "blamed", "raised", "read_spread", "settle"]

_ENOUGH = 1000
"""Lines after which more of them say nothing new: a cascade prints millions."""
_RAISED = re.compile(r"([A-Za-z_]\w*(?:Error|Exception|Iteration|Interrupt))\b")
_BLAMES_NO_NODE = {
    FailureClass.CONFIG,
    FailureClass.DIVERGENCE,
    FailureClass.CHECKPOINT_INCOMPLETE,
    FailureClass.CHECKPOINT_WORLD_SIZE,
}
"""Classes that come from settings, numbers and files that all nodes share."""
BLAMES_NO_RANK = {
    FailureClass.FINISHED,
    FailureClass.CHECKPOINTED,
    FailureClass.STOPPED,
    FailureClass.TIME_LIMIT,
    FailureClass.PREEMPTED,
    FailureClass.NODE_FAILURE,
    FailureClass.BOOT_FAILURE,
    FailureClass.USER_CANCEL,
    FailureClass.ADMIN_CANCEL,
    FailureClass.FENCED,
}
"""Classes that come over all ranks, or are no fault."""
_OF_THE_MACHINE = {FailureClass.GPU_HARDWARE, FailureClass.FABRIC, FailureClass.FILESYSTEM}
_TOLD_OTHERWISE = {
    FailureClass.NODE_FAILURE,
    FailureClass.BOOT_FAILURE,
    FailureClass.HOST_OOM,
    FailureClass.COLLECTIVE_TIMEOUT,
    FailureClass.HANG,
}
"""Classes whose nodes Slurm, the watch or the ranks that waited name: several, where several are meant."""


@dataclass(frozen=True)
class Spread:
    """Where lines that say the same stand: `ranks` and `nodes` that print it, and lines `unnamed` that tell neither."""

    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    unnamed: int = 0

    @property
    def on_several_nodes(self) -> bool:
        """Whether lines of more than one node surely show it."""
        return len(self.nodes) > 1

    def is_wide(self, placement: Placement) -> bool:
        """Whether more than one node shows it, or lines that tell no node may be of several.

        Where the job has one node only, that it shows it tells nothing.
        """
        if self.on_several_nodes:
            return True
        several = len(self.ranks) + self.unnamed > 1
        return several and (not self.nodes or self.unnamed > 0 or len(placement.nodes) == 1)


def read_spread(lines: Iterable[tuple[str, int | None]], cause: Finding, placement: Placement) -> Spread:
    """Where lines, each with the rank of its file (None for a file of all ranks), say the same as `cause`."""
    ranks: dict[int, None] = {}
    nodes: dict[str, None] = {}
    unnamed = 0
    for raw, of_file in lines:
        line = split(raw)
        match = cause.signature.pattern.search(line.text)
        if match is None or (cause.signature.weight == "error" and raised(line.text) != raised(cause.line)):
            continue
        named = match.groupdict()
        said = ranks_in(named.get("rank"))
        rank = said[0] if said else line.rank if line.rank is not None else of_file
        node = next(iter(placement.named([word for word in (named.get("node") or line.node,) if word])), None)
        node = node or (placement.node_of(rank) if rank is not None else None)
        if rank is not None:
            ranks.setdefault(rank)
        if node is not None:
            nodes.setdefault(node)
        unnamed += rank is None and node is None
        if len(nodes) > 1 or unnamed > _ENOUGH:
            break
    return Spread(tuple(sorted(ranks)), tuple(nodes), unnamed)


def settle(told: LogVerdict | None, spread: Spread) -> LogVerdict | None:
    """The verdict with the class that it has where one node of several shows it."""
    if told is None or told.if_alone is None or spread.on_several_nodes:
        return told
    return replace(told, kind=told.if_alone, if_alone=None)


def blamed(
    kind: FailureClass, nodes: tuple[str, ...], ranks: tuple[int, ...], spread: Spread, placement: Placement
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The nodes and ranks to name: none where ranks of several nodes show the same, which no node explains."""
    # One rank with a broken GPU says so several times, and its log may not say which rank it is.
    wide = spread.on_several_nodes if kind in _OF_THE_MACHINE else spread.is_wide(placement)
    if wide and kind not in _TOLD_OTHERWISE:
        return (), ()
    return (() if kind in _BLAMES_NO_NODE else nodes), (() if kind in BLAMES_NO_RANK else ranks)


def raised(text: str) -> str:
    """The name of the exception that a line tells, "" where it tells none."""
    found = _RAISED.search(text)
    return found[1] if found else ""
