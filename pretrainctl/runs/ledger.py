"""The ledger: one small file an event, written aside, fsynced, renamed, never edited.

Order is (attempt, sequence), the clock is for show. Inside an attempt there is one writer. From outside several
may write at once: a sequence number is taken with link(2), which fails where the number is taken.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pretrainctl.errors import LedgerError
from pretrainctl.records import codec, contract
from pretrainctl.records.run import AttemptRecord, Event, EventKind

__all__ = ["append", "read_events", "set_aside_unreadable"]

_EVENT_FILE = re.compile(r"(\d{6})\.json$")
_ATTEMPT = re.compile(r"[0-9]{4,}")
_TAKEN = re.compile(r"(\d{6})\.json")


def append(
    run_dir: Path,
    kind: EventKind,
    message: str,
    *,
    attempt: int = 0,
    data: Mapping[str, Any] | None = None,
) -> Event:
    """Write one event durably and return it; `attempt` 0 is from outside any attempt."""
    folder = _events_dir(run_dir, attempt)
    folder.mkdir(parents=True, exist_ok=True)
    sequence = max(_numbers(folder, _TAKEN), default=0) + 1
    while True:
        event = Event(
            kind=kind,
            attempt=attempt,
            sequence=sequence,
            time=time.time(),
            host=socket.gethostname(),
            message=message,
            after_attempt=0 if attempt else newest_attempt(run_dir),
            data=codec.to_json(dict(data or {})),
        )
        if codec.create(folder / f"{sequence:06d}.json", event):
            return event
        sequence += 1


def newest_attempt(run_dir: Path) -> int:
    """The highest attempt number that exists, 0 for none."""
    folder = run_dir / "attempts"
    if not folder.is_dir():
        return 0
    return max((int(path.name) for path in folder.iterdir() if _ATTEMPT.fullmatch(path.name)), default=0)


def read_events(run_dir: Path, attempt: int | None = None) -> list[Event]:
    """Events in order, of one attempt (0 = outside) or of all; an unreadable one is a LedgerError."""
    attempts = [attempt] if attempt is not None else range(newest_attempt(run_dir) + 1)
    events = []
    for number in attempts:
        folder = _events_dir(run_dir, number)
        events += [codec.read(Event, folder / f"{index:06d}.json") for index in sorted(_numbers(folder))]
    return events


def set_aside_unreadable(run_dir: Path, *, since: int = 1) -> list[Path]:
    """Rename events and attempt records that hold no record to `*.unreadable`, and return where they are now.

    Those from outside, and of attempts from `since` on: what an attempt has looked at once need not be read again.
    For the attempt only: a night is not lost to one empty file. The caller records it as an event. One that the file
    system does not give may be whole: it stays, and its LedgerError is raised.
    """
    moved: list[Path | None] = []
    for number in (0, *range(since, newest_attempt(run_dir) + 1)):
        folder = _events_dir(run_dir, number)
        moved += [_set_aside(Event, folder / f"{index:06d}.json") for index in sorted(_numbers(folder))]
        moved.append(_set_aside(AttemptRecord, contract.attempt_dir(run_dir, number) / "attempt.json"))
    return [path for path in moved if path is not None]


def _set_aside(kind: type[Event | AttemptRecord], path: Path) -> Path | None:
    try:
        if path.exists():
            codec.read(kind, path)
    except LedgerError as error:
        if isinstance(error.__cause__, OSError):
            raise
        return path.rename(path.with_name(f"{path.name}.unreadable"))
    return None


def _events_dir(run_dir: Path, attempt: int) -> Path:
    return (contract.attempt_dir(run_dir, attempt) if attempt else run_dir) / "events"


def _numbers(folder: Path, pattern: re.Pattern[str] = _EVENT_FILE) -> list[int]:
    if not folder.is_dir():
        return []
    found = (pattern.match(path.name) for path in folder.iterdir())
    return [int(match.group(1)) for match in found if match]
