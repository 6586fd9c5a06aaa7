"""Search logs for who shows the error that they were read to name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from pretrainctl.errors import PretrainctlError
from pretrainctl.recovery.log_reading import LogReading
from pretrainctl.recovery.placement import Placement
from pretrainctl.recovery.spread import Spread, read_spread
from pretrainctl.runs.log_scan import scan

__all__ = ["spread_in"]

_RANK_FILE = re.compile(r"(?:rank|task)[-_.]?0*(\d+)(?!\d)", re.IGNORECASE)


def spread_in(
    paths: Sequence[Path],
    reading: LogReading,
    placement: Placement,
    *,
    limit: int | None = None,
    names: Mapping[Path, str] = MappingProxyType({}),
) -> Spread:
    """Where the cause that `reading` found stands in these files, in each the last `limit` bytes; nothing where they
    name none, or cannot be read. `names` are what people call the files, where that is another name."""
    cause = reading.cause()
    if cause is None or cause.signature.weight == "echo":
        return Spread()
    lines: list[tuple[str, int | None]] = []
    for path in paths:
        named = _RANK_FILE.search(Path(names.get(path, str(path))).name)
        rank = int(named[1]) if named else None
        try:
            lines += ((hit.text, rank) for hit in scan(path, [cause.signature.clue], limit=limit))
        except (OSError, PretrainctlError):
            continue
    return read_spread(lines, cause, placement)
