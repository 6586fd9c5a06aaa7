"""A line of a training log: who printed it, when, and what is left without the prefixes of tools.

Prefixes in the order in which tools wrap each other: `srun --label` (`12: `), pdsh and container logs (`node7: `),
Slurm's own (`slurmstepd-node7: `), torchrun's tee (`[default3]:`), and what the program itself says of its rank
(`[rank12]:`, `Rank 12`).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pretrainctl.recovery.placement import could_be_node

__all__ = [
    "STAMP",
    "LogLine",
    "Moment",
    "bare",
    "comparable",
    "label_of",
    "ranks_in",
    "read_moment",
    "read_time",
    "split",
]

STAMP = r"\d+:(?=\s)|\[[^\]]*\]:?|\d{4}[-/]\d\d[-/]\d\d[T ]?|\d\d:\d\d:\d\d\S*|[-|]\s"
"""Pattern of one thing that loggers and srun print before what is said: a rank, a bracket, a date, a time, a dash."""
_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, the cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # the title of a window, links, and other strings
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
"""What does something to a terminal (ECMA-48), so that no log can, where its lines are shown."""
_LABEL = re.compile(r"\s*(\d+): ?")
_TEE = re.compile(r"\[(?:default|rank|trainer)?\d+\]: ?")
_HOST = re.compile(r"slurmstepd-([\w.-]+): |([a-z][\w-]*\d): ")
"""A dotted word is a host only where Slurm says so: `urllib3.exceptions.MaxRetryError: ` begins an error line."""
_SYSLOG_HOST = re.compile(
    r"(?:[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-][\d:]+)?) ([a-z][\w.-]*) kernel: "
)
_NCCL = re.compile(r"(?:^|[\s\]:])([A-Za-z][\w.-]*):\d+:\d+ \[\d+\] ")
_IN_BRACKETS = re.compile(
    r"(?:^|[\s\]])\[([A-Za-z][\w-]*(?:\.[\w-]+)*):\d+(?::\d+){1,2}\]|(?:^|[\s\]])\[([a-z][\w-]*\d):\d{2,}\] "
)
"""How UCX (`[n3:4411:0:4411]`) and Open MPI (`[n3:04411] `) say who prints."""
_RANK = re.compile(
    r"\[(?:[\w.-]+:)?[Rr]ank[ :=]?(\d+)(?:/\d+)?\]|(?:^|[\]:] ?|\| ?)[Rr]ank[ =]?(\d+)(?=[:\]|]|$)|"
    r"\b(?:[Gg]lobal|GLOBAL)[ _][Rr](?:ank|ANK)[ =:]+(\d+)\b|\b[Rr]ank (\d+) (?:on|at) (?:node|host)\b|"
    r"\b(?:on|by|from) rank (\d+)\b|\[PG [^\]]*\bRank (\d+)\]|^rank[ =](\d+)(?=[ ,])"
)
"""A process; `rank` alone may as well be that of a tensor, or of an adapter."""
_LONGEST = 400
_HALF_A_YEAR, _YEAR = 180 * 86400.0, 365 * 86400.0

_FULL = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:(Z)\b| ?([+-])(\d\d):?(\d\d)\b)?"
)
_US = re.compile(r"\b(\d\d)/(\d\d)/(\d{4}),? (\d{1,2}):(\d\d):(\d\d)(?: ?([AaPp])\.?[Mm]\b)?")
_EPOCH = re.compile(r"(?:^|\n|\[)(1[5-9]\d{8}|[2-3]\d{9})\.(\d+)(?=[\]: ])")
_GLOG = re.compile(r"\b[EWIF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?")
_SYSLOG = re.compile(r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(\d+) (\d\d):(\d\d):(\d\d)")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class LogLine:
    """`text` without what steers a terminal, at most 400 characters; `rank` and `node` are those that printed it, where
    it says so.

    Whether a node of the job is called so, `Placement.named` says.
    """

    text: str
    rank: int | None = None
    node: str | None = None


@dataclass(frozen=True)
class Moment:
    """Seconds to compare with those of another moment of the same kind.

    `zoned`: it says its time zone, so that it tells nothing beside one that does not. `yearless`: its year is a guess.
    """

    seconds: float
    zoned: bool = False
    yearless: bool = False


def bare(raw: str) -> str:
    """A line without what steers a terminal."""
    return _ANSI.sub("", raw)


def label_of(raw: str) -> str:
    """The number before a line by which `srun --label` names its task, "" for none."""
    label = _LABEL.match(raw)
    return label[1] if label else ""


def split(raw: str) -> LogLine:
    """Read one line."""
    text = bare(raw).strip()[:_LONGEST]
    label = _LABEL.match(text)
    rest = text[label.end() :] if label else text
    tee = _TEE.match(rest)
    said = _RANK.search(rest)
    rank = int(next(filter(None, said.groups()))) if said else int(label[1]) if label else None
    return LogLine(text, rank, _host_of(rest, tee.end() if tee else 0))


def _host_of(text: str, start: int) -> str | None:
    """Who printed it: in the prefix at `start`, of Slurm or of another tool, or where NCCL says it."""
    prefix = _HOST.match(text, start)
    if prefix is not None and (prefix[1] or could_be_node(prefix[2])):
        return prefix[1] or prefix[2]
    said = _SYSLOG_HOST.match(text, start) or _NCCL.search(text)
    if said is not None:
        return said[1]
    inside = _IN_BRACKETS.search(text)
    name = inside and (inside[1] or inside[2])
    return name if name and could_be_node(name) else None


def comparable(moments: Sequence[Moment | None]) -> dict[Moment | None, float] | None:
    """Seconds by which moments can be put in order, None where one is not known, or they are of both kinds."""
    known = [moment for moment in moments if moment is not None]
    if len(known) < len(moments) or len({moment.zoned for moment in known}) > 1:
        return None
    first = min((moment.seconds for moment in known), default=0.0)
    # Logs that go on over New Year tell no year: what seems to come half a year later was the year before.
    return {
        moment: moment.seconds - (_YEAR if moment.yearless and moment.seconds - first > _HALF_A_YEAR else 0.0)
        for moment in known
    }


def ranks_in(text: str | None) -> tuple[int, ...]:
    """The ranks of a list such as `12, 13`; none where there is no text."""
    return tuple(map(int, re.findall(r"\d+", text or "")))


def read_time(text: str, year: int) -> float | None:
    """The seconds of `read_moment`."""
    moment = read_moment(text, year)
    return moment.seconds if moment is not None else None


def read_moment(text: str, year: int) -> Moment | None:
    """The last time with a date that a text tells; None where it tells none.

    Some loggers write no year: then `year` is taken.
    """
    found: Moment | None = None
    last = -1
    for pattern in (_FULL, _US, _GLOG, _SYSLOG, _EPOCH):
        for match in pattern.finditer(text):
            if match.start() > last:
                moment = _moment(pattern, match, year)
                if moment is not None:
                    found, last = moment, match.start()
    return found


def _moment(pattern: re.Pattern[str], match: re.Match[str], year: int) -> Moment | None:
    parts = match.groups()
    if pattern is _EPOCH:
        return Moment(float(f"{parts[0]}.{parts[1]}"), zoned=True)
    fraction, offset = "0", "+00:00"
    if pattern is _FULL:
        date, clock, fraction = f"{parts[0]}-{parts[1]}-{parts[2]}", parts[3:6], parts[6] or "0"
        offset = f"{parts[8]}{parts[9]}:{parts[10]}" if parts[8] else offset
    elif pattern is _US:
        month, day = (parts[1], parts[0]) if int(parts[0]) > 12 else parts[:2]
        date, clock = f"{parts[2]}-{month}-{day}", (_hour(parts[3], parts[6]), *parts[4:6])
    elif pattern is _GLOG:
        date, clock, fraction = f"{year}-{parts[0]:0>2}-{parts[1]}", parts[2:5], parts[5] or "0"
    else:
        date, clock = f"{year}-{_MONTHS.index(parts[0]) + 1:02}-{parts[1]:0>2}", parts[2:5]
    try:
        moment = dt.datetime.fromisoformat(f"{date}T{':'.join(clock)}{offset}")
    except ValueError:
        return None
    zoned = pattern is _FULL and bool(parts[7] or parts[8])
    return Moment(moment.timestamp() + float(f"0.{fraction}"), zoned, pattern in (_GLOG, _SYSLOG))


def _hour(hour: str, half: str | None) -> str:
    """On a clock of 24 hours; `half` is the letter before the M of AM and PM."""
    if half is None:
        return f"{hour:0>2}"
    return f"{int(hour) % 12 + (12 if half in 'Pp' else 0):02}"
