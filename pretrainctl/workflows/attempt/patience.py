"""Waiting for what may come back by itself: a controller that restarts, a file system that is full or away.

An attempt that gives up at the first error loses the night to a fault of seconds. One that waits holds its nodes: so
the wait is bounded, and ends at once where the job is told to leave.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

from pretrainctl.errors import LedgerError, SlurmError, UnreadableError
from pretrainctl.workflows.attempt.signals import Signals

__all__ = ["IDLE_PAUSE", "MAY_PASS", "Patience", "say", "tell_fault"]

T = TypeVar("T")

MAY_PASS = (OSError, SlurmError, UnreadableError, LedgerError)
"""Errors that say that something did not answer. A record that is torn (LedgerError) may be one that a stale cache of
the file system shows."""

IDLE_PAUSE = 120.0
"""Seconds that a job which could do nothing waits before it hands over: the next would most likely find the same."""

_LIMIT = 900.0
"""Seconds: longer than the restart of a controller, or the failover of a file system's server."""
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_SLICE = 0.5
"""Seconds between two looks at the signals."""


def say(message: str) -> None:
    """Say it in the job's own log, which may lie in the file system that is full: then nobody hears it."""
    with contextlib.suppress(OSError):
        print(f"pretrainctl: {message}", file=sys.stderr, flush=True)


def tell_fault(error: Exception) -> str:
    """Print the traceback of an error that nobody expected, a fault of ours, into the job's own log; it in one line."""
    say("".join(traceback.format_exception(error)).rstrip())
    return f"a fault of pretrainctl itself: {type(error).__name__}: {error}"[:500]


class Patience:
    """Tries again with growing pauses. `limit` bounds the wait for one thing, in seconds; `idle` is what is done in the
    pauses, for at most the seconds that it is given."""

    def __init__(
        self,
        signals: Signals,
        *,
        limit: float = _LIMIT,
        idle: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._signals = signals
        self._limit = limit
        self._idle = idle
        self._clock = clock

    @property
    def over(self) -> bool:
        """Whether the job has been told to leave: nothing is waited for any more."""
        return self._signals.terminated or self._signals.time_limit_near

    def until(self, what: str, action: Callable[[], T]) -> T:
        """What `action` returns, tried again while it raises one of MAY_PASS; the last error where that does not end.

        `action` must bear to be repeated after it failed half way. The job's log says what is waited for.
        """
        deadline = self._clock() + self._limit
        pause = _FIRST_PAUSE
        while True:
            try:
                return action()
            except MAY_PASS as error:
                left = deadline - self._clock()
                if self.over or left <= 0:
                    raise
                say(f"waiting for {what}, {left:.0f} s at most: {error}")
            self.pause(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def pause(self, seconds: float) -> bool:
        """Let `seconds` pass; False, and at once, where the job has been told to leave."""
        end = self._clock() + seconds
        while not self.over and (left := end - self._clock()) > 0:
            self._idle(min(_SLICE, left))
        return not self.over
