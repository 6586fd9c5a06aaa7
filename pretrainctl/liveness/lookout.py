"""The lookout: beside the batch host, it asks whether the attempt is there, and calls a witness where it is not.

`python -m pretrainctl.liveness.lookout HOST PORT INTERVAL SILENT_AFTER WITNESS ...`, the token in the environment. The
program WITNESS is started with how the attempt was lost (`closed` or `silent`) as its last argument: a dead batch host
leaves a job of several nodes running, with nobody in charge. Standard library only. It ends with the job, by Slurm's
hand: that an attempt has ended may never reach Slurm, from a host that is being shut down.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pretrainctl.liveness.beat import TOKEN_VARIABLE, Hearing, Silence, ask

if TYPE_CHECKING:
    from pretrainctl.process import Child

__all__ = ["Lookout", "main"]

_AGAIN = 20.0
"""Seconds after which a loss that lasts is told anew: who looked may have met a stranger's answer on the port, or a
state of the job that has passed."""
_CLOSED = 3.0
"""Seconds after which an attempt that nobody reaches is lost: a job that ends takes its lookouts away sooner."""


class Lookout:
    """Looks each `interval` seconds whether `ask` finds the attempt, which may take it half of `silent_after` seconds.

    `on_lost` is called at a loss, and now and then while it lasts, with how: `closed` when nothing was to be reached
    for a few seconds, `silent` when it took connections and answered none for one and a half times `silent_after`
    seconds; the direct try that follows makes it twice. `busy` says whether one who was told is at work: then it is not
    told again.
    """

    def __init__(
        self,
        ask: Callable[[], Silence | None],
        interval: float,
        silent_after: float,
        *,
        on_lost: Callable[[Silence], None],
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self.interval = interval
        self._ask = ask
        self._limits: dict[Silence, float] = {"closed": min(_CLOSED, silent_after), "silent": 1.5 * silent_after}
        self._on_lost = on_lost
        self._busy = busy
        self._hearing = Hearing(silent_after + interval + 5.0)
        self._told: float | None = None

    def run(self) -> None:
        """Look out, for ever."""
        while True:
            begun = time.monotonic()
            self.look()
            time.sleep(max(0.0, self.interval - (time.monotonic() - begun)))

    def look(self) -> None:
        """Ask once, and tell of a loss."""
        how = self._ask()
        silence = self._hearing.look(heard=how is None)
        if silence == 0.0:
            self._told = None
        if how is None or silence <= self._limits[how]:
            return
        now = time.monotonic()
        if self._told is None or (now - self._told > _AGAIN and not self._busy()):
            self._told = now
            self._on_lost(how)


def main(words: Sequence[str] = tuple(sys.argv[1:])) -> None:
    """Entry of the program."""
    host, port, interval, silent_after, *witness = words
    children: list[Child] = []

    def on_lost(how: Silence) -> None:
        from pretrainctl import process  # not before it is needed: a lookout starts in 0.1 s

        children.append(process.start([*witness, how], env=dict(os.environ)))

    Lookout(
        functools.partial(ask, host, int(port), os.environ.get(TOKEN_VARIABLE, ""), timeout=float(silent_after) / 2),
        float(interval),
        float(silent_after),
        on_lost=on_lost,
        busy=lambda: any(child.poll() is None for child in children),
    ).run()


if __name__ == "__main__":
    main()
