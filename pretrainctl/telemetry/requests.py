"""What people and the attempt ask of a running program: a file in `control/`, or a signal."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from types import FrameType

from pretrainctl.records.codec import from_json
from pretrainctl.records.contract import Request, request_file
from pretrainctl.telemetry.place import find_place, own_rank

__all__ = ["LOOK_INTERVAL", "Requests"]

LOOK_INTERVAL = 0.5
"""Least seconds between two looks at the request file."""


class Requests:
    """Watches for requests from its construction on; the main thread must construct it, early.

    Rank 0 looks at `control/request.json`, so that a thousand ranks do not ask one file server; SIGTERM and
    SIGUSR1 count on every rank, because preemption signals each task. A handler only sets a flag: nothing is
    ever saved inside it. What one rank sees the others do not: the program must make all ranks agree before
    it obeys.
    """

    def __init__(self) -> None:
        self._place = find_place()
        self._file = request_file(self._place.run_dir) if self._place and own_rank() == 0 else None
        self._seen: tuple[int, int, int] | None = None
        self._next_look = 0.0
        self._warned = ""
        self._done = 0
        self._signalled = False
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGUSR1, self._on_signal)

    def poll(self) -> Request | None:
        """The request to obey now, or None.

        A request of the file is answered once, by its number, and only if it is for this attempt. After a
        signal every call answers save_and_exit with the reason `signal`, until the program ends.
        """
        request = self._look()
        if request is None and self._signalled:
            attempt = self._place.attempt if self._place else 0
            return Request("save_and_exit", attempt, "signal", self._done, time.time())
        return request

    def _look(self) -> Request | None:
        now = time.monotonic()
        if self._file is None or self._place is None or now < self._next_look:
            return None
        self._next_look = now + LOOK_INTERVAL
        try:
            # Opened, not only asked for by stat: NFS asks its server again when a file is opened.
            with self._file.open("rb") as file:
                status = os.fstat(file.fileno())
                seen = (status.st_mtime_ns, status.st_ino, status.st_size)
                if seen == self._seen:
                    return None
                self._seen = seen
                request = from_json(Request, json.loads(file.read()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            if str(error) != self._warned:
                self._warned = str(error)
                print(f"warning: {self._file} cannot be read: {error}", file=sys.stderr)
            return None
        if request.attempt != self._place.attempt or request.number <= self._done:
            return None
        self._done = request.number
        return request

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signalled = True
