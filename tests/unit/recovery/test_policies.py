"""Policies that a recipe changes, and those that it cannot."""

from __future__ import annotations

import pytest

from pretrainctl.errors import InputError
from pretrainctl.records.launch import RecoveryRule
from pretrainctl.records.run import Action, Decision, Diagnosis
from pretrainctl.recovery.decision import RestartSummary, course_of, decide, decide_after_attempt
from pretrainctl.recovery.policies import POLICIES, Course, FailureClass, check_policies, policy_of

OVER = {"checkpointed", "time_limit", "preempted"}


def decision(kind: str, course: str, *, times: int = 1, nodes: tuple[str, ...] = ("node03",)) -> Decision:
    history = [RestartSummary(1, number, kind, 0, 10, 5, nodes) for number in range(times)]
    rule = RecoveryRule(policies={kind: course})
    return decide(Diagnosis(kind, "why", nodes=nodes), history, rule, healthy_nodes=3, needed_nodes=2)


@pytest.mark.parametrize(
    "kind", ["gpu_oom", "hang", "unknown", "filesystem", "node_failure", "preempted", "time_limit"]
)
def test_stop(kind: str) -> None:
    found = decision(kind, "stop")
    assert found.action is Action.STOP
    assert "recovery.policies" in found.reason
    rule = RecoveryRule(policies={kind: "stop"})
    assert decide_after_attempt(Diagnosis(kind, "why"), [], rule) is not None
    assert course_of(Diagnosis(kind, "why"), rule) is Course.STOP


def test_restart_where_it_would_stop() -> None:
    assert decision("divergence", "restart", times=3).action is Action.RESTART_HERE
    assert decision("environment", "restart_once").action is Action.RESTART_HERE
    assert decision("environment", "restart_once", times=2).action is Action.STOP
    assert decision("gpu_oom", "restart", times=5).action is Action.RESTART_HERE


def test_hand_over_and_leave_out() -> None:
    assert decision("hang", "hand_over").action is Action.HAND_OVER
    assert decision("hang", "restart").exclude == ()
    assert decision("hang", "exclude_node").exclude == ("node03",)


def test_what_lasts_stops_all_the_same() -> None:
    lasting = Diagnosis("gpu_oom", "why", lasting=True)
    rule = RecoveryRule(policies={"gpu_oom": "restart"})
    history = [RestartSummary(1, 0, "gpu_oom", 0, 10, 5)]
    assert decide(lasting, history, rule, healthy_nodes=2, needed_nodes=2).action is Action.STOP


def test_other_classes_stay_as_they_are() -> None:
    chosen = {"gpu_oom": "stop"}
    for kind in set(FailureClass) - {FailureClass.GPU_OOM}:
        assert policy_of(kind, chosen) is POLICIES[kind]


def test_names_are_strict() -> None:
    with pytest.raises(InputError, match="'gpu_ooom' is no failure class") as found:
        check_policies({"gpu_ooom": "stop"})
    assert found.value.hint == "did you mean 'gpu_oom'?"
    with pytest.raises(InputError, match="'restrat' is nothing") as found:
        check_policies({"hang": "restrat"})
    assert found.value.hint == "did you mean 'restart'?"
    with pytest.raises(InputError, match="'finish' is nothing"):
        check_policies({"hang": "finish"})


@pytest.mark.parametrize("kind", ["finished", "fenced", "user_cancel", "admin_cancel", "stopped", "changed", "budget"])
def test_some_are_not_for_a_recipe_to_change(kind: str) -> None:
    with pytest.raises(InputError, match=f"recovery.policies.{kind} cannot be changed from .*: "):
        check_policies({kind: "restart"})
    assert policy_of(FailureClass(kind), {kind: "restart"}) is POLICIES[FailureClass(kind)]


@pytest.mark.parametrize("kind", sorted(OVER))
def test_an_allocation_that_ends_cannot_be_restarted_in(kind: str) -> None:
    with pytest.raises(InputError, match="can only be handed over or stopped"):
        check_policies({kind: "restart"})
    check_policies({kind: "stop"})
