"""The ledger: one small file an event, written aside, fsynced, renamed, never edited.

Order is (attempt, sequence), the clock is for show. Inside an attempt there is one writer. From outside several
may write at once: a sequence number is taken with link(2), which fails where the number is taken.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pretrainctl.errors import LedgerError
from pretrainctl.records import codec, contract
from pretrainctl.records.run import AttemptRecord, Event, EventKind
from pretrainctl.runs.event_data import check_event

__all__ = [
    "append",
    "attempt_numbers",
    "newest_attempt",
    "read_attempt",
    "read_events",
    "refuse_unwritable",
    "set_aside_unreadable",
]

_EVENT_FILE = re.compile(r"(\d{6,18})\.json")
_SET_ASIDE = re.compile(r"(\d{6,18})\.json\.unreadable.*")
_HINT = "restore the file, or move it aside"


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
    sequence = max(_numbers(folder), default=0) + 1
    aside = set(_numbers(folder, _SET_ASIDE))
    while True:
        # Its number stays its own, but one far ahead of its time does not carry the others with it.
        if sequence in aside:
            sequence += 1
            continue
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


def refuse_unwritable(run_dir: Path) -> None:
    """OSError where an event from outside could not be written now: before something is done that must be told."""
    folder = _events_dir(run_dir, 0)
    folder.mkdir(parents=True, exist_ok=True)
    codec.refuse_unwritable(folder)


def attempt_numbers(run_dir: Path) -> list[int]:
    """The numbers of the attempts that have a folder, in order."""
    try:
        with os.scandir(run_dir / "attempts") as found:
            return sorted(int(entry.name) for entry in found if _is_attempt(entry.name) and entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_attempt(name: str) -> bool:
    return name.isascii() and name.isdigit() and int(name) > 0 and name == f"{int(name):04d}"


def newest_attempt(run_dir: Path) -> int:
    """The highest attempt number that exists, 0 for none."""
    return max(attempt_numbers(run_dir), default=0)


def read_events(run_dir: Path, attempt: int | None = None) -> list[Event]:
    """Events in order, of one attempt (0 = outside) or of all; LedgerError for one that is unreadable, and for a folder
    that cannot be listed."""
    try:
        attempts = [attempt] if attempt is not None else [0, *attempt_numbers(run_dir)]
        places = [(number, index) for number in attempts for index in sorted(_numbers(_events_dir(run_dir, number)))]
    except OSError as error:
        raise LedgerError(f"{error.filename or run_dir} cannot be read: {error.strerror}") from error
    return [_read_event(run_dir, number, index) for number, index in places]


def read_attempt(run_dir: Path, attempt: int) -> AttemptRecord:
    """The record of an attempt; LedgerError where there is none that can be read."""
    path = _record_file(run_dir, attempt)
    record = codec.read(AttemptRecord, path)
    if record.attempt != attempt:
        raise LedgerError(f"{path} cannot be read: it says that it is attempt {record.attempt}", hint=_HINT)
    return record


def _read_event(run_dir: Path, attempt: int, sequence: int) -> Event:
    path = _event_file(run_dir, attempt, sequence)
    event = codec.read(Event, path)
    try:
        check_event(event, attempt, sequence)
    except ValueError as error:
        raise LedgerError(f"{path} cannot be read: {error}", hint=_HINT) from error
    return event


def set_aside_unreadable(run_dir: Path, *, since: int = 1) -> list[Path]:
    """Rename events and attempt records that hold no record to `*.unreadable`, and return where they are now.

    Those from outside, and of attempts from `since` on: what an attempt has looked at once need not be read again.
    For the attempt only: a night is not lost to one empty file. The caller records it as an event. One that the file
    system does not give may be whole: it stays, and its LedgerError is raised.
    """
    moved: list[Path | None] = []
    for number in (0, *(number for number in attempt_numbers(run_dir) if number >= since)):
        for index in sorted(_numbers(_events_dir(run_dir, number))):
            reading = functools.partial(_read_event, run_dir, number, index)
            moved.append(_set_aside(_event_file(run_dir, number, index), reading))
        moved.append(_set_aside(_record_file(run_dir, number), functools.partial(read_attempt, run_dir, number)))
    return [path for path in moved if path is not None]


def _set_aside(path: Path, reading: Callable[[], object]) -> Path | None:
    try:
        if path.exists():
            reading()
    except LedgerError as error:
        if isinstance(error.__cause__, OSError):
            raise
        return path.rename(path.with_name(f"{path.name}.unreadable"))
    return None


def _event_file(run_dir: Path, attempt: int, sequence: int) -> Path:
    return _events_dir(run_dir, attempt) / f"{sequence:06d}.json"


def _record_file(run_dir: Path, attempt: int) -> Path:
    return contract.attempt_dir(run_dir, attempt) / "attempt.json"


def _events_dir(run_dir: Path, attempt: int) -> Path:
    return (contract.attempt_dir(run_dir, attempt) if attempt else run_dir) / "events"


def _numbers(folder: Path, pattern: re.Pattern[str] = _EVENT_FILE) -> list[int]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (match[1] for match in map(pattern.fullmatch, names) if match and match[1].isascii())
    return [int(number) for number in found if number == f"{int(number):06d}"]
