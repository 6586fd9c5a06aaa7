"""Diagnosis to decision, and the end of what gets nowhere."""

from __future__ import annotations

import pytest

from pretrainctl.records.launch import RecoveryRule
from pretrainctl.records.run import Action, Decision, Diagnosis
from pretrainctl.recovery.budgets import Spent
from pretrainctl.recovery.decision import (
    AttemptSummary,
    RestartSummary,
    decide,
    decide_after_attempt,
    hint_of,
    hold_to_limits,
    progress_gate,
    stops_chain,
)
from pretrainctl.recovery.policies import POLICIES, Course, FailureClass

RULE = RecoveryRule()
STOPS = [
    *("divergence", "config", "environment", "quota", "checkpoint_world_size"),
    *("user_cancel", "admin_cancel", "stopped", "fenced", "changed", "budget"),
]


def restarts(*ends: tuple[str, int | None, int], attempt: int = 1) -> list[RestartSummary]:
    """(class, end step, newest complete checkpoint) of the restarts of one attempt."""
    return [RestartSummary(attempt, number, kind, 0, end, saved) for number, (kind, end, saved) in enumerate(ends)]


def decision(kind: str, history=None, *, healthy: int = 2, needed: int = 2, **options) -> Decision:
    history = history or restarts((kind, 10, 5))
    diagnosis = Diagnosis(kind, "why", nodes=("node03",))
    return decide(diagnosis, history, RULE, healthy_nodes=healthy, needed_nodes=needed, **options)


@pytest.mark.parametrize("kind", [kind.value for kind in FailureClass])
def test_every_class_has_one_decision(kind: str) -> None:
    expected = {
        "finished": Action.FINISH,
        "time_limit": Action.HAND_OVER,
        "preempted": Action.HAND_OVER,
        "checkpointed": Action.HAND_OVER,
    } | dict.fromkeys(STOPS, Action.STOP)
    found = decision(kind, healthy=3)
    assert found.action is expected.get(kind, Action.RESTART_HERE)
    assert found.reason.startswith("why")


def test_a_dead_node_with_a_spare() -> None:
    found = decision("node_failure", healthy=2)
    assert (found.action, found.exclude) == (Action.RESTART_HERE, ("node03",))


def test_a_dead_node_without_a_spare() -> None:
    found = decision("node_failure", healthy=1)
    assert (found.action, found.exclude) == (Action.HAND_OVER, ("node03",))
    assert "1 healthy" in found.reason


def test_each_tag_that_cannot_be_loaded_is_an_error_of_its_own() -> None:
    def history(*refused: str) -> list[RestartSummary]:
        kind = "checkpoint_incomplete"
        return [RestartSummary(1, i, kind, 0, None, 0, seconds=9.0, refused=tag) for i, tag in enumerate(refused)]

    three = history("global_step60", "global_step40", "global_step20")
    found = decision("checkpoint_incomplete", three)
    assert (found.action, found.pause) == (Action.RESTART_HERE, 0.0)
    assert hold_to_limits(found, three, RULE, Spent()).action is Action.RESTART_HERE, "the gate counts these"
    for same in (history("global_step60", "global_step60"), history("", "")):
        assert decision("checkpoint_incomplete", same).action is Action.STOP


def test_the_node_count_is_never_lowered() -> None:
    for healthy in range(4):
        assert decision("node_failure", healthy=healthy, needed=4).action is Action.HAND_OVER


def test_an_allocation_that_ends() -> None:
    assert decision("node_failure", job_is_ending=True).action is Action.HAND_OVER
    assert decision("checkpointed", job_is_ending=True, false_alarm=True).action is Action.HAND_OVER


def test_ranks_that_left_for_a_false_alarm_start_again_here() -> None:
    assert decision("checkpointed").action is Action.HAND_OVER
    assert decision("checkpointed", false_alarm=True).action is Action.RESTART_HERE
    assert decision("checkpointed", false_alarm=True, healthy=1).action is Action.HAND_OVER


def test_the_budget_of_an_attempt() -> None:
    budget = RULE.restarts_per_attempt
    ends = [("node_failure", step, step) for step in range(budget + 1)]
    assert decision("node_failure", restarts(*ends[:budget])).action is Action.RESTART_HERE
    found = decision("node_failure", restarts(*ends))
    assert found.action is Action.HAND_OVER
    assert f"all {budget} restarts" in found.reason


@pytest.mark.parametrize("kind", ["application_error", "host_oom", "gpu_oom", "checkpoint_incomplete"])
@pytest.mark.parametrize("step", [None, 17])
def test_the_same_error_twice_at_the_same_step(kind: str, step: int | None) -> None:
    found = decision(kind, restarts((kind, step, 5), (kind, step, 5)))
    assert found.action is Action.STOP
    assert "twice in a row" in found.reason
    later = [*restarts((kind, step, 5)), *restarts((kind, step, 5), attempt=2)]
    assert decision(kind, later).action is Action.STOP, "in two attempts as well"


@pytest.mark.parametrize(
    "ends",
    [
        [("application_error", 17, 5)],
        [("application_error", 17, 5), ("application_error", 18, 5)],
        [("application_error", 17, 5), ("application_error", 17, 10)],
        [("node_failure", 17, 5), ("application_error", 17, 5)],
        [("application_error", 17, 5), ("node_failure", 12, 5), ("application_error", 17, 5)],
    ],
    ids=["once", "another step", "a newer checkpoint", "another class", "not in a row"],
)
def test_an_error_that_may_be_a_one_off(ends) -> None:
    assert decision("application_error", restarts(*ends)).action is Action.RESTART_HERE


@pytest.mark.parametrize("kind", ["node_failure", "hang", "fabric", "collective_timeout", "port_in_use"])
def test_a_fault_of_the_machine_may_come_twice(kind: str) -> None:
    assert decision(kind, restarts((kind, 17, 5), (kind, 17, 5))).action is Action.RESTART_HERE


NOBODY_KNOWS = [
    Diagnosis("unknown", "why"),
    Diagnosis("application_error", "rank 0 ended with status 1", confidence="low"),
]
PAUSES = [
    (Diagnosis("filesystem", "why"), (30, 120)),
    (Diagnosis("filesystem", "the disk is full", lasting=True), (30, 120)),
    *[(one, (0, 120)) for one in NOBODY_KNOWS],
]


@pytest.mark.parametrize(
    ("diagnosis", "pauses", "step"), [*[(*one, None) for one in PAUSES], *[(*one, 17) for one in PAUSES[:2]]]
)
def test_what_may_pass_is_waited_for_before_it_stops_the_chain(diagnosis, pauses, step) -> None:
    ends = [(diagnosis.failure_class, step, 5)] * 3
    for times, pause in enumerate(pauses, 1):
        found = decide(diagnosis, restarts(*ends[:times]), RULE, healthy_nodes=2, needed_nodes=2)
        assert (found.action, found.pause) == (Action.RESTART_HERE, pause)
        assert (f"after a pause of {pause} s" in found.reason) == (pause > 0)
    found = decide(diagnosis, restarts(*ends), RULE, healthy_nodes=2, needed_nodes=2)
    assert (found.action, found.pause) == (Action.STOP, 0)
    assert found.reason.startswith(diagnosis.message)
    assert ("until a person acts" if diagnosis.lasting else "3 times in a row") in found.reason


@pytest.mark.parametrize("diagnosis", NOBODY_KNOWS)
def test_what_nobody_knows_runs_twice_where_it_comes_after_the_same_step(diagnosis) -> None:
    ends = [(diagnosis.failure_class, 17, 5)] * 2
    once = decide(diagnosis, restarts(*ends[:1]), RULE, healthy_nodes=2, needed_nodes=2)
    assert (once.action, once.pause) == (Action.RESTART_HERE, 0)
    twice = decide(diagnosis, restarts(*ends), RULE, healthy_nodes=2, needed_nodes=2)
    assert (twice.action, twice.pause) == (Action.STOP, 0)
    assert "the same error twice in a row after step 17" in twice.reason


@pytest.mark.parametrize(("healthy", "left_out"), [(3, ("node03",)), (2, ())])
def test_a_full_disk_is_laid_on_its_node_only_where_a_spare_stands_in(healthy, left_out) -> None:
    full = Diagnosis("filesystem", "the disk is full", nodes=("node03",), lasting=True)
    twice = [RestartSummary(1, number, "filesystem", 0, 17, 5, nodes=("node03",)) for number in range(2)]
    found = decide(full, twice, RULE, healthy_nodes=healthy, needed_nodes=2)
    assert (found.action, found.pause, found.exclude) == (Action.RESTART_HERE, 120, left_out)


def test_a_step_that_slurm_refuses_is_tried_again_with_growing_pauses_and_then_handed_over() -> None:
    refused = Diagnosis("boot_failure", "Slurm could not begin the step", confidence="low")
    history = restarts(("node_failure", 60, 60))
    pauses = []
    while True:
        history = [*history, RestartSummary(1, len(history), "boot_failure", 0, None, 60)]
        found = decide(refused, history, RULE, healthy_nodes=2, needed_nodes=2)
        if found.action is not Action.RESTART_HERE:
            break
        assert found.exclude == ()
        pauses.append(found.pause)
    assert pauses == [2, 5, 15, 30, 30, 30, 30]
    assert found.action is Action.HAND_OVER


def test_another_step_or_a_newer_checkpoint_begins_the_pauses_anew() -> None:
    for ends in ([("filesystem", 17, 5), ("filesystem", 12, 5)], [("filesystem", 17, 5), ("filesystem", 17, 15)]):
        assert decision("filesystem", restarts(*ends)).pause == 30


def test_what_passed_is_not_waited_for_where_the_job_ends() -> None:
    found = decision("filesystem", job_is_ending=True)
    assert (found.action, found.pause) == (Action.HAND_OVER, 0)


@pytest.mark.parametrize("kind", ["time_limit", "application_error"])
def test_what_lasts_stops_the_chain_whatever_its_class(kind: str) -> None:
    found = decide(Diagnosis(kind, "the disk is full", lasting=True), [], RULE, healthy_nodes=2, needed_nodes=2)
    assert found.action is Action.STOP
    assert "until a person acts" in found.reason


# nodes that are left out


def named(kind: str, *nodes: str, confidence="high") -> Diagnosis:
    return Diagnosis(kind, "why", nodes=nodes, confidence=confidence)


def go_on(diagnosis: Diagnosis, *before: tuple[str, tuple[str, ...]], healthy: int = 3) -> Decision:
    ends = [*before, (diagnosis.failure_class, diagnosis.nodes)]
    history = [RestartSummary(1, number, kind, 0, number, 0, nodes) for number, (kind, nodes) in enumerate(ends)]
    return decide(diagnosis, history, RULE, healthy_nodes=healthy, needed_nodes=2)


@pytest.mark.parametrize("kind", ["gpu_hardware", "boot_failure"])
def test_a_bad_node_that_is_alive_is_left_out_at_once(kind: str) -> None:
    with_spare = go_on(named(kind, "node03"))
    assert (with_spare.action, with_spare.exclude) == (Action.RESTART_HERE, ("node03",))
    without = go_on(named(kind, "node03"), healthy=2)
    assert (without.action, without.exclude) == (Action.HAND_OVER, ("node03",))
    assert "1 healthy nodes are left, 2 are needed" in without.reason


@pytest.mark.parametrize("kind", ["fabric", "collective_timeout", "hang", "filesystem"])
def test_a_suspect_is_left_out_the_second_time(kind: str) -> None:
    suspect = named(kind, "node02", "node03")
    assert go_on(suspect).exclude == ()
    assert go_on(suspect, (kind, ("node03",))).exclude == ("node03",)
    assert go_on(suspect, ("gpu_oom", ("node03",))).exclude == (), "named for something else"


def test_a_gpu_that_failed_without_a_word_is_a_suspect_only() -> None:
    suspect = named("gpu_hardware", "node03", confidence="low")
    assert go_on(suspect).exclude == ()
    assert go_on(suspect, ("gpu_hardware", ("node03",))).exclude == ("node03",)


@pytest.mark.parametrize("kind", ["application_error", "gpu_oom", "host_oom", "port_in_use", "unknown"])
def test_what_is_the_program_s_own_leaves_no_node_out(kind: str) -> None:
    assert go_on(named(kind, "node03"), (kind, ("node03",))).exclude == ()


def test_every_class_has_a_policy_and_a_hint() -> None:
    assert set(POLICIES) == set(FailureClass)
    for kind, policy in POLICIES.items():
        assert hint_of(Diagnosis(kind.value, "why")) == policy.hint
        assert policy.hint
        assert bool(policy.why) == (policy.course is Course.STOP)
    assert hint_of(Diagnosis("config", "why", hint="this one")) == "this one"


def test_what_forbids_the_next_attempt() -> None:
    for kind in FailureClass:
        found = stops_chain(Diagnosis(kind.value, "why"))
        expected = {
            "finished": Action.FINISH,
            **dict.fromkeys(
                STOPS,
                Action.STOP,
            ),
        }.get(kind.value)
        assert (found.action if found else None) is expected


# progress


def attempts(*rows: tuple[int, int | None, int], kind: str = "application_error") -> list[AttemptSummary]:
    return [AttemptSummary(number, *row, kind) for number, row in enumerate(rows, 1)]


def stop(history, rule: RecoveryRule = RULE) -> str | None:
    found = progress_gate(history, rule)
    if found is None:
        return None
    assert found.action is Action.STOP
    return found.reason


def test_the_replay_loop_stops_before_its_third_round() -> None:
    """A stale pointer: each job repeats the same ten thousand steps, then dies at the save."""
    rows = [(50000, 69999, 59999), (59999, 69999, 59999), (59999, 69999, 59999)]
    assert stop(attempts(*rows[:2])) is None
    reason = stop(attempts(*rows))
    assert reason is not None
    assert "attempts 2, 3 " in reason
    assert "20000 repeated steps" in reason
    assert "still that of step 59999" in reason


def test_the_replay_loop_whose_checkpoint_is_there_but_not_used() -> None:
    """The newest complete checkpoint is newer than what they resume from: it did not advance either."""
    assert "20000 repeated" in (
        stop(attempts((50000, 69999, 69999), (59999, 69999, 69999), (59999, 69999, 69999))) or ""
    )


def test_progress_is_not_the_highest_step_printed() -> None:
    assert stop(attempts((100, 150, 100), (100, 180, 100), (100, 220, 100))) is not None
    assert stop(attempts((100, 150, 100), (100, 180, 100))) is None


def test_attempts_that_save_go_on_for_ever() -> None:
    assert stop(attempts(*[(step, step + 9, step + 5) for step in range(0, 500, 5)], kind="time_limit")) is None


def test_a_save_starts_the_count_anew() -> None:
    stuck = (100, 150, 100)
    assert stop(attempts(stuck, (100, 160, 100), (100, 170, 150), (150, 155, 150), (150, 190, 150))) is None


@pytest.mark.parametrize("kind", ["node_failure", "preempted"])
def test_two_equal_rounds_ended_from_outside_get_a_third(kind: str) -> None:
    rows = [(100, 150, 100)] * 3
    assert stop(attempts(*rows[:2], kind=kind)) is None
    assert stop(attempts(*rows, kind=kind)) is not None


def test_attempts_that_do_no_step_at_all() -> None:
    rows = [(0, None, 0)] * 3
    assert stop(attempts(*rows[:2])) is None
    reason = stop(attempts(*rows))
    assert reason is not None
    assert "no step was done" in reason
    assert "still missing" in reason


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_limit_is_the_recipe_s(limit: int) -> None:
    rule = RecoveryRule(attempts_without_progress=limit)
    rows = [(100, 150 + number, 100) for number in range(limit)]
    assert stop(attempts(*rows[:-1]), rule) is None
    assert stop(attempts(*rows), rule) is not None


def test_no_history() -> None:
    assert progress_gate([], RULE) is None


def test_after_an_attempt() -> None:
    stuck = attempts(*[(100, 150, 100)] * 2)
    cancelled, failed = Diagnosis("user_cancel", "why"), Diagnosis("application_error", "why")
    assert decide_after_attempt(failed, stuck[:1], RULE) is None
    first, second = decide_after_attempt(cancelled, [], RULE), decide_after_attempt(failed, stuck, RULE)
    assert first is not None
    assert first.action is Action.STOP
    assert second is not None
    assert second.action is Action.STOP
