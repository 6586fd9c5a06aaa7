"""Which line of the logs names the cause: lines in, one finding out, in bounded memory.

The earliest root wins, then the earliest error or symptom (of what scripts survive only where there is no other), then
the earliest echo. Times order lines between files where all of them tell one; else the files do, in the order in which
they were given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pretrainctl.recovery.collective import Collectives
from pretrainctl.recovery.log_lines import read_time, split
from pretrainctl.recovery.placement import Placement
from pretrainctl.recovery.signatures import SIGNATURES, Signature

__all__ = ["Finding", "LogReading", "find_cause"]

_TOLD_ANYWHERE = {"node_failure", "boot_failure", "time_limit", "preempted", "user_cancel", "collective_timeout"}
"""Classes whose lines Slurm, or ranks that wait, print on any node of the job: the one that printed it is not the
culprit."""
_MOST_NAMES = 4096
"""Nodes kept for a signature, and shapes of lines."""
_EACH_LINE_COUNTS = {"collective_timeout", "node_failure", "host_oom"}
"""Classes in which each line may name another culprit."""
_DIGITS = dict.fromkeys(map(ord, "0123456789"))
_NUMBERED = ("Errno", "Xid", "errno")
"""Words with which the numbers of a line tell what it means."""
_EXIT = re.compile(r"error: ([\w.-]+): tasks? ([\d,-]+): (?:Exited|Segmentation)")
"""How srun says that a task ended by itself; those that it says were killed or aborted followed another one."""
_HANG_SLACK = 60.0
"""Seconds before ranks began to wait in which an error may still be why."""


@dataclass(frozen=True)
class Finding:
    """A line that fits a signature. `nodes` and `ranks` only where the line itself names the culprit.

    `file` and `number` (from 1) say where it stands; `time` is its own or that of a line shortly before, in
    seconds to compare, None where there is none.
    """

    signature: Signature
    line: str
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    file: str = ""
    number: int = 0
    time: float | None = None

    @property
    def place(self) -> str:
        """`file:number: `, empty for a line of no file."""
        return f"{self.file}:{self.number}: " if self.file else ""


@dataclass
class _Tally:
    """The first finding of a signature in each file, and all nodes that it names."""

    firsts: dict[str, Finding] = field(default_factory=dict)
    count: int = 0
    nodes: dict[str, None] = field(default_factory=dict)


class LogReading:
    """What the logs of one end say. `stepped`: this start of the program did at least one optimizer step.

    `year` is that of times which tell none.
    """

    def __init__(self, *, stepped: bool = False, year: int = 2000) -> None:
        self.stepped = stepped
        self.year = year
        self.collectives = Collectives()
        self._tallies: dict[Signature, _Tally] = {}
        self._files: dict[str, int] = {}
        self._exits: dict[str, str] = {}
        self._shapes: dict[str, Signature | None] = {}

    def add(
        self,
        raw: str,
        *,
        file: str = "",
        number: int = 0,
        before: Callable[[], str] = str,
        rank: int | None = None,
        among: Placement | None = None,
    ) -> None:
        """Take a line; `before` gives text shortly before it, which may tell the time. `rank` is that of the file.

        A line that names a node which is none of `among` is not taken: it is of another start of the program.
        """
        signature = self._signature_of(raw)
        if signature is None or (among is not None and _is_elsewhere(signature, raw, among)):
            return
        tally = self._tallies.setdefault(signature, _Tally())
        tally.count += 1
        if file in tally.firsts and signature.failure_class not in _EACH_LINE_COUNTS and "task" not in raw:
            return
        line = split(raw)
        match = signature.pattern.search(line.text)
        named = match.groupdict() if match else {}
        blames = signature.weight != "echo"
        told_by_culprit = blames and signature.failure_class not in _TOLD_ANYWHERE
        node = named.get("node") or (line.node if told_by_culprit else None)
        who = named.get("rank")
        spoke = int(who) if who else line.rank if line.rank is not None else rank
        if signature.weight != "root" and len(self._exits) < _MOST_NAMES:
            self._exits |= {ended: node for node, ended in _EXIT.findall(line.text) if ended not in self._exits}
        if blames and node and len(tally.nodes) < _MOST_NAMES:
            tally.nodes.setdefault(node)
        waits = signature.failure_class == "collective_timeout"
        if file in tally.firsts and not waits:
            return
        time = read_time(line.text, self.year)
        if time is None:
            time = read_time(before(), self.year)
        if waits:
            self.collectives.add(spoke, line.text, time)
        self._files.setdefault(file, len(self._files))
        if file not in tally.firsts:
            ranks = (spoke,) if blames and spoke is not None else ()
            tally.firsts[file] = Finding(
                signature, line.text, (node,) if blames and node else (), ranks, file, number, time
            )

    def _signature_of(self, raw: str) -> Signature | None:
        """The first entry that fits. A cascade is one line in a thousand copies, but for its numbers: it is looked up
        once, unless it holds numbers that mean something."""
        shape = raw.translate(_DIGITS)
        known = shape in self._shapes and not any(word in raw for word in _NUMBERED)
        if not known:
            if len(self._shapes) >= _MOST_NAMES:
                self._shapes.clear()
            self._shapes[shape] = next(
                (
                    one
                    for one in SIGNATURES
                    if one.clue in raw and not (one.start_only and self.stepped) and one.pattern.search(raw)
                ),
                None,
            )
        return self._shapes[shape]

    def findings(self) -> list[Finding]:
        """The first line of each signature in each file, in order."""
        found = [
            finding
            for signature, tally in self._tallies.items()
            if tally.count >= signature.at_least
            for finding in tally.firsts.values()
        ]
        if all(finding.time is not None for finding in found):
            return sorted(found, key=lambda one: (one.time or 0.0, self._files[one.file], one.number))
        return sorted(found, key=lambda one: (self._files[one.file], one.number))

    def cause(self) -> Finding | None:
        """The one finding that tells most, None where no line fits a signature."""
        found = self.findings()
        root = next((one for one in found if one.signature.weight == "root"), None)
        if root is not None:
            return root
        suspicious = list(self._suspicious(found))
        lasting = (one for one in suspicious if not one.signature.survivable)
        return next(lasting, None) or next(iter(suspicious or found), None)

    def _suspicious(self, found: list[Finding]) -> Iterator[Finding]:
        """Errors and symptoms in order, without errors that were over long before ranks began to wait."""
        suspects = self.collectives.suspects(None)
        began = suspects.began if suspects else None
        for one in found:
            stale = began is not None and one.time is not None and one.time < began - _HANG_SLACK
            if one.signature.weight == "symptom" or (one.signature.weight == "error" and not stale):
                yield one

    def nodes(self, failure_class: str) -> tuple[str, ...]:
        """Nodes that lines of this class name as culprits."""
        return tuple(
            dict.fromkeys(
                node
                for signature, tally in self._tallies.items()
                if signature.failure_class == failure_class and signature.weight in {"root", "symptom"}
                for node in tally.nodes
            )
        )

    def first_exit_on(self, ranks: Sequence[int]) -> tuple[str, ...]:
        """The node on which srun saw the task of these ranks end, else the first node on which it saw one end badly.

        Tasks are ranks where there is one task a rank, which a log does not say.
        """
        for rank in ranks:
            if str(rank) in self._exits:
                return (self._exits[str(rank)],)
        return tuple(self._exits.values())[:1]

    def count(self, signature: Signature) -> int:
        """Lines that fitted a signature."""
        return self._tallies[signature].count if signature in self._tallies else 0


def _is_elsewhere(signature: Signature, raw: str, among: Placement) -> bool:
    match = signature.pattern.search(split(raw).text)
    node = match.groupdict().get("node") if match else None
    return bool(node) and not among.named([str(node)])


def find_cause(lines: Iterable[str], *, stepped: bool) -> Finding | None:
    """The cause among lines in their order."""
    reading = LogReading(stepped=stepped)
    for number, line in enumerate(lines, 1):
        reading.add(line, number=number)
    return reading.cause()
