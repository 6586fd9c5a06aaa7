"""Whether a resume went on where it left off: nothing fails where only the schedule was lost, and the loss pays hours
later. A restart of warm-up, a schedule that stands still, and a jump that somebody asked for look different."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Break", "check_learning_rate"]

_SLACK = 0.05
"""A jump by less than this part of the learning rate is none, whatever the schedule."""
_USUAL = 4.0
"""Nor is one by less than so many times the schedule's own change over as many steps."""
_STEPS_TO_TELL = 10.0
"""A rate that stands still is told from a slow one after the time in which it should have changed so many times as
much as between two logged steps before."""


@dataclass(frozen=True)
class Break:
    """The learning rate did not go on: `alarm` is False where a change of the recipe explains it."""

    message: str
    alarm: bool


def check_learning_rate(
    before: Sequence[tuple[int, float]], after: Sequence[tuple[int, float]], *, changed: str = ""
) -> Break | None:
    """Compare (step, learning rate) of the last steps before a resume with the first ones after it, both in order.

    `changed` says which change of the recipe between them explains a break, empty where there was none. None where
    the rate went on, or where it cannot be told yet.
    """
    if not before or not after:
        return None
    first, new = after[0]
    known = dict(before)
    step, rate = (first, known[first]) if first in known else before[-1]
    usual = _change_a_step(before)
    if rate > 0 and new > 0:
        jump = abs(new / rate - 1)
        warming_up = abs(new / rate / (first / max(1, step)) - 1) < _SLACK
        if not warming_up and jump > max(_SLACK, _USUAL * usual * max(1, abs(first - step))):
            return _break(
                f"{rate:.3E} at step {step}, {new:.3E} at step {first} ({_factor(rate, new)})", after, changed
            )
    last = after[-1][0]
    stands = len({value for _, value in after}) == 1
    if stands and usual > 0 and (last - first) >= _STEPS_TO_TELL * (before[-1][0] - before[0][0]) / (len(before) - 1):
        said = f"learning rate constant after the resume: {new:.3E} from step {first} to {last}, it changed before"
        return Break(said + (f"; explained by {changed}" if changed else ""), alarm=not changed)
    return None


def _change_a_step(points: Sequence[tuple[int, float]]) -> float:
    """The largest relative change between two neighbours, a step."""
    return max(
        (
            abs(rate / earlier - 1) / max(1, step - before)
            for (before, earlier), (step, rate) in itertools.pairwise(points)
            if earlier > 0
        ),
        default=0.0,
    )


def _break(what: str, after: Sequence[tuple[int, float]], changed: str) -> Break:
    if changed:
        return Break(f"learning rate changed across the resume: {what}; explained by {changed}", alarm=False)
    rising = len(after) > 1 and after[-1][1] > after[0][1]
    why = "; it rises: the warm-up began anew" if rising else ""
    return Break(f"learning rate not continuous across the resume: {what}{why}", alarm=True)


def _factor(rate: float, new: float) -> str:
    return f"factor {rate / new:.3g} down" if new < rate else f"factor {new / rate:.3g} up"
