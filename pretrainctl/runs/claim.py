"""The claim: two jobs never write one run.

An attempt's folder appears by renaming a folder that already holds its record, which fails where the number is
taken, so no claim is ever seen half made. Then the lowest attempt whose job is alive wins.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pretrainctl.records import codec, contract
from pretrainctl.records.run import AttemptRecord
from pretrainctl.runs import ledger

__all__ = ["claim", "rival"]


def claim(run_dir: Path, record: AttemptRecord) -> AttemptRecord:
    """Take the next free attempt number for `record`; returns it with that number.

    After an OSError it can be called again.
    """
    number = ledger.newest_attempt(run_dir) + 1
    while True:
        mine = replace(record, attempt=number)
        target = contract.attempt_dir(run_dir, number)
        aside = target.with_name(f".{target.name}.{record.job_id}.{os.getpid()}")
        (aside / "events").mkdir(parents=True, exist_ok=True)  # of a try that failed half way
        codec.write(aside / "attempt.json", mine)
        try:
            aside.rename(target)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            if not target.exists():
                raise
            number += 1
            continue
        codec.sync_directory(target.parent)
        return mine


def rival(
    attempts: list[AttemptRecord], mine: AttemptRecord, run_dir: Path, alive: Callable[[list[int]], set[int]]
) -> AttemptRecord | None:
    """The lowest earlier attempt that still owns the run, or None when it is ours.

    `alive` says which of some job ids are running; it raises where that cannot be known. An attempt that ended
    or was refused owns nothing, and neither does an earlier start of our own job.
    """
    earlier = [
        attempt
        for attempt in attempts
        if attempt.attempt < mine.attempt and attempt.job_id != mine.job_id and not _has_ended(run_dir, attempt)
    ]
    if not earlier:
        return None
    running = alive(sorted({attempt.job_id for attempt in earlier}))
    return next((attempt for attempt in earlier if attempt.job_id in running), None)


def _has_ended(run_dir: Path, attempt: AttemptRecord) -> bool:
    return any(event.kind in {"refused", "attempt_ended"} for event in ledger.read_events(run_dir, attempt.attempt))
