"""What a command that is interrupted still writes down."""

from __future__ import annotations

import signal
from pathlib import Path

from pretrainctl.runs import ledger

__all__ = ["record_stop"]

_ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def record_stop(run_dir: Path, message: str) -> None:
    """Write that nothing of a run goes on until `resume`; a further Ctrl-C or SIGTERM waits until it is written."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        ledger.append(run_dir, "stopped", message)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
