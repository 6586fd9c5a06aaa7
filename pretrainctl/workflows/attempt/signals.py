"""Signals of the batch process: handlers set flags, nothing more."""

from __future__ import annotations

import signal
from types import FrameType

__all__ = ["Signals"]


class Signals:
    """SIGUSR1 is the time limit drawing near (`--signal=B:USR1@lead`). SIGTERM is the end of the job: the end of
    the grace time of a preemption, the time limit itself, or a cancel."""

    def __init__(self) -> None:
        self.time_limit_near = False
        self.terminated = False

    def install(self) -> None:
        """Listen from now on, and hear what came while `__main__` held the signals; Ctrl-C counts as SIGTERM."""
        signal.signal(signal.SIGUSR1, self._on_time_limit)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, self._on_term)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGINT})

    def _on_time_limit(self, _number: int, _frame: FrameType | None) -> None:
        self.time_limit_near = True

    def _on_term(self, _number: int, _frame: FrameType | None) -> None:
        self.terminated = True
