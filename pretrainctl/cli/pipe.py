"""A reader that leaves early, as `| head` does: the command ends in silence, as SIGPIPE would end it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator

__all__ = ["leave_a_closed_pipe"]


@contextlib.contextmanager
def leave_a_closed_pipe() -> Iterator[None]:
    """Exit with 128 + SIGPIPE where what is printed has no reader any more. A pipe to another program is not meant."""
    try:
        yield
    except BrokenPipeError:
        gone = [number for number in (1, 2) if _has_no_reader(number)]
        if not gone:
            raise
        null = os.open(os.devnull, os.O_WRONLY)
        for number in gone:  # what is still kept for it is thrown away, and not told at the interpreter's end
            os.dup2(null, number)
        sys.exit(128 + signal.SIGPIPE)


def _has_no_reader(number: int) -> bool:
    poll = select.poll()
    poll.register(number, 0)  # errors are told unasked
    return any(events & select.POLLERR for _, events in poll.poll(0))
