"""Losses on both sides of a resume, held against the run's own noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from pretrainctl.metrics.loss_jump import check_losses


def early(step: float) -> float:
    return 2.0 + 9.0 * math.exp(-step / 60)


def late(step: float) -> float:
    return 2.0 + 30.0 * step**-0.4


def curve(form: Callable[[float], float], first: int, last: int, noise: float, seed: int = 0, up: float = 0.0):
    rng = random.Random(seed)
    return [(step, form(step) + up + rng.gauss(0, noise)) for step in range(first, last + 1)]


@pytest.mark.parametrize("form", [early, late])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("resumed", [12, 40, 200, 5000])
def test_a_curve_that_goes_on_is_no_jump(form: Callable[[float], float], noise: float, resumed: int) -> None:
    for seed in range(40):
        before = curve(form, max(1, resumed - 60), resumed, noise, seed)
        after = curve(form, resumed + 1, resumed + 10, noise, seed + 1000)
        assert check_losses(before, after, resume_step=resumed) is None, (seed, resumed)


@pytest.mark.parametrize("up", [1.0, -1.0])
def test_a_jump_beyond_the_noise(up: float) -> None:
    before, after = curve(late, 100, 400, 0.05), curve(late, 401, 410, 0.05, 1, up=up)
    found = check_losses(before, after, resume_step=400)
    assert found is not None
    assert found.alarm
    assert f"jumped {'up' if up > 0 else 'down'}" in found.message
    assert found.seen - found.expected == pytest.approx(up, abs=0.15)
    assert 0.02 < found.noise < 0.1
    assert found.first_step == 401


def test_the_noise_is_the_runs_own() -> None:
    jump = {"resume_step": 400}
    assert check_losses(curve(late, 300, 400, 0.3), curve(late, 401, 410, 0.3, 1, up=0.4), **jump) is None
    assert check_losses(curve(late, 300, 400, 0.02), curve(late, 401, 410, 0.02, 1, up=0.4), **jump) is not None


def test_one_spike_on_either_side_is_no_jump() -> None:
    before, after = curve(late, 300, 400, 0.05), curve(late, 401, 410, 0.05, 1)
    before[-3] = (before[-3][0], 40.0)
    after[1] = (after[1][0], 40.0)
    assert check_losses(before, after, resume_step=400) is None


def test_steps_done_twice_give_the_same_loss() -> None:
    before = curve(late, 300, 410, 0.05)
    again = [point for point in before if point[0] > 400]
    assert check_losses(before, again, resume_step=400) is None
    near = [(step, loss * (1 + 5e-4)) for step, loss in again]
    assert check_losses(before, near, resume_step=400) is None, "sums of GPUs have no fixed order"


def test_steps_done_twice_on_other_samples() -> None:
    before, other = curve(late, 300, 410, 0.05), curve(late, 401, 410, 0.05, 7)
    found = check_losses(before, other, resume_step=400)
    assert found is not None
    assert "steps 401 to 405, done twice, gave other losses" in found.message


def test_a_change_that_was_accepted_explains_it() -> None:
    before, after = curve(late, 300, 400, 0.05), curve(late, 401, 410, 0.05, 1, up=1.0)
    found = check_losses(before, after, resume_step=400, changed="training.optimizer.lr")
    assert found is not None
    assert not found.alarm
    assert found.message.endswith("explained by training.optimizer.lr")


def test_too_little_is_not_judged() -> None:
    assert check_losses(curve(late, 1, 7, 0.01), curve(late, 8, 20, 0.01, up=9.0), resume_step=7) is None
    assert check_losses(curve(late, 1, 70, 0.01), curve(late, 71, 72, 0.01, up=9.0), resume_step=70) is None
    assert check_losses([], [], resume_step=0) is None
    lost = [(step, math.nan) for step in range(71, 80)]
    assert check_losses(curve(late, 1, 70, 0.01), lost, resume_step=70) is None
