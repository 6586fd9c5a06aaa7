"""Joining the metrics files of a run's starts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from pretrainctl.errors import LedgerError
from pretrainctl.metrics.series import read_series
from pretrainctl.metrics.summary import summarize
from pretrainctl.records import codec
from pretrainctl.records.sample import PhaseChange, Sample, Saved


def sample(step: int, *, loss: float = 2.0, time: float | None = None, seconds: float = 0.5) -> Sample:
    return Sample(step, step * 100, loss, 0.3, 1e-4, seconds, 1000.0 + step if time is None else time)


def lines(*records: object) -> str:
    return "".join(json.dumps(codec.to_json(record)) + "\n" for record in records)


class Run:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.paths: list[Path] = []

    def start(self, attempt: int, restart: int, text: str | None) -> Path:
        path = self.path / "attempts" / f"{attempt:04d}" / f"restart-{restart}" / "metrics.jsonl"
        path.parent.mkdir(parents=True)
        if text is not None:
            path.write_text(text)
        self.paths.append(path)
        return path


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_one_start(run: Run) -> None:
    samples = [sample(step) for step in range(1, 6)]
    saved = Saved("global_step3", 3, 0.25, 1003.5)
    run.start(
        1, 0, lines(PhaseChange("start", 0, 995.0), *samples[:3], saved, *samples[3:], PhaseChange("end", 5, 1006))
    )
    series = read_series(run.paths)
    assert list(series.samples()) == samples
    assert series.saved == [saved]
    assert list(series.warm) == [0, 1, 1, 1, 1]
    (start,) = series.starts
    assert (start.attempt, start.restart, start.begun) == (1, 0, 995.0)
    assert (start.first_step, start.first_time, start.last_step, start.last_time) == (1, 1001.0, 5, 1005.0)
    assert (series.steps_done, series.steps_repeated, series.broken_lines, series.torn_files) == (5, 0, 0, 0)


def test_the_newest_start_wins_by_number_not_by_order_of_the_paths(run: Run) -> None:
    run.start(10, 0, lines(sample(6, loss=1.0), sample(7, loss=1.0)))
    run.start(9, 1, lines(sample(4, loss=2.0), sample(5, loss=2.0), sample(6, loss=2.0)))
    run.start(9, 0, lines(*[sample(step, loss=3.0) for step in range(1, 6)]))
    series = read_series(run.paths)
    assert list(series.step) == [1, 2, 3, 4, 5, 6, 7]
    assert list(series.loss) == [3.0, 3.0, 3.0, 2.0, 2.0, 1.0, 1.0]
    assert (series.steps_done, series.steps_repeated) == (10, 3)
    assert [(start.attempt, start.restart, start.first_new_step) for start in series.starts] == [
        (9, 0, 1),
        (9, 1, 6),
        (10, 0, 7),
    ]


def test_a_branch_that_got_further_stays_where_it_was_not_done_again(run: Run) -> None:
    run.start(1, 0, lines(*[sample(step, loss=3.0) for step in range(1, 21)]))
    run.start(2, 0, lines(*[sample(step, loss=2.0) for step in range(11, 14)]))
    series = read_series(run.paths)
    assert list(series.step) == list(range(1, 21))
    assert [series.loss[step - 1] for step in (10, 11, 13, 14)] == [3.0, 2.0, 2.0, 3.0]
    assert series.starts[1].first_new_step is None


def test_steps_of_a_file_out_of_order(run: Run) -> None:
    run.start(1, 0, lines(sample(5), sample(2), sample(9), sample(2, loss=1.0)))
    series = read_series(run.paths)
    assert (list(series.step), series.loss[0], series.steps_repeated) == ([2, 5, 9], 1.0, 1)


def test_a_start_without_a_file_or_without_lines(run: Run) -> None:
    run.start(1, 0, None)
    run.start(1, 1, "")
    series = read_series(run.paths)
    assert (len(series.starts), series.steps_done) == (2, 0)
    assert read_series([]).starts == []


@pytest.mark.parametrize("cut", range(1, 110, 7))
def test_only_the_last_line_may_be_torn(run: Run, cut: int) -> None:
    whole = lines(sample(1), sample(2))
    run.start(1, 0, whole + lines(sample(3))[:cut])
    run.start(1, 1, lines(sample(3)))
    series = read_series(run.paths)
    assert list(series.step) == [1, 2, 3]
    assert (series.torn_files, series.broken_lines) == (1, 0)


def test_a_whole_last_line_without_its_newline_counts(run: Run) -> None:
    run.start(1, 0, lines(sample(1), sample(2)).rstrip("\n"))
    assert list(read_series(run.paths).step) == [1, 2]
    assert read_series(run.paths).torn_files == 0


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "",
        "null",
        "[1, 2]",
        '"text"',
        "\0\0\0\0",
        '{"kind": "other"}',
        '{"step": 2}',
        lines(sample(2)).strip() * 2,
        lines(sample(2)).replace('"step": 2', '"step": "2"').strip(),
        lines(sample(2)).replace('"step": 2', '"step": 2.5').strip(),
        lines(sample(2)).replace('"step": 2', f'"step": {2**70}').strip(),
        lines(sample(2)).replace('"loss": 2.0', '"loss": null').strip(),
        lines(sample(2)).replace('"tokens": 200, ', "").strip(),
        '{"kind": "saved", "tag": "x", "step": 1, "seconds": null, "time": 1}',
        '{"kind": "phase", "phase": "start"}',
    ],
)
def test_a_broken_line_elsewhere_is_counted(run: Run, bad: str) -> None:
    run.start(1, 0, lines(sample(1)) + bad + "\n" + lines(sample(3)))
    series = read_series(run.paths)
    assert list(series.step) == [1, 3]
    assert (series.broken_lines, series.torn_files) == (1, 0)
    assert {len(column) for column in (series.tokens, series.loss, series.seconds, series.time, series.warm)} == {2}


def test_losses_that_are_no_numbers(run: Run) -> None:
    run.start(1, 0, lines(sample(1), sample(2, loss=math.nan), sample(3, loss=math.inf)))
    assert math.isnan(read_series(run.paths).loss[1])
    assert read_series(run.paths).loss[2] == math.inf


def test_more_lines_than_are_taken_at_once(run: Run) -> None:
    steps = 10_000
    text = lines(*[sample(step) for step in range(1, steps + 1)])
    broken = text.replace('"tokens": 700000,', '"tokens": "x",')
    run.start(1, 0, broken)
    run.start(2, 0, lines(*[sample(step, loss=1.0) for step in range(5001, 5011)]))
    series = read_series(run.paths)
    assert len(series.step) == steps - 1
    assert 7000 not in series.step
    assert (series.broken_lines, series.steps_repeated) == (1, 10)
    assert (series.loss[4999], series.loss[5000], series.loss[5009], series.loss[5010]) == (2.0, 1.0, 1.0, 2.0)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be read"):
        read_series([tmp_path])


def test_paths_of_no_run_keep_their_order(tmp_path: Path) -> None:
    for name, loss in (("b", 2.0), ("a", 1.0)):
        (tmp_path / name).write_text(lines(sample(1, loss=loss)))
    assert list(read_series([tmp_path / "b", tmp_path / "a"]).loss) == [1.0]


@pytest.mark.parametrize("left", [(), ("checkpoint",), ("step", "checkpoint")])
def test_a_file_that_lost_its_beginning_tells_no_start_up(run: Run, left: tuple[str, ...]) -> None:
    phases = "".join(f'{{"kind": "phase", "phase": "{name}", "step": 3, "time": 1.0}}\n' for name in left)
    late = '{"kind": "phase", "phase": "start", "step": 3, "time": 900.0}\n'
    run.start(1, 0, phases + lines(sample(4)) + late)
    series = read_series(run.paths)
    assert series.starts[0].begun is None
    assert summarize(series).startup_seconds == ()
    assert series.broken_lines == 0
