"""What srun says of tasks that ended badly, as it comes.

A node that dies tells nobody that a task of it ended: only Slurm's own process on that node does, so what is said here
is proof that the node lives. It comes within milliseconds of the end (seen on 22.05).
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import sys
import threading

from pretrainctl.errors import InputError
from pretrainctl.slurm.nodes import expand

__all__ = ["TaskEnds", "read_task_ends"]

_ENDED = re.compile(r"^srun: error: ([^:\s]+): tasks? [0-9,\-\[\]]+: \S")


class TaskEnds:
    """Takes the stderr of sruns at `fileno`, passes it on to our own, and keeps the nodes whose tasks ended."""

    def __init__(self) -> None:
        read, self._write = os.pipe()
        self._nodes: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._follow, args=(read,), name="task ends", daemon=True).start()

    def fileno(self) -> int:
        """Where sruns write their stderr."""
        return self._write

    def take(self) -> tuple[str, ...]:
        """The nodes of which it was said since the last call."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._nodes.get_nowait())
        return tuple(dict.fromkeys(found))

    def close(self) -> None:
        """No further srun is started with it."""
        os.close(self._write)

    def _follow(self, read: int) -> None:
        with os.fdopen(read, "r", errors="replace") as lines:
            for line in lines:
                for node in read_task_ends(line):
                    self._nodes.put(node)
                with contextlib.suppress(OSError, ValueError):  # the log may lie in a file system that is full
                    sys.stderr.write(line)
                    sys.stderr.flush()


def read_task_ends(line: str) -> tuple[str, ...]:
    """The nodes of tasks that, by a line of srun, ended; none where it says something else."""
    found = _ENDED.match(line)
    with contextlib.suppress(InputError):
        return tuple(expand(found[1])) if found else ()
    return ()
