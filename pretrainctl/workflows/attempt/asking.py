"""What the attempt asks of the ranks: by the request file, or, where that cannot be written, by a signal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from pretrainctl import process
from pretrainctl.errors import LedgerError, PretrainctlError
from pretrainctl.records.contract import Request
from pretrainctl.runs import ledger
from pretrainctl.runs.requests import ask, ask_again
from pretrainctl.runs.state import fold
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.patience import say

__all__ = ["Asking"]

_LEDGER_PAUSE = 15.0
"""Seconds between two looks for a stop that was recorded and never reached the ranks."""
_SIGNAL_PAUSE = 5.0
"""Seconds between two tries to signal the ranks."""


class Asking:
    """Asks the ranks of one restart to save and end: at the time limit, at SIGTERM, and where the ledger says stop and
    no request says so. `asked` is what they were asked, None while nothing was.

    A file system that takes no request, or no event, does not end the attempt: SIGTERM on the Slurm step, whose id
    `find_step` knows, means the same to every rank.
    """

    def __init__(
        self, attempt: Attempt, find_step: Callable[[], str | None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.attempt = attempt
        self.asked: Request | None = None
        self._find_step = find_step
        self._clock = clock
        self._next_look = clock() + _LEDGER_PAUSE
        self._must_signal = False
        self._signal: process.Child | None = None
        self._next_signal = 0.0

    def tick(self) -> None:
        """Look, and ask if it is time to."""
        reason = self._reason() if self.asked is None else ""
        if reason:
            self._ask(reason)
        if self._must_signal:
            self._send_signal()

    def _reason(self) -> str:
        signals = self.attempt.signals
        if signals.time_limit_near:
            return "time_limit"
        if signals.terminated:
            return "terminated"
        if self._clock() < self._next_look:
            return ""
        self._next_look = self._clock() + _LEDGER_PAUSE
        try:
            return "stop" if fold(ledger.read_events(self.attempt.run.path, 0)).stopped is not None else ""
        except (LedgerError, OSError):
            return ""

    def _ask(self, reason: str) -> None:
        run, number = self.attempt.run.path, self.attempt.number
        how = ""
        try:
            if reason != "stop":
                self.asked = ask(run, "save_and_exit", number, reason)
            elif not ask_again(run, "save_and_exit", number, reason):
                return  # the ranks know, as is usual
        except (PretrainctlError, OSError) as error:
            self._must_signal = True
            how = f", by a signal, since the request cannot be written: {error}"
        self.asked = self.asked or Request("save_and_exit", number, reason, 0, time.time())
        self._event(f"asked for a save and the end: {reason}{how}", reason)

    def _event(self, message: str, reason: str) -> None:
        try:
            self.attempt.event("save_asked", message, {"reason": reason})
        except (PretrainctlError, OSError) as error:
            say(f"{message} (no event of it: {error})")

    def _send_signal(self) -> None:
        """SIGTERM to every task of the Slurm step, aside: scancel waits for nodes that are dead."""
        if self._signal is not None and self._signal.poll() is not None:
            self._must_signal = self._signal.poll() != 0
            self._signal = None
        if not self._must_signal or self._signal is not None or self._clock() < self._next_signal:
            return
        self._next_signal = self._clock() + _SIGNAL_PAUSE
        step = self._find_step()
        if step is not None:
            with Path(os.devnull).open("wb") as nowhere:
                self._signal = process.start(["scancel", "--signal=TERM", step], env=dict(os.environ), stderr=nowhere)
