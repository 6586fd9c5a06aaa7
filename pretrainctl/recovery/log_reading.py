"""Which line of the logs names the cause: lines in, one finding out, in bounded memory.

What the program went on after, what it handled and what it only quoted explains less than any other line
(`Standing`). Among lines of the same standing the earliest root wins, then the earliest error or symptom (of what
scripts survive only where there is no other), then the earliest echo. Times order lines between files where all of them
tell one, and all with their time zone or all without; else the files do, in the order in which they were given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pretrainctl.recovery.aftermath import Aftermath, look_after
from pretrainctl.recovery.collective import Collectives
from pretrainctl.recovery.failure_blocks import FailureBlocks, Process
from pretrainctl.recovery.last_words import Borrowed, Done, GoodEnds
from pretrainctl.recovery.log_lines import Moment, comparable, ranks_in, read_moment, split
from pretrainctl.recovery.placement import Placement
from pretrainctl.recovery.signatures import Signature
from pretrainctl.recovery.signatures.lookup import Lookup, shape_of
from pretrainctl.recovery.signatures.machine import NOT_WRITTEN
from pretrainctl.recovery.standing import OF_SLURM, Standing, Survival

__all__ = ["Finding", "LogReading", "find_cause", "read_lines"]

_TOLD_ANYWHERE = {"node_failure", "boot_failure", "time_limit", "preempted", "user_cancel", "collective_timeout"}
"""Classes whose lines Slurm, or ranks that wait, print on any node of the job, not on the culprit."""
_MOST_NAMES = 4096
"""Nodes kept for a signature, and tasks that ended."""
_EACH_LINE_COUNTS = {"collective_timeout", "node_failure", "host_oom"}
"""Classes in which each line may name another culprit."""
_ENOUGH = 1000
"""Copies of a line after which the text before one is searched no more for a time: it costs the most."""
_EXIT = re.compile(r"error: ([\w.-]+): tasks? ([\d,-]+): (?:Exited|Segmentation)")
"""How srun says that a task ended by itself; those that it says were killed or aborted followed another one."""
_HANG_SLACK = 60.0
"""Seconds before ranks began to wait in which an error may still be why."""


@dataclass(frozen=True)
class Finding:
    """A line that fits a signature. `nodes` and `ranks` only where the line itself names the culprit.

    `file` and `number` (from 1) say where it stands; `moment` is its own or that of a line shortly before, None where
    there is none. `passed_on`: another rank printed it, in the name of this one.
    """

    signature: Signature
    line: str
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    file: str = ""
    number: int = 0
    moment: Moment | None = None
    standing: Standing = Standing.FIRM
    passed_on: bool = False

    @property
    def time(self) -> float | None:
        """The seconds of its moment."""
        return self.moment.seconds if self.moment is not None else None

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
    processes: dict[tuple[str, int], None] = field(default_factory=dict)

    def learn(self, file: str, process: Process | None) -> None:
        """A block below the first finding says of which process it tells."""
        if process is not None:
            self.processes[process.host, process.rank] = None
            first = self.firsts.get(file)
            if first is not None and not first.nodes:
                self.firsts[file] = replace(first, nodes=(process.host,), ranks=(process.rank,))


class LogReading:
    """What the logs of one end say. `stepped`: this start of the program did at least one optimizer step.

    `exits`: tasks that srun saw end by themselves, and their nodes. `year` is that of times which tell none; `expand`
    turns Slurm's short node list into names.
    """

    def __init__(
        self,
        *,
        stepped: bool = False,
        year: int = 2000,
        expand: Callable[[str], Sequence[str]] = lambda text: () if "[" in text else text.split(","),
    ) -> None:
        self.stepped = stepped
        self.year = year
        self.collectives = Collectives()
        self.survival = Survival(year)
        self._expand = expand
        self._tallies: dict[tuple[Signature, Standing], _Tally] = {}
        self._files: dict[str, int] = {}
        self.exits: dict[str, str] = {}
        self._lookup = Lookup()
        self._ends = GoodEnds()
        self._blocks = FailureBlocks()
        self.borrowed = Borrowed()

    def watch(self, file: str, aftermath: Callable[[], Aftermath]) -> None:
        """Say how to learn what the program did after the lines of a file."""
        self.survival.watch(file, aftermath)

    def add(
        self,
        raw: str,
        *,
        file: str = "",
        number: int = 0,
        place: int | None = None,
        before: Callable[[], str] = str,
        rank: int | None = None,
        among: Placement | None = None,
    ) -> None:
        """Take a line; `before` gives text shortly before it, which may tell the time. `rank` is that of the file, and
        `place` where it stands, as the file's aftermath counts, else `number`.

        A line that names a node which is none of `among` is not taken: it is of another start of the program.
        """
        place = number if place is None else place
        if self.survival.is_restart(raw, file, place):
            self._begin_anew(file)
        self.borrowed.hear(raw, file, number, rank)
        self._blocks.hear(raw, file, number)
        shape = shape_of(raw)
        signature = self._lookup.find(raw, shape, stepped=self.stepped)
        if signature is not None and signature.start_only and self.survival.stepped_before(file, place):
            signature = self._lookup.find(raw, shape, stepped=True)
        if signature is None or (among is not None and self._is_elsewhere(signature, raw, among)):
            self._ends.add(raw, file, number, place)
            return
        process = self._blocks.of(raw, file, number)
        if process is not None and not process.first:
            return
        standing = self.survival.standing(signature, raw, shape, file, place)
        self._note(signature, standing, raw, file, place)
        tally = self._tallies.setdefault((signature, standing), _Tally())
        tally.count += 1
        tally.learn(file, process)
        if file in tally.firsts and signature.failure_class not in _EACH_LINE_COUNTS and "task" not in raw:
            return
        line = split(raw) if process is None else replace(split(raw), rank=process.rank, node=process.host)
        speaker = line.rank if line.rank is not None else rank
        culprit = self.borrowed.culprit(file, number, speaker)
        match = signature.pattern.search(line.text)
        named = match.groupdict() if match else {}
        blames = signature.weight != "echo"
        told_by_culprit = blames and signature.failure_class not in _TOLD_ANYWHERE and culprit is None
        nodes = self._nodes_in(named.get("node")) or ((line.node,) if told_by_culprit and line.node else ())
        who = ranks_in(named.get("rank"))
        spoke = who[0] if who else culprit if culprit is not None else speaker
        if signature.weight != "root" and len(self.exits) < _MOST_NAMES:
            self.exits |= {ended: node for node, ended in _EXIT.findall(line.text) if ended not in self.exits}
        if blames and len(tally.nodes) < _MOST_NAMES:
            tally.nodes |= dict.fromkeys(nodes)
        waits = signature.failure_class == "collective_timeout" and standing is Standing.FIRM
        if file in tally.firsts and not waits:
            return
        moment = read_moment(line.text, self.year)
        if moment is None and tally.count <= _ENOUGH:
            moment = read_moment(before(), self.year)
        if waits:
            self.collectives.add(spoke, line.text, moment.seconds if moment else None)
        self._files.setdefault(file, len(self._files))
        if file not in tally.firsts:
            ranks = (who or (spoke,)) if blames and spoke is not None else ()
            passed = culprit is not None and not who
            tally.firsts[file] = Finding(
                signature, line.text, nodes if blames else (), ranks, file, number, moment, standing, passed
            )

    def _note(self, signature: Signature, standing: Standing, raw: str, file: str, place: int) -> None:
        """What a line means for those above and below it."""
        if standing not in {Standing.HANDLED, Standing.PASSING}:
            self._ends.spoil(raw, file, place, echo=signature.weight == "echo")
        if signature.failure_class in OF_SLURM:
            self.survival.killed(file)

    def _nodes_in(self, text: str | None) -> tuple[str, ...]:
        """The names in what a line calls a node; Slurm names several in its short form."""
        if not text:
            return ()
        return tuple(self._expand(text)) if "[" in text or "," in text else (text,)

    def _is_elsewhere(self, signature: Signature, raw: str, among: Placement) -> bool:
        match = signature.pattern.search(split(raw).text)
        nodes = self._nodes_in(match.groupdict().get("node") if match else None)
        return bool(nodes) and not among.named(nodes)

    def _begin_anew(self, file: str) -> None:
        """What this file said so far was of an earlier start of the program."""
        for (signature, standing), tally in list(self._tallies.items()):
            first = tally.firsts.pop(file, None) if standing < Standing.EARLIER else None
            if first is not None:
                earlier = Standing.of_an_earlier_start(signature)
                past = self._tallies.setdefault((signature, earlier), _Tally())
                past.count += 1
                past.firsts.setdefault(file, replace(first, standing=earlier))
                tally.count = len(tally.firsts)
                tally.nodes = dict.fromkeys(node for one in tally.firsts.values() for node in one.nodes)
        self.collectives = Collectives()
        self.exits = {}
        self._ends.begin_anew(file)

    def faint(self) -> list[Finding]:
        """Lines that would explain the end if there were more of them: a loss that is not a number, once or twice."""
        firm = ((one.at_least, tally) for (one, stands), tally in self._tallies.items() if stands is Standing.FIRM)
        return [first for least, tally in firm if tally.count < least for first in tally.firsts.values()]

    def findings(self) -> list[Finding]:
        """The first line of each signature and standing in each file, in order."""
        found = [
            finding
            for (signature, _), tally in self._tallies.items()
            if tally.count >= signature.at_least
            for finding in tally.firsts.values()
        ]
        times = comparable([one.moment for one in found])
        if times is not None:
            return sorted(found, key=lambda one: (times[one.moment], self._files[one.file], one.number))
        return sorted(found, key=lambda one: (self._files[one.file], one.number))

    def cause(self) -> Finding | None:
        """The one finding that tells most, None where no line fits a signature."""
        found = self.findings()
        lasts = [one for one in found if one.standing is Standing.EARLIER]
        for standing in (Standing.FIRM, Standing.LINGERING, Standing.HANDLED, Standing.SURVIVED):
            best = self._first([one for one in found if self.standing(one) is standing])
            if best is not None:
                return best if best.signature.weight == "root" or not lasts else lasts[0]
        echoes = (one for one in found if (one.signature.weight, one.standing) == ("echo", Standing.FIRM))
        return next(iter(lasts), None) or next(echoes, None) or next(iter(found), None)

    def is_order_known(self, cause: Finding) -> bool:
        """Whether no other line that may as well be the cause stands in another file without a time to compare."""
        found = self.findings()
        rivals = [
            one
            for one in found
            if one.file != cause.file
            and self.standing(one) is self.standing(cause)
            and (one.signature.weight, cause.signature.weight) == ("root", "root")
            and one.signature.failure_class != cause.signature.failure_class
        ]
        return not rivals or comparable([one.moment for one in found]) is not None

    def standing(self, one: Finding) -> Standing:
        """How much a finding explains, by all files together."""
        return self.survival.beside_all(one.signature, one.line, one.standing)

    def _first(self, found: list[Finding]) -> Finding | None:
        roots = [one for one in found if one.signature.weight == "root"]
        if roots:
            full = (one for one in roots if one.signature.failure_class == "quota" or one.signature.lasting)
            return next(full, roots[0]) if roots[0].signature.meaning == NOT_WRITTEN else roots[0]
        return min(self._suspicious(found), key=lambda one: one.signature.survivable, default=None)

    def _suspicious(self, found: list[Finding]) -> Iterator[Finding]:
        """Errors and symptoms in order, without errors that were over long before ranks began to wait."""
        suspects = self.collectives.suspects(None)
        began = suspects.began if suspects else None
        for one in found:
            stale = began is not None and one.time is not None and one.time < began - _HANG_SLACK
            if one.signature.weight == "symptom" or (one.signature.weight == "error" and not stale):
                yield one

    def nodes(self, failure_class: str, standing: Standing = Standing.FIRM) -> tuple[str, ...]:
        """Nodes that lines of this class and standing name as culprits."""
        return tuple(
            dict.fromkeys(
                node
                for (signature, stands), tally in self._tallies.items()
                if signature.failure_class == failure_class
                and stands is standing
                and signature.weight in {"root", "symptom"}
                for node in tally.nodes
            )
        )

    def first_exit_on(self, ranks: Sequence[int]) -> tuple[str, ...]:
        """The node on which srun saw the task of these ranks end, else the first node on which it saw one end badly.

        Tasks are ranks where there is one task a rank, which a log does not say.
        """
        for rank in ranks:
            if str(rank) in self.exits:
                return (self.exits[str(rank)],)
        return tuple(self.exits.values())[:1]

    def done(self) -> Done | None:
        """The line that says that the training is done, None where something bad stands below it or beside it, or steps
        of another start follow."""
        ends = self._ends.found()
        again = any(self.survival.after(one.file).settled > one.place for one in ends)
        return ends[0] if ends and not again else None

    def count(self, finding: Finding) -> int:
        """Lines that fitted the signature of a finding, and stand as it does."""
        key = (finding.signature, finding.standing)
        return self._tallies[key].count if key in self._tallies else 0

    def processes(self, finding: Finding) -> list[tuple[str, int]]:
        """Host and rank of those of which a block of torchrun says the same."""
        return list(self._tallies[finding.signature, finding.standing].processes)

    def starts(self, file: str) -> tuple[str, ...]:
        """That a file tells of several starts of the program, with the first thing that an earlier one said; else
        nothing."""
        restarts = self.survival.restarts
        if not restarts and self.survival.after(file).begun < 0:
            return ()
        said = f"{restarts + 1} starts" if restarts else "several starts"
        of_file = [one for one in self.findings() if one.file == file]
        past = [one for one in of_file if one.standing is Standing.PASSING]
        lasts = any(one.standing is Standing.EARLIER for one in of_file)
        return (
            f"the log tells of {said} of the program" + ("" if lasts else "; what counts is the last one"),
            *(f"{one.place}(an earlier start) {one.line}" for one in past[:1]),
        )


def find_cause(lines: Iterable[str], *, stepped: bool) -> Finding | None:
    """The cause among lines in their order."""
    return read_lines(lines, stepped=stepped).cause()


def read_lines(lines: Iterable[str], *, stepped: bool = False, file: str = "", year: int = 2000) -> LogReading:
    """What lines in their order say."""
    given = list(enumerate(lines, 1))
    reading = LogReading(stepped=stepped, year=year)
    reading.watch(file, lambda: look_after(reversed(given), year))
    for number, line in given:
        reading.add(line, file=file, number=number)
    return reading
