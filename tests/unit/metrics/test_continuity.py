"""The learning rate across a resume: restarted warm-up, standing still, and what a recipe explains."""

from __future__ import annotations

import math

import pytest

from pretrainctl.metrics.continuity import check_learning_rate


def test_a_warm_up_that_began_anew() -> None:
    before = [(30248, 1.772e-05), (30249, 1.772e-05), (30250, 1.771e-05)]
    found = check_learning_rate(before, [(30251, 3.75e-08), (30252, 7.5e-08)])
    assert found is not None
    assert found.alarm
    assert "1.771E-05 at step 30250, 3.750E-08 at step 30251 (factor 472 down)" in found.message
    assert "warm-up began anew" in found.message


def test_a_schedule_that_stands_still() -> None:
    before = [(1000, 2.9801e-04), (1001, 2.9800e-04)]
    after = [(1001, 2.9801e-04), (1002, 2.9801e-04), (1050, 2.9801e-04)]
    found = check_learning_rate(before, after)
    assert found is not None
    assert found.alarm
    assert "constant after the resume" in found.message
    assert "step 1001 to 1050" in found.message
    assert check_learning_rate(before, after[:2]) is None, "too early to tell"
    assert check_learning_rate([(1000, 3e-4), (1001, 3e-4)], [(1002, 3e-4), (1050, 3e-4)]) is None, "it is constant"


def test_a_change_that_the_recipe_explains_is_a_note() -> None:
    found = check_learning_rate([(15610, 3e-05)], [(15601, 1.5e-05)], changed="learning_rate x 0.5")
    assert found is not None
    assert not found.alarm
    assert "factor 2 down" in found.message
    assert "learning_rate x 0.5" in found.message
    alone = check_learning_rate([(15610, 3e-05)], [(15601, 1.5e-05)])
    assert alone is not None
    assert alone.alarm


def cosine(step: int) -> float:
    warm = min(1.0, step / 200)
    return 3e-4 * warm * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, step / 4000))))


@pytest.mark.parametrize("resume", [3, 50, 195, 1000, 3990])
@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("back", [0, 30])
def test_a_schedule_that_goes_on(resume: int, every: int, back: int) -> None:
    """In warm-up and in decay, logged at each or at each tenth step, from the last step or from an earlier one."""
    before = [(step, cosine(step)) for step in range(max(1, resume - 40), resume + 1, every)]
    start = max(1, resume - back) + 1
    after = [(step, cosine(step)) for step in range(start, start + 60, every)]
    assert check_learning_rate(before, after) is None


def test_nothing_to_compare() -> None:
    assert check_learning_rate([], [(1, 1e-4)]) is None
    assert check_learning_rate([(1, 1e-4)], []) is None
    assert check_learning_rate([(1, 0.0)], [(2, 1e-4)]) is None
