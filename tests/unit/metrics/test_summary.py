"""What a run's samples add up to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from pretrainctl.metrics.series import Series, read_series
from pretrainctl.metrics.summary import summarize
from pretrainctl.records import codec
from pretrainctl.records.sample import PhaseChange, Recovered, Sample, Saved


def write(path: Path, attempt: int, restart: int, records: Iterable[object]) -> Path:
    file = path / "attempts" / f"{attempt:04d}" / f"restart-{restart}" / "metrics.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(codec.to_json(record)) + "\n" for record in records))
    return file


def steps(first: int, last: int, *, at: float, seconds: float = 2.0, warm_up: float = 30.0, loss: float = 3.0):
    """Steps of 1000 tokens, the first one slow; `at` is when the program began."""
    yield PhaseChange("start", first - 1, at)
    yield PhaseChange("load", first - 1, at + 5)
    time = at + warm_up
    for step in range(first, last + 1):
        took = warm_up if step == first else seconds
        yield Sample(step, step * 1000, loss - step / 1000, 0.3, 1e-4, took, time)
        time += seconds


def test_a_run_with_a_failure(tmp_path: Path) -> None:
    first = [*steps(1, 10, at=100.0), Saved("global_step5", 5, 1.0, 138.5), Saved("global_step10", 10, 3.0, 150.0)]
    # Step 12 of the first start ended at 152; the second begins at 160, does 11 and 12 again, 13 at 194.
    summary = summarize(
        read_series(
            [
                write(tmp_path, 1, 0, [*first, *list(steps(11, 12, at=120.0))[2:]]),
                write(tmp_path, 1, 1, steps(11, 20, at=160.0)),
            ]
        )
    )
    assert (summary.step, summary.tokens, summary.starts) == (20, 20_000, 2)
    assert (summary.steps_done, summary.steps_repeated) == (22, 2)
    assert summary.step_seconds == 2.0
    assert summary.tokens_per_second == 500.0
    assert summary.loss == pytest.approx(2.98)
    assert (summary.loss_min, summary.loss_min_step) == (pytest.approx(2.98), 20)
    assert (summary.saves, summary.checkpoint_seconds) == (2, 2.0)
    assert summary.startup_seconds == (30.0, 30.0)
    assert summary.recovered == (Recovered(1, 1, 12, 13, 42.0),)


def test_the_first_step_of_a_start_is_not_counted_as_speed(tmp_path: Path) -> None:
    paths = [write(tmp_path, number, 0, steps(number, number, at=100.0 * number)) for number in (1, 2, 3)]
    summary = summarize(read_series(paths))
    assert (summary.step_seconds, summary.tokens_per_second) == (None, None)
    assert summary.steps_done == 3


def test_speed_where_not_every_step_has_a_line(tmp_path: Path) -> None:
    records = [Sample(step, step * 1000, 2.0, 0.3, 1e-4, 2.0, 100.0 + 2 * step) for step in range(10, 101, 10)]
    assert summarize(read_series([write(tmp_path, 1, 0, records)])).tokens_per_second == 500.0


def test_time_to_recover_runs_through_starts_that_did_nothing_new(tmp_path: Path) -> None:
    paths = [
        write(tmp_path, 1, 0, steps(1, 20, at=100.0)),  # step 20 at 168
        write(tmp_path, 1, 1, steps(11, 15, at=200.0)),  # repeats only
        write(tmp_path, 2, 0, []),  # died in start-up
        write(tmp_path, 3, 0, steps(11, 25, at=300.0)),  # 21 at 350
        write(tmp_path, 4, 0, steps(26, 30, at=400.0)),  # 25 at 358, 26 at 430
    ]
    summary = summarize(read_series(paths))
    assert summary.recovered == (Recovered(3, 0, 20, 21, 182.0), Recovered(4, 0, 25, 26, 72.0))
    assert summary.startup_seconds == (30.0, 30.0, 30.0, 30.0)
    assert (summary.starts, summary.steps_repeated) == (5, 5 + 10)
    # Where a person kept the run stopped after attempt 3, the wait until attempt 4 is not the run's.
    assert summarize(read_series(paths), resumes=[3]).recovered == (Recovered(3, 0, 20, 21, 182.0),)


def test_after_going_back_a_failure_is_recovered_from_before_the_old_steps_are_passed(tmp_path: Path) -> None:
    paths = [
        write(tmp_path, 1, 0, steps(1, 75, at=100.0)),
        write(tmp_path, 2, 0, steps(41, 61, at=1000.0)),  # from 40, by a person; 61 at 1070
        write(tmp_path, 2, 1, steps(61, 80, at=1100.0)),  # 61 again, 62 at 1132
        write(tmp_path, 3, 0, steps(76, 85, at=2000.0)),  # 80 at 1168; 81 at 2040
    ]
    assert summarize(read_series(paths, {1: 40}), resumes=[1]).recovered == (
        Recovered(2, 1, 61, 62, 62.0),
        Recovered(3, 0, 80, 81, 872.0),
    )
    assert summarize(read_series(paths, {1: 40}), resumes=[1]).steps_repeated == 35 + 1 + 5


def test_where_the_run_stands_while_steps_are_done_again(tmp_path: Path) -> None:
    paths = [
        write(tmp_path, 1, 0, steps(1, 20, at=100.0)),
        write(tmp_path, 1, 1, steps(11, 15, at=200.0, loss=9.0)),
        write(tmp_path, 1, 2, []),
    ]
    summary = summarize(read_series(paths))
    assert (summary.step, summary.tokens) == (15, 15_000)
    assert summary.loss == pytest.approx(9.0 - 0.015)
    assert summary.loss_min == pytest.approx(2.98)
    assert summary.recovered == ()


def test_a_loss_that_is_no_number_is_shown_but_is_no_minimum(tmp_path: Path) -> None:
    records = [*steps(1, 3, at=100.0), Sample(4, 4000, math.nan, 0.3, 1e-4, 2.0, 140.0)]
    summary = summarize(read_series([write(tmp_path, 1, 0, records)]))
    assert summary.loss is not None
    assert math.isnan(summary.loss)
    assert summary.loss_min_step == 3


def test_nothing_yet() -> None:
    summary = summarize(Series())
    assert (summary.step, summary.tokens, summary.starts, summary.steps_done) == (0, 0, 0, 0)
    assert summary.tokens_per_second is summary.loss is summary.loss_min is summary.checkpoint_seconds is None
    assert summary.startup_seconds == summary.recovered == ()


def test_a_summary_goes_through_json(tmp_path: Path) -> None:
    summary = summarize(read_series([write(tmp_path, 1, 0, steps(1, 5, at=100.0))]))
    assert codec.from_json(type(summary), json.loads(json.dumps(codec.to_json(summary)))) == summary
