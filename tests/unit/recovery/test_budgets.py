"""What may be spent before somebody has to look."""

from __future__ import annotations

import pytest

from pretrainctl.records.launch import RecoveryRule
from pretrainctl.records.run import Action, Decision
from pretrainctl.recovery.budgets import Opened, Spent, check_going_back, check_node_hours, check_spent
from pretrainctl.recovery.decision import RestartSummary, hold_to_limits

GO_ON = Decision(Action.RESTART_HERE, "why")


def test_without_limits_nothing_is_too_much() -> None:
    assert not check_spent(Spent(failures=1000, node_hours=1e9), RecoveryRule())


def test_restarts_in_an_hour() -> None:
    rule = RecoveryRule(restarts_per_hour=3)
    assert not check_spent(Spent(failures=3), rule)
    assert check_spent(Spent(failures=4), rule).startswith("4 failures within an hour, and the recipe allows a restart")


def test_node_hours() -> None:
    rule = RecoveryRule(node_hours=10)
    assert not check_node_hours(Spent(node_hours=9.99), rule)
    told = check_node_hours(Spent(failures=9, node_hours=10.25), rule)
    assert "10.25 node-hours" in told
    assert "allows 10 (recovery.node_hours)" in told


def opened(*steps: tuple[int, int | None]) -> list[Opened]:
    return [Opened(step, saved) for step, saved in steps]


@pytest.mark.parametrize(
    "gates",
    [
        opened((0, None)),
        opened((0, None), (80, 80), (80, 80), (80, 80), (80, 80)),  # torn saves: nothing newer was ever complete
        opened((0, None), (80, 100), (60, 100)),  # two of the newest are bad, one after the other
        opened((0, None), (80, 100), (120, 120), (100, 140), (160, 160), (140, 180), (200, 200)),  # it gets further
    ],
)
def test_going_back_that_is_allowed(gates: list[Opened]) -> None:
    assert not check_going_back(gates, RecoveryRule())


def test_going_back_a_third_time() -> None:
    gates = opened((0, None), (80, 100), (60, 100), (40, 100))
    told = check_going_back(gates, RecoveryRule())
    assert "3 times in a row" in told
    assert "step 80, 60, 40" in told
    assert not check_going_back(gates, RecoveryRule(older_checkpoints=3))
    assert check_going_back(opened((0, None), (80, 100)), RecoveryRule(older_checkpoints=0))


def test_newer_saves_that_are_bad_again_count_on() -> None:
    assert "3 times" in check_going_back(opened((80, 80), (80, 100), (80, 101), (80, 102)), RecoveryRule())


def early(*kinds: str, seconds: float = 5.0, nodes: tuple[str, ...] = (), end: int | None = None):
    return [RestartSummary(1, number, kind, 0, end, 0, nodes, seconds) for number, kind in enumerate(kinds)]


def held(history, found: Decision = GO_ON, **rule) -> Action:
    return hold_to_limits(found, history, RecoveryRule(**rule), Spent()).action


def test_starts_that_fail_early_whatever_the_class() -> None:
    assert held(early("port_in_use", "host_oom")) is Action.RESTART_HERE
    assert held(early("port_in_use", "host_oom", "port_in_use")) is Action.STOP


def test_failures_that_are_not_early() -> None:
    assert held(early(*["hang"] * 3, seconds=61.0)) is Action.RESTART_HERE
    assert held(early(*["hang"] * 3, end=4)) is Action.RESTART_HERE, "it did a step"
    waits = Decision(Action.RESTART_HERE, "why", pause=30.0)
    assert held(early(*["filesystem"] * 3), waits) is Action.RESTART_HERE, "a pause gives it its time"


def test_one_node_explains_early_failures() -> None:
    assert held(early(*["fabric"] * 3, nodes=("node03",))) is Action.RESTART_HERE
    assert held(early(*["fabric"] * 3, nodes=("node03", "node04"))) is Action.STOP
    assert held(early("gpu_hardware", "fabric", "gpu_hardware", nodes=("node03",))) is Action.RESTART_HERE
    assert held(early(*["node_failure"] * 3)) is Action.RESTART_HERE


def test_a_spent_budget_stops_what_would_go_on_and_nothing_else() -> None:
    spent = Spent(node_hours=11.0)
    rule = RecoveryRule(node_hours=10.0)
    stopped = hold_to_limits(Decision(Action.HAND_OVER, "the time limit"), [], rule, spent)
    assert stopped.action is Action.STOP
    assert stopped.reason.startswith("the time limit; but 11 node-hours are used")
    finished = Decision(Action.FINISH, "reached")
    assert hold_to_limits(finished, [], rule, spent) is finished
