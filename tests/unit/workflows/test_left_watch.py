"""A rank that left with status 0 while the others wait, as the attempt sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.records import codec
from pretrainctl.records.contract import Failure
from pretrainctl.records.launch import HangRule
from pretrainctl.recovery.pace import Pace
from pretrainctl.workflows.attempt.left_watch import LeftWatch


class Start:
    """A start of a program of 100 steps, of which rank `left` leaves after `step`, in `phase`, at second 0."""

    def __init__(self, folder: Path, *, left: int, step: int = 30, phase: str = "step", asked: bool = False) -> None:
        self.now = 0.0
        self.asked = asked
        self.pace = Pace(HangRule(), nodes=2, save_lead=60)
        self.pace.begin(0.0)
        self.pace.hear({"kind": "step", "step": step}, 0.0)
        if phase != "step":
            self.pace.hear({"kind": "phase", "phase": phase, "step": step}, 0.0)
        self.watch = LeftWatch(folder, 100, clock=lambda: self.now)
        codec.write(folder / "left.json", Failure(left, "node02", 0, 1.7e9))

    def noticed(self, within: float, *, steps: bool = False) -> float | None:
        """Seconds until it is noticed, None where it is not; with `steps`, one is done each second."""
        while self.now < within:
            if steps:
                self.pace.hear({"kind": "step", "step": self.pace.step + 1}, self.now)
            if self.watch.tick(self.pace, asked=self.asked):
                return self.now
            self.now += 1.0
        return None


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_gone_is_noticed_within_a_short_grace(tmp_path: Path, rank: int) -> None:
    seconds = Start(tmp_path, left=rank).noticed(60)
    assert seconds is not None
    assert 5 <= seconds <= 12


def test_what_rank_0_does_at_the_end_alone_is_its_own_time(tmp_path: Path) -> None:
    assert Start(tmp_path, left=1, step=100).noticed(60) is None


@pytest.mark.parametrize("phase", ["checkpoint", "evaluation"])
def test_rank_0_may_save_or_evaluate_alone(tmp_path: Path, phase: str) -> None:
    assert Start(tmp_path, left=1, phase=phase).noticed(60) is None


def test_ranks_that_were_asked_to_save_leave_one_by_one(tmp_path: Path) -> None:
    assert Start(tmp_path, left=1, asked=True).noticed(60) is None


def test_where_steps_go_on_nobody_is_missed(tmp_path: Path) -> None:
    assert Start(tmp_path, left=1, step=1).noticed(60, steps=True) is None


def test_no_record_no_end(tmp_path: Path) -> None:
    watch = LeftWatch(tmp_path, 100, clock=lambda: 1e9)
    assert not watch.tick(Pace(HangRule(), nodes=1, save_lead=1), asked=False)
