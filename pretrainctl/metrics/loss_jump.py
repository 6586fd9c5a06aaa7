"""Whether the loss went on over a resume as its curve promised. A data order or an optimizer state that was lost fails
nothing: it shows as a jump, or as steps done twice that give other losses.

The run's own noise is the measure, since that of another model or batch is many times larger or smaller: a line through
the last losses (median of the slopes of all pairs, Theil and Sen), the spread about it from the median deviation, which
one spike does not move, and the median over several steps on the other side.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["STEPS", "LossJump", "check_losses"]

STEPS = 5
"""Steps after a resume that are looked at."""
_FITTED = 32
_FEWEST = 8
"""Losses before it that a line is drawn through, and those without which it is not drawn."""
_SIGMAS = 6.0
"""Standard deviations by which the median must be off: a parabola, whose bend is all its noise, is off by 4."""
_BEND = 0.1
"""Part of what the loss changes by over the fitted steps, by which a curve that bends may be off besides."""
_TWICE = 0.5
"""The same for the median of what steps differ by that were done twice: other samples differ by about one."""
_LEAST_TWICE = 3
_ROUNDING = 2e-3
"""Part of the loss by which the same steps may differ on GPUs, whose sums have no fixed order."""


@dataclass(frozen=True)
class LossJump:
    """What the first steps were `expected` to give, what was `seen` (medians), and the run's `noise` (1 sigma).

    `alarm` is False where a change between the attempts explains it.
    """

    message: str
    first_step: int
    expected: float
    seen: float
    noise: float
    alarm: bool = True


def check_losses(
    before: Sequence[tuple[int, float]], after: Sequence[tuple[int, float]], *, resume_step: int, changed: str = ""
) -> LossJump | None:
    """Hold (step, loss) of the first steps after a resume against those of the starts before it, both in order.

    `before` may go beyond `resume_step`: those steps are done twice. `changed` says what was changed between them, and
    accepted. None where the loss went on, or where it cannot be told.
    """
    new = [(step, loss) for step, loss in after[:STEPS] if math.isfinite(loss)]
    known = [(step, loss) for step, loss in before if math.isfinite(loss)]
    near = [point for point in known if point[0] <= resume_step + STEPS][-_FITTED:]
    if len(near) < _FEWEST or len(new) < min(STEPS, _LEAST_TWICE):
        return None
    slope, level = _line(near)
    spread = 1.4826 * statistics.median(abs(loss - level - slope * step) for step, loss in near)
    noise = max(spread, _ROUNDING * abs(statistics.median(loss for _, loss in near)) / _SIGMAS)
    bend = _BEND * abs(slope) * (near[-1][0] - near[0][0])
    off = statistics.median(loss - level - slope * step for step, loss in new)
    expected = statistics.median(level + slope * step for step, _ in new)
    jumped = abs(off) > _SIGMAS * noise + bend
    return _twice(dict(known), new, noise, changed) or (_off(expected, off, new, noise, changed) if jumped else None)


def _twice(known: dict[int, float], new: Sequence[tuple[int, float]], noise: float, changed: str) -> LossJump | None:
    pairs = [(step, known[step], loss) for step, loss in new if step in known]
    if len(pairs) < _LEAST_TWICE:
        return None
    off = statistics.median(abs(loss - old) for _, old, loss in pairs)
    expected, seen = (statistics.median(pair[side] for pair in pairs) for side in (1, 2))
    if off <= max(_TWICE * noise, _ROUNDING * abs(expected)):
        return None
    said = (
        f"steps {pairs[0][0]} to {pairs[-1][0]}, done twice, gave other losses: {expected:.4f} before the resume, "
        f"{seen:.4f} after it (medians); they differ by {off:.4f}, the run's noise is {noise:.4f}"
    )
    return _jump(said, pairs[0][0], expected, seen, noise, changed)


def _off(expected: float, off: float, new: Sequence[tuple[int, float]], noise: float, changed: str) -> LossJump:
    said = (
        f"the loss jumped {'up' if off > 0 else 'down'} across the resume: {expected + off:.4f} over steps "
        f"{new[0][0]} to {new[-1][0]}, where the curve promised {expected:.4f} (medians); that is "
        f"{abs(off) / noise:.0f} times the run's noise of {noise:.4f}"
    )
    return _jump(said, new[0][0], expected, expected + off, noise, changed)


def _jump(said: str, first: int, expected: float, seen: float, noise: float, changed: str) -> LossJump:
    said += f"; explained by {changed}" if changed else ""
    return LossJump(said, first, expected, seen, noise, alarm=not changed)


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Slope and level at step 0."""
    slopes = [
        (loss - earlier) / (step - before)
        for (before, earlier), (step, loss) in itertools.combinations(points, 2)
        if step != before
    ]
    slope = statistics.median(slopes) if slopes else 0.0
    return slope, statistics.median(loss - slope * step for step, loss in points)
