"""Whose turn it is to queue jobs of a run: looks from several hosts, a `resume` and a launch may be at it at once.

The ledger decides, since its numbers are taken one by one: the first to say so has the turn until its jobs are written
down, or it has given up. Whoever dies in between loses it after a while: a run is never left without a job for that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from pretrainctl.records.run import Event
from pretrainctl.runs import ledger

__all__ = ["find_holder", "give_turn", "take_turn"]

_TURN = 300.0
"""Seconds from the event to the last job: submitting waits for a busy controller."""
_TAKES = {"submitting", "resume_requested"}
_GIVES = {"stopped", "stop_requested", "cancel_requested", "finished", "note"}


def take_turn(run_dir: Path, why: str) -> Event | None:
    """Say in the ledger that jobs are being queued; None where that is so now, else the event of the one who has the
    turn, and nothing may be queued."""
    other = find_holder(ledger.read_events(run_dir, 0), now=time.time())
    if other is not None:
        return other
    mine = ledger.append(run_dir, "submitting", why)
    holder = find_holder(ledger.read_events(run_dir, 0), until=mine)
    return None if holder is None or holder.sequence == mine.sequence else holder


def give_turn(run_dir: Path, said: str) -> None:
    """Give the turn back where nothing, or not all, was queued; where that cannot be written, it ends by itself."""
    with contextlib.suppress(OSError):
        ledger.append(run_dir, "note", said)


def find_holder(events: Sequence[Event], *, until: Event | None = None, now: float | None = None) -> Event | None:
    """The event of whoever has the turn, after the event `until`, or at the time `now`; None for nobody.

    A clock that is wrong shortens a turn, and does not make it longer.
    """
    held: Event | None = None
    for event in events:
        if event.attempt or (until is not None and event.sequence > until.sequence):
            continue
        if event.kind in _TAKES:
            held = held if held is not None and 0 <= event.time - held.time < _TURN else event
        elif event.kind in _GIVES or _was_last(event):
            held = None
    if held is not None and now is not None and not 0 <= now - held.time < _TURN:
        return None
    return held


def _was_last(event: Event) -> bool:
    """Whether it tells of the last job that its writer had to queue; one that was found by its name is another's."""
    return event.kind == "submitted" and not event.data.get("left") and not event.data.get("found")
