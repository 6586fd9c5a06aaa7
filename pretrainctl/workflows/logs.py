"""Logs: the training log of a run, over restarts and attempts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from pretrainctl.errors import RunError
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.log_tail import follow, tail
from pretrainctl.runs.state import fold

__all__ = ["follow_log", "log_file", "log_lines"]


def log_file(name: str, attempt: int | None = None, restart: int | None = None) -> Path:
    """The newest training log, or the one of an attempt and restart; RunError where there is none."""
    run = folder.find(name)
    found = [
        path / "training.log"
        for number, index, path in run.restart_dirs()
        if attempt in {None, number} and restart in {None, index} and (path / "training.log").exists()
    ]
    if not found:
        raise RunError(
            f"the run {run.record.name!r} has no such training log yet",
            hint=f"`pretrainctl status` says where it stands; logs of the batch script lie in {run.path / 'attempts'}",
        )
    return found[-1]


def log_lines(name: str, lines: int, attempt: int | None = None, restart: int | None = None) -> list[str]:
    """The last `lines` lines of that log."""
    return tail(log_file(name, attempt, restart), lines)


def follow_log(name: str) -> Iterator[str]:
    """Lines of the run as they come, over restarts and attempts, until the run has finished or is stopped."""
    run = folder.find(name)

    def newest() -> Path | None:
        logs = [path / "training.log" for _, _, path in run.restart_dirs()]
        return next((path for path in reversed(logs) if path.exists()), None)

    yield from follow(newest, _Ended(run))


class _Ended:
    """Whether a run is over, looked up at most once a second."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._next = 0.0
        self._over = False

    def __call__(self) -> bool:
        if not self._over and time.monotonic() >= self._next:
            state = fold(ledger.read_events(self.run.path))
            settled = state.owner is None or state.owner.ended
            self._over = state.finished is not None or (state.stopped is not None and settled)
            self._next = time.monotonic() + 1.0
        return self._over
