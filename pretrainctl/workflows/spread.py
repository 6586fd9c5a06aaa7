"""Search logs for who shows the error that they were read to name."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from pretrainctl.errors import PretrainctlError
from pretrainctl.recovery.log_reading import LogReading
from pretrainctl.recovery.placement import Placement
from pretrainctl.recovery.spread import Spread, raised, read_spread
from pretrainctl.runs.log_scan import scan
from pretrainctl.workflows.read_logs import rank_in

__all__ = ["spread_in"]


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
    if cause.passed_on:  # each rank prints it, whoever's it is
        ranks = tuple(sorted(reading.borrowed.culprits))
        return Spread(ranks, placement.nodes_of(ranks))
    told = reading.processes(cause)
    if told:
        return Spread(tuple(sorted({rank for _, rank in told})), placement.named([host for host, _ in told]))
    # The name of an exception is in far fewer lines than what is common to all errors.
    text = raised(cause.line) or cause.signature.clue
    with contextlib.closing(_lines(paths, text, limit, names)) as lines:
        return read_spread(lines, cause, placement)


def _lines(
    paths: Sequence[Path], text: str, limit: int | None, names: Mapping[Path, str]
) -> Generator[tuple[str, int | None], None, None]:
    for path in paths:
        rank = rank_in(names.get(path, str(path)))
        with contextlib.suppress(OSError, PretrainctlError):
            for hit in scan(path, [text], limit=limit):
                yield hit.text, rank
