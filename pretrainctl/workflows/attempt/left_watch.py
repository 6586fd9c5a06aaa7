"""A rank that is gone while the others wait: an end of the program, noticed before it looks like a hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pretrainctl.records import codec
from pretrainctl.records.contract import Failure
from pretrainctl.recovery.pace import Pace

__all__ = ["LeftWatch"]

_PAUSE = 1.0
"""Seconds between two looks for the file, which may lie in a slow file system and is hardly ever there."""
_GRACE = 8.0
"""Seconds after the record of a task that left, which comes 3 s after its end where it was not rank 0."""


class LeftWatch:
    """Looks at `left.json` in the folder of a restart that trains to `target_steps`."""

    def __init__(self, folder: Path, target_steps: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = folder / "left.json"
        self._target = target_steps
        self._clock = clock
        self._next = clock()
        self._since: float | None = None
        self._left: Failure | None = None

    def tick(self, pace: Pace, *, asked: bool) -> bool:
        """Whether the training is over without an end record; `asked`: the ranks were asked to save and end.

        Without rank 0 nobody writes one. Without another, rank 0 may have work of its own to do at the end, or in a
        save or an evaluation: it is waited for while it reports, or says that it is at that, or has done its last step.
        """
        now = self._clock()
        if self._left is None and now >= self._next:
            self._next = now + _PAUSE
            self._left = codec.read_if_whole(Failure, self._path)
        if self._left is None:
            return False
        self._since = self._since if self._since is not None else now
        if now - self._since < _GRACE:
            return False
        if self._left.rank == 0:
            return not asked or now - self._since >= 2 * _GRACE
        in_steps = pace.phase == "step" and 0 < pace.step < self._target
        return in_steps and not asked and pace.silent(now) >= _GRACE
