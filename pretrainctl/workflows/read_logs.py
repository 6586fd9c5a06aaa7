"""Read logs: files in, what they say of an end out. The one place where the scan meets the table of signatures."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from pretrainctl.errors import InputError
from pretrainctl.recovery.aftermath import STEP_WORDS, Aftermath, look_after
from pretrainctl.recovery.failure_blocks import BLOCK_WORDS
from pretrainctl.recovery.last_words import LAST_WORDS
from pretrainctl.recovery.log_reading import LogReading
from pretrainctl.recovery.placement import Placement, read_placement
from pretrainctl.recovery.signatures import CLUES
from pretrainctl.recovery.standing import RESTART_WORDS
from pretrainctl.runs.log_scan import edges, scan, scan_back, text_before
from pretrainctl.slurm import nodes as node_names

__all__ = ["placement_in", "rank_in", "read_logs"]

_RANK_FILE = re.compile(r"(?:rank|task)[-_.]?0*(\d+)(?!\d)", re.IGNORECASE)
_OURS = "pretrainctl: "
"""Begins the lines of an attempt in the job's log, which quote what earlier starts of the program printed."""
_PLACEMENT_FILES = 8
"""Files whose edges are searched for where ranks lie: each job says it once, at the beginning of its log."""


def read_logs(
    paths: Sequence[Path],
    *,
    stepped: bool = False,
    limit: int | None = None,
    of_job: Sequence[Path] = (),
    placement: Placement | None = None,
    names: Mapping[Path, str] = MappingProxyType({}),
) -> LogReading:
    """What these files say, a file that is not there left out; of each only the last `limit` bytes.

    `of_job` are read too: logs that other starts of the program have written to; what they say of nodes that are none
    of `placement`'s is left out. `names` are what people call the files, where that is another name. OSError or
    CommandError where one cannot be read.
    """
    present = [path for path in (*paths, *of_job) if path.exists()]
    newest = max((path.stat().st_mtime for path in present), default=time.time())
    year = time.localtime(newest).tm_year
    reading = LogReading(stepped=stepped, year=year, expand=_expand)
    for path in present:
        reading.watch(names.get(path, str(path)), functools.partial(_look_after, path, year))
    for path in present:
        called = names.get(path, str(path))
        rank = rank_in(called)
        among = placement if path in of_job else None
        for hit in scan(path, (*CLUES, *RESTART_WORDS, *LAST_WORDS, *BLOCK_WORDS), limit=limit):
            if not _is_ours(hit.text):
                before = functools.partial(text_before, path, hit.offset)
                reading.add(
                    hit.text,
                    file=called,
                    number=hit.number,
                    place=hit.offset,
                    before=before,
                    rank=rank,
                    among=among,
                )
    return reading


def rank_in(file: str) -> int | None:
    """The rank that the name of a log says it is of, None where it says none."""
    named = _RANK_FILE.search(Path(file).name)
    return int(named[1]) if named else None


def _look_after(path: Path, year: int) -> Aftermath:
    """What a program did after the lines of its log; nothing is known of a log that is gone."""
    try:
        return look_after(((place, text) for place, text in scan_back(path, STEP_WORDS) if not _is_ours(text)), year)
    except OSError:
        return Aftermath()


def _is_ours(text: str) -> bool:
    return text.startswith(_OURS)


def placement_in(paths: Sequence[Path]) -> Placement:
    """Where ranks lay, as the logs themselves say it."""
    return read_placement((line for path in paths[:_PLACEMENT_FILES] for line in edges(path)), _expand)


def _expand(text: str) -> Sequence[str]:
    try:
        return node_names.expand(text)
    except InputError:
        return ()
