"""The block in which torchrun sums up who failed: each process with its host, its rank and its exit status.

```
Failures:
[1]:
  host      : gn07
  rank      : 29 (local_rank: 1)
  exitcode  : -6 (pid: 4712)
Root Cause (first observed failure):
[0]:
  host      : gn07
  rank      : 28 (local_rank: 0)
  exitcode  : -9 (pid: 4711)
```
The processes under `Failures:` failed after the one below, so what they say of themselves explains nothing.
Source: pytorch/pytorch, torch/distributed/elastic/multiprocessing/errors/__init__.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pretrainctl.recovery.log_lines import label_of

__all__ = ["BLOCK_WORDS", "FailureBlocks", "Process"]

BLOCK_WORDS = ("host      : ", "rank      : ", "Failures:", "first observed failure")
"""A line without any of these says nothing of whom a block tells."""
_HOST = re.compile(r"  host      : ([A-Za-z][\w-]*|[\d.]+)(?:\.[\w.-]+)?\s*$")
"""Without its domain, as Slurm calls it."""
_RANK = re.compile(r"  rank      : (\d+) \(local_rank: \d+\)\s*$")
_INDENTED = re.compile(r"(?:\s*\d+: ?)?(?:\[\w+\]: ?)?(?:[EWI]\d{4} [^\]]*\] ?)?  +\S")
_BELOW = 100
"""Lines of a process in a block: its traceback may stand there."""


@dataclass(frozen=True)
class Process:
    """One that failed; `first` where no other failed before it."""

    host: str = ""
    rank: int = -1
    first: bool = False
    number: int = 0


class FailureBlocks:
    """Of which process the lines of a block tell, for each file and label."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], Process] = {}

    def hear(self, raw: str, file: str, number: int) -> None:
        """Take any line."""
        if "      : " not in raw and "Failures:" not in raw and "first observed" not in raw:
            return
        key = (file, label_of(raw))
        known = self._told.get(key, Process())
        host, rank = _HOST.search(raw), _RANK.search(raw)
        if host is not None:
            self._told[key] = Process(host[1], -1, known.first, number)
        elif rank is not None:
            self._told[key] = Process(known.host, int(rank[1]), known.first, number)
        elif raw.rstrip().endswith(("Failures:", "Root Cause (first observed failure):")):
            self._told[key] = Process(first="Root Cause" in raw, number=number)

    def of(self, raw: str, file: str, number: int) -> Process | None:
        """The process that a line of a block is about, None for a line of none."""
        if not self._told:
            return None
        known = self._told.get((file, label_of(raw)))
        inside = known is not None and known.rank >= 0 and number - known.number <= _BELOW
        return known if inside and _INDENTED.match(raw) else None
