"""The first checkpoint of a restart, looked at while the training goes on.

A program may write checkpoints that no resume can take: another layout, shards that a rank leaves out. Without this
look that shows when the first node has died, and everything is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pretrainctl.errors import CheckpointError
from pretrainctl.frameworks.zero_checkpoint import inspect, tags
from pretrainctl.records.run import Checkpoint, CheckpointStatus
from pretrainctl.workflows.attempt.context import Attempt

__all__ = ["CheckpointWatch"]

_PAUSE = 10.0
"""Seconds between two looks at the names of the tags."""
_WRITTEN_AFTER = 900.0
"""Seconds after which a tag counts as written where no next one says so."""


class CheckpointWatch:
    """Says once, as an event, where the first new checkpoint could not be loaded. Shards are read beside the watch over
    the nodes, which must not wait for a slow file system."""

    def __init__(self, attempt: Attempt, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.attempt = attempt
        self._clock = clock
        self._old = frozenset(self._tags())
        self._seen: dict[str, float] = {}
        self._next = 0.0
        self._reader: threading.Thread | None = None
        self._found: Checkpoint | None = None
        self._done = False

    def tick(self) -> None:
        """Look, if it is time to."""
        if self._done or (self._reader is not None and self._reader.is_alive()):
            return
        if self._found is not None:
            self._judge(self._found)
        elif self._clock() >= self._next:
            self._next = self._clock() + _PAUSE
            written = self._written()
            if written is not None:
                self._reader = threading.Thread(target=self._read, args=(written,), daemon=True)
                self._reader.start()

    def _written(self) -> str | None:
        """The oldest new tag, once a newer one proves that it was finished, or it is old enough."""
        fresh = [tag for tag in reversed(self._tags()) if tag not in self._old]
        now = self._clock()
        for tag in fresh:
            self._seen.setdefault(tag, now)
        if fresh and (len(fresh) > 1 or now - self._seen[fresh[0]] > _WRITTEN_AFTER):
            return fresh[0]
        return None

    def _read(self, tag: str) -> None:
        layout = self.attempt.launch.checkpoint
        try:
            self._found = inspect(layout.directory, tag, layout, tasks_per_node=self.attempt.launch.srun.tasks_per_node)
        except CheckpointError:
            self._found = None  # unknown: the next look tells

    def _judge(self, found: Checkpoint) -> None:
        self._done = True
        reason = found.other_layout or (found.reason if found.status is not CheckpointStatus.COMPLETE else "")
        if reason:
            self.attempt.event(
                "checkpoint_unusable",
                f"{found.tag} could not be resumed from: {reason}",
                {"tag": found.tag, "status": found.status.value},
            )

    def _tags(self) -> list[str]:
        try:
            return tags(self.attempt.launch.checkpoint.directory)
        except CheckpointError:
            return []
