"""What a command that is interrupted still does: write down, and take down."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from pretrainctl.runs import ledger

__all__ = ["record_stop", "uninterrupted"]

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP end nothing in here: for what a command that ends must do to the end.

    Who is impatient sends them again, and whose terminal closes gets several. They are ignored, not masked: a mask
    holds for one thread, and the others would hear them.
    """
    held = {number: signal.signal(number, signal.SIG_IGN) for number in _ENDINGS}
    try:
        yield
    finally:
        for number, before in held.items():
            signal.signal(number, before)


def record_stop(run_dir: Path, message: str) -> None:
    """Write that nothing of a run goes on until `resume`, whatever signal comes meanwhile."""
    with uninterrupted():
        ledger.append(run_dir, "stopped", message)
