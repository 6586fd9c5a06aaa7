"""What a series adds up to: speed, loss, what failures cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from pretrainctl.metrics.series import Series, Start
from pretrainctl.records.sample import Recovered, Summary

__all__ = ["summarize"]


def summarize(series: Series, resumes: Sequence[int] = ()) -> Summary:
    """The figures of a run so far; see `records.sample.Summary` for what each one is.

    `resumes` are the newest attempts at each `resume`: the time before one is a person's, not the run's to recover.
    """
    stands = next((start for start in reversed(series.starts) if start.last_step is not None), None)
    finite = [(loss, step) for loss, step in zip(series.loss, series.step, strict=True) if math.isfinite(loss)]
    lowest = min(finite, default=None)
    return Summary(
        step=stands.last_step or 0 if stands is not None else 0,
        tokens=stands.last_tokens if stands is not None else 0,
        starts=len(series.starts),
        steps_done=series.steps_done,
        steps_repeated=series.steps_repeated,
        step_seconds=_median(
            [seconds for seconds, warm in zip(series.seconds, series.warm, strict=True) if warm and seconds > 0]
        ),
        tokens_per_second=_median(_rates(series)),
        loss=_loss_at(series, stands),
        loss_min=lowest[0] if lowest else None,
        loss_min_step=lowest[1] if lowest else None,
        saves=len(series.saved),
        checkpoint_seconds=_median([saved.seconds for saved in series.saved]),
        startup_seconds=tuple(
            start.first_time - start.begun
            for start in series.starts
            if start.first_time is not None and start.begun is not None
        ),
        recovered=tuple(_recovered(series.starts, resumes)),
        broken_lines=series.broken_lines,
        torn_files=series.torn_files,
    )


def _rates(series: Series) -> list[float]:
    """Tokens a second of each step; lines may be several steps apart, and steps of a start may be gone."""
    rates = []
    step_before, tokens_before = 0, 0
    for step, tokens, seconds, warm in zip(series.step, series.tokens, series.seconds, series.warm, strict=True):
        if warm and seconds > 0 and tokens > tokens_before:
            rates.append((tokens - tokens_before) / (step - step_before) / seconds)
        step_before, tokens_before = step, tokens
    return rates


def _loss_at(series: Series, stands: Start | None) -> float | None:
    """The newest start's last loss, which is not the highest step's while steps are done again."""
    if stands is None or stands.last_step is None:
        return None
    return series.loss[series.step.index(stands.last_step)]


def _recovered(starts: Sequence[Start], resumes: Sequence[int]) -> list[Recovered]:
    found = []
    before: Start | None = None
    for start in starts:
        if (
            before is not None
            and before.last_step is not None
            and before.last_time is not None
            and start.first_new_step is not None
            and start.first_new_time is not None
            and not any(before.attempt <= attempt < start.attempt for attempt in resumes)
        ):
            found.append(
                Recovered(
                    start.attempt,
                    start.restart,
                    before.last_step,
                    start.first_new_step,
                    start.first_new_time - before.last_time,
                )
            )
        # A start that did nothing new leaves the wait running: it is part of the time to recover.
        if before is None or start.first_new_step is not None:
            before = start
    return found


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
