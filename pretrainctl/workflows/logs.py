"""Logs: the training log of a run, over restarts and attempts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pretrainctl.errors import RunError
from pretrainctl.records.run import Event, EventKind
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.log_tail import follow, tail
from pretrainctl.runs.sayings import Sayings
from pretrainctl.runs.state import fold

__all__ = ["LogLine", "follow_log", "log_file", "log_lines", "why_silent"]

_TOLD: frozenset[EventKind] = frozenset(
    {
        *(
            "claimed",
            "node_dead",
            "checkpoint_gate",
            "checkpoint_unusable",
            "restart_started",
            "hang",
            "restart_ended",
            "decided",
        ),
        *("stop_requested", "cancel_requested", "resume_requested", "went_back", "finished", "stopped"),
    }
)
_KNOWN = 20
"""Logs that a hint names."""
_PAUSE = 1.0
"""Seconds between two looks into the ledger."""


@dataclass(frozen=True)
class LogLine:
    """A line of the training program, or what pretrainctl itself has to say between them."""

    text: str
    of_program: bool


def log_file(name: str, attempt: int | None = None, restart: int | None = None) -> Path:
    """The newest training log, or the one of an attempt and restart; RunError where there is none."""
    run = folder.find(name)
    found = [
        path / "training.log"
        for number, index, path in run.restart_dirs()
        if attempt in {None, number} and restart in {None, index} and (path / "training.log").exists()
    ]
    if not found:
        known = [
            f"attempt {number} restart {index}"
            for number, index, path in run.restart_dirs()
            if (path / "training.log").exists()
        ]
        if known:
            raise RunError(
                f"the run {run.record.name!r} has no such training log",
                hint=f"there is: {', '.join(known[-_KNOWN:])}" + (", and older ones" if len(known) > _KNOWN else ""),
            )
        raise RunError(
            f"the run {run.record.name!r} has no training log yet",
            hint=f"`pretrainctl status {run.record.name}` says where it stands; logs of the batch script lie in "
            f"{run.path / 'attempts'}",
        )
    return found[-1]


def log_lines(name: str, lines: int, attempt: int | None = None, restart: int | None = None) -> list[str]:
    """The last `lines` lines of that log."""
    return tail(log_file(name, attempt, restart), lines)


def why_silent(name: str, attempt: int | None = None, restart: int | None = None) -> str:
    """Why there is nothing to print of that log; "" where there is something, or no log at all."""
    try:
        path = log_file(name, attempt, restart)
        if path.stat().st_size:
            return ""
    except (RunError, OSError):
        return ""
    run = folder.find(name)
    place = f"attempt {int(path.parent.parent.name)} restart {path.parent.name.removeprefix('restart-')}"
    if fold(ledger.read_events(run.path)).open_attempt is None:
        return f"the training log of {place} is empty: {path}"
    name = run.record.name
    return (
        f"the training log of {place} is empty so far: `pretrainctl status {name}` says how long it has been starting"
    )


def follow_log(name: str, lines: int = 40) -> Iterator[LogLine]:
    """The last `lines` lines, then lines as they come over restarts and attempts, until the run is over.

    Between them stands what the attempts decide: without it, a dead node is no more than a log that breaks off.
    """
    run = folder.find(name)

    def newest() -> Path | None:
        logs = [path / "training.log" for _, _, path in run.restart_dirs()]
        return next((path for path in reversed(logs) if path.exists()), None)

    news = _News(run)
    for line in follow(newest, news.is_over, lines=lines):
        yield from news.take()
        if line is not None:
            yield LogLine(line, of_program=True)
    yield from news.take()


class _News:
    """Events of a run that came since it was made, looked up at most once a second."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._seen = {(event.attempt, event.sequence) for event in ledger.read_events(run.path)}
        self._sayings: dict[int, Sayings] = {}
        self._waiting: list[LogLine] = []
        self._next = 0.0
        self._over = False

    def is_over(self) -> bool:
        """Whether the run has finished, or is stopped and its attempt has ended."""
        if not self._over and time.monotonic() >= self._next:
            events = ledger.read_events(self.run.path)
            for event in events:
                if (event.attempt, event.sequence) not in self._seen:
                    self._seen.add((event.attempt, event.sequence))
                    words = self._words(event) if event.kind in _TOLD else ""
                    if words:
                        whose = f"attempt {event.attempt}: " if event.attempt else ""
                        self._waiting.append(LogLine(f"{whose}{words}", of_program=False))
            state = fold(events)
            self._over = state.finished is not None or (state.stopped is not None and state.open_attempt is None)
            self._next = time.monotonic() + _PAUSE
        return self._over

    def _words(self, event: Event) -> str:
        if not event.attempt:
            return event.message
        return self._sayings.setdefault(event.attempt, Sayings()).words(event.kind, event.message)

    def take(self) -> Iterator[LogLine]:
        """What has come since the last call."""
        waiting, self._waiting = self._waiting, []
        yield from waiting
