"""The `metrics.jsonl` files of a run, one a start of the training program, joined into one series.

A step that was done again counts as the newest start did it. Only the last line of a file may be torn (its
writer was killed); a line that cannot be read elsewhere is counted, never passed over in silence. Columns of
numbers, not objects: a run has millions of steps.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter, lt
from pathlib import Path
from typing import Any

from pretrainctl.errors import LedgerError
from pretrainctl.records.sample import Sample, Saved

__all__ = ["Series", "Start", "read_series"]

_FIELDS = ("step", "tokens", "loss", "grad_norm", "lr", "seconds", "time")
_TYPES = "qqddddd"
_BATCH = 4096
_LATER = ("step", "checkpoint", "evaluation", "end")
"""Phases with which no program begins."""
_PLACE = re.compile(r"attempts/(\d+)/restart-(\d+)/[^/]*$")


@dataclass
class Start:
    """One start of the program: times are epoch seconds, None where it did not get so far.

    `begun` is its first phase, where that is one of its start. `first_new` is the first step that no earlier start had
    done, or none since a person went back to before it.
    """

    attempt: int
    restart: int
    begun: float | None = None
    first_step: int | None = None
    first_time: float | None = None
    last_step: int | None = None
    last_tokens: int = 0
    last_time: float | None = None
    first_new_step: int | None = None
    first_new_time: float | None = None


@dataclass
class Series:
    """Samples by step, in columns of equal length ordered by step, and what each start did.

    `warm` is 0 for the first step of a start, whose duration says little. `steps_done` counts every step
    line, `steps_repeated` those whose step an earlier line had.
    """

    step: array[int] = field(default_factory=lambda: array("q"))
    tokens: array[int] = field(default_factory=lambda: array("q"))
    loss: array[float] = field(default_factory=lambda: array("d"))
    grad_norm: array[float] = field(default_factory=lambda: array("d"))
    lr: array[float] = field(default_factory=lambda: array("d"))
    seconds: array[float] = field(default_factory=lambda: array("d"))
    time: array[float] = field(default_factory=lambda: array("d"))
    warm: array[int] = field(default_factory=lambda: array("b"))
    starts: list[Start] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    steps_done: int = 0
    steps_repeated: int = 0
    broken_lines: int = 0
    torn_files: int = 0

    def samples(self) -> Iterator[Sample]:
        """The samples in the order of steps."""
        for row in zip(
            self.step, self.tokens, self.loss, self.grad_norm, self.lr, self.seconds, self.time, strict=True
        ):
            yield Sample(*row)


def read_series(paths: Iterable[Path], ways_back: Mapping[int, int] | None = None) -> Series:
    """Join the files of a run's starts; a file that does not exist is a start without samples.

    `ways_back`: the step to which a person had the run go back, by the newest attempt before.

    Order is (attempt, restart) as the paths name them, else the order given. LedgerError for a file that
    cannot be read.
    """
    reader = _Reader(ways_back or {})
    for place, path in sorted(
        ((_place(path, index), path) for index, path in enumerate(paths)), key=lambda pair: pair[0]
    ):
        reader.read(path, Start(*place))
    reader.order()
    return reader.series


def _place(path: Path, index: int) -> tuple[int, int]:
    match = _PLACE.search(path.as_posix())
    return (int(match[1]), int(match[2])) if match else (0, index)


class _Reader:
    def __init__(self, ways_back: Mapping[int, int]) -> None:
        self.ways_back = dict(ways_back)
        self.series = Series()
        self.columns: tuple[array[Any], ...] = tuple(getattr(self.series, name) for name in (*_FIELDS, "warm"))
        self.rows: dict[int, int] = {}
        self.highest = 0
        self.reached = 0

    def read(self, path: Path, start: Start) -> None:
        series = self.series
        series.starts.append(start)
        for attempt in [attempt for attempt in sorted(self.ways_back) if attempt < start.attempt]:
            self.reached = min(self.reached, self.ways_back.pop(attempt))
        before = self.reached
        broken = False
        decode = json.JSONDecoder().raw_decode
        fields = itemgetter(*_FIELDS)
        steps: list[tuple[Any, ...]] = []
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    # Only now is it known that the broken line was not the last one.
                    if broken:
                        series.broken_lines += 1
                    broken = False
                    try:
                        entry, end = decode(line)
                        if line[end:].strip():
                            broken = True
                        elif entry["kind"] == "step":
                            steps.append(fields(entry))
                        else:
                            self._other(entry, start, stepped=bool(steps) or start.last_step is not None)
                    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                        broken = True
                    if len(steps) == _BATCH:
                        self._take(steps, start, before)
                        steps.clear()
        except FileNotFoundError:
            return
        except OSError as error:
            raise LedgerError(f"{path} cannot be read: {error.strerror}") from error
        self._take(steps, start, before)
        if broken:
            series.torn_files += 1

    def _other(self, entry: dict[str, Any], start: Start, *, stepped: bool) -> None:
        time = float(entry["time"])
        if entry["kind"] == "phase":
            # Where the beginning of the file is gone, the first phase that is left began nothing.
            if start.begun is None and not stepped and entry["phase"] not in _LATER:
                start.begun = time
        elif entry["kind"] == "saved":
            saved = Saved(str(entry["tag"]), int(entry["step"]), float(entry["seconds"]), time)
            self.series.saved.append(saved)
        else:
            raise ValueError(entry["kind"])

    def _take(self, rows: list[tuple[Any, ...]], start: Start, before: int) -> None:
        """Take step lines in, many at once: this is where the time goes in a long run."""
        try:
            typed = [array(code, column) for code, column in zip(_TYPES, zip(*rows, strict=True), strict=False)]
        except (TypeError, OverflowError):
            good = [row for row in rows if _is_typed(row)]
            self.series.broken_lines += len(rows) - len(good)
            self._take(good, start, before)
            return
        if not typed:
            return
        step, tokens, time = typed[0], typed[1], typed[-1]
        typed.append(array("b", [1] * len(step)))
        if start.last_step is None:
            typed[-1][0] = 0
            start.first_step, start.first_time = step[0], time[0]
        if start.first_new_step is None:
            at = next((index for index, number in enumerate(step) if number > before), None)
            if at is not None:
                start.first_new_step, start.first_new_time = step[at], time[at]
        start.last_step, start.last_tokens, start.last_time = step[-1], tokens[-1], time[-1]
        self.series.steps_done += len(step)
        if step[0] > self.highest and all(map(lt, step, step[1:])):
            self.rows.update(zip(step, range(len(self.rows), len(self.rows) + len(step)), strict=True))
            for column, new in zip(self.columns, typed, strict=True):
                column.extend(new)
        else:
            for row in zip(*typed, strict=True):
                self._store(row)
        self.highest = max(self.highest, *step)
        self.reached = max(self.reached, *step)

    def _store(self, row: tuple[Any, ...]) -> None:
        at = self.rows.setdefault(row[0], len(self.rows))
        if at < len(self.series.step):
            self.series.steps_repeated += 1
            for column, value in zip(self.columns, row, strict=True):
                column[at] = value
        else:
            for column, value in zip(self.columns, row, strict=True):
                column.append(value)

    def order(self) -> None:
        """Put the columns in the order of steps, where they are not in it already."""
        steps = self.series.step
        if all(map(lt, steps, steps[1:])):
            return
        order = sorted(range(len(steps)), key=steps.__getitem__)
        for column in self.columns:
            column[:] = array(column.typecode, [column[place] for place in order])


def _is_typed(row: tuple[Any, ...]) -> bool:
    try:
        for code, value in zip(_TYPES, row, strict=True):
            array(code, (value,))
    except (TypeError, OverflowError):
        return False
    return True
