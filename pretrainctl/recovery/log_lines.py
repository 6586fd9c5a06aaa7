"""A line of a training log: who printed it, when, and what is left without the prefixes of tools.

Prefixes in the order in which tools wrap each other: `srun --label` (`12: `), pdsh and container logs (`node7: `),
Slurm's own (`slurmstepd-node7: `), torchrun's tee (`[default3]:`), and what the program itself says of its rank
(`[rank12]:`, `Rank 12`).
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from pretrainctl.recovery.placement import could_be_node

__all__ = ["LogLine", "read_time", "split"]

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
_NCCL = re.compile(r"(?:^|[\s\]:])([A-Za-z][\w.-]*):\d+:\d+ \[\d+\] ")
_RANK = re.compile(r"\[[Rr]ank ?(\d+)\]|\b[Rr]ank[ =:]+(\d+)\b(?!/)")
_LONGEST = 400

_FULL = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?")
_US = re.compile(r"\b(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)")
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


def split(raw: str) -> LogLine:
    """Read one line."""
    text = _ANSI.sub("", raw).strip()[:_LONGEST]
    label = _LABEL.match(text)
    rest = text[label.end() :] if label else text
    tee = _TEE.match(rest)
    said = _RANK.search(rest)
    rank = int(said[1] or said[2]) if said else int(label[1]) if label else None
    return LogLine(text, rank, _host_of(rest, tee.end() if tee else 0))


def _host_of(text: str, start: int) -> str | None:
    """Who printed it: in the prefix at `start`, of Slurm or of another tool, or where NCCL says it."""
    prefix = _HOST.match(text, start)
    if prefix is not None and (prefix[1] or could_be_node(prefix[2])):
        return prefix[1] or prefix[2]
    nccl = _NCCL.search(text)
    return nccl[1] if nccl else None


def read_time(text: str, year: int) -> float | None:
    """The last time that a text tells, in seconds to compare with others; None where it tells none.

    Some loggers write no year: then `year` is taken. Time zones are not looked at: logs of one job share one.
    """
    found: float | None = None
    last = -1
    for pattern in (_FULL, _US, _GLOG, _SYSLOG):
        for match in pattern.finditer(text):
            if match.start() > last:
                moment = _moment(pattern, match, year)
                if moment is not None:
                    found, last = moment, match.start()
    return found


def _moment(pattern: re.Pattern[str], match: re.Match[str], year: int) -> float | None:
    parts = match.groups()
    fraction = "0"
    if pattern is _FULL:
        date, clock, fraction = f"{parts[0]}-{parts[1]}-{parts[2]}", parts[3:6], parts[6] or "0"
    elif pattern is _US:
        date, clock = f"{parts[2]}-{parts[0]}-{parts[1]}", parts[3:6]
    elif pattern is _GLOG:
        date, clock, fraction = f"{year}-{parts[0]:0>2}-{parts[1]}", parts[2:5], parts[5] or "0"
    else:
        date, clock = f"{year}-{_MONTHS.index(parts[0]) + 1:02}-{parts[1]:0>2}", parts[2:5]
    try:
        moment = dt.datetime.fromisoformat(f"{date}T{':'.join(clock)}+00:00")
    except ValueError:
        return None
    return moment.timestamp() + float(f"0.{fraction}")
