"""Ranks that waited in vain: what their watchdogs print tells who was waited for.

A watchdog fires on the ranks that wait. The culprit is a rank that does not report, or that reports an older
operation than the others.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Collectives", "Suspects"]

_WAIT = re.compile(r"WorkNCCL\((?:SeqNum=(?P<seq>\d+), *)?OpType=(?P<op>\w+)?.*?\) ran for (?P<ran>\d+) milliseconds")
_LONGEST_SILENCE = 64
"""Silent ranks that are named. Where more are silent, or more than have spoken, the log is not whole, or the ranks
belong to another group: then silence says nothing."""


@dataclass(frozen=True)
class Suspects:
    """`waiting` at operation `seq`, `behind` at an older one, `silent` not heard of; `began` is when it stood still."""

    seq: int
    operation: str
    waiting: tuple[int, ...]
    behind: tuple[int, ...]
    silent: tuple[int, ...]
    began: float | None

    @property
    def ranks(self) -> tuple[int, ...]:
        """Who may be the culprit, the likeliest first."""
        return (*self.silent, *self.behind)


@dataclass
class Collectives:
    """What watchdogs have said so far: the oldest operation of each rank, and the first time that one fired."""

    reports: dict[int, tuple[int, str]] = field(default_factory=dict)
    fired: float | None = None
    ran: float = 0.0

    def add(self, rank: int | None, text: str, time: float | None) -> None:
        """Take the line of a watchdog; one that names no operation or no rank is passed over."""
        match = _WAIT.search(text)
        if match is None or rank is None:
            return
        report = (int(match["seq"] or 0), match["op"] or "")
        if rank not in self.reports or report < self.reports[rank]:
            self.reports[rank] = report
        seconds = int(match["ran"]) / 1000
        if not self.ran or seconds < self.ran:
            # A watchdog that was stuck itself tells far too much; the least is the time-out.
            self.ran = seconds
        if time is not None and (self.fired is None or time < self.fired):
            self.fired = time

    def suspects(self, world_size: int | None) -> Suspects | None:
        """Who waited for whom, None where no watchdog fired.

        Without `world_size` there are as many ranks as the highest that spoke.
        """
        if not self.reports:
            return None
        seq, operation = Counter(self.reports.values()).most_common(1)[0][0]
        size = max(world_size or 0, max(self.reports) + 1)
        silent = tuple(rank for rank in range(size) if rank not in self.reports)
        return Suspects(
            seq=seq,
            operation=operation,
            waiting=tuple(sorted(rank for rank, report in self.reports.items() if report[0] >= seq)),
            behind=tuple(sorted(rank for rank, report in self.reports.items() if report[0] < seq)),
            silent=silent if len(silent) <= min(len(self.reports), _LONGEST_SILENCE) else (),
            began=self.fired - self.ran if self.fired is not None else None,
        )
