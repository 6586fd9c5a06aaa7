"""The state of a run as the fold of its events."""

from __future__ import annotations

from typing import Any

import pytest

from pretrainctl.records.run import Event, EventKind
from pretrainctl.runs.state import fold


def outside(sequence: int, kind: EventKind, after_attempt: int = 0, **data: Any) -> Event:
    return Event(kind, 0, sequence, float(sequence), "login1", kind, after_attempt, data)


def inside(attempt: int, sequence: int, kind: EventKind, **data: Any) -> Event:
    return Event(kind, attempt, sequence, attempt * 100.0 + sequence, "node01", kind, 0, data)


def test_a_fresh_run_is_neither_finished_nor_stopped() -> None:
    state = fold([outside(1, "submitted", job_id=5)])
    assert (state.finished, state.stopped, state.jobs, state.owner) == (None, None, (5,), None)


@pytest.mark.parametrize("kind", ["stop_requested", "cancel_requested"])
def test_a_stop_holds_until_a_resume_and_again_after_it(kind: EventKind) -> None:
    events = [outside(1, "submitted"), inside(1, 1, "claimed"), outside(2, kind, 1)]
    events.sort(key=lambda event: (event.attempt, event.sequence))
    assert fold(events).stopped == kind
    events.insert(2, outside(3, "resume_requested", 1))
    assert fold(events).stopped is None
    events.insert(3, outside(4, kind, 1))
    assert fold(events).stopped == kind


def test_a_run_that_was_only_made_is_stopped_until_its_launch_submits_or_a_resume() -> None:
    made = [outside(1, "made")]
    assert (fold(made).stopped, fold(made).unsubmitted, fold(made).failed) == ("made", True, False)
    for lifts in (outside(2, "submitting"), outside(3, "submitted"), outside(2, "resume_requested")):
        state = fold([*made, lifts])
        assert (state.stopped, state.unsubmitted) == (None, False)
    assert fold([*made, inside(1, 1, "claimed")]).stopped is None, "where the events of the launch were lost"


@pytest.mark.parametrize("kind", ["stop_requested", "cancel_requested", "stopped"])
def test_a_stop_that_comes_before_the_launch_submits_is_not_lifted_by_it(kind: EventKind) -> None:
    state = fold([outside(1, "made"), outside(2, kind), outside(3, "submitting"), outside(4, "submitted", job_id=5)])
    assert (state.stopped, state.unsubmitted) == (kind, False)


def test_a_stop_by_an_attempt_before_the_resume_is_past_one_after_it_holds() -> None:
    events = [outside(1, "resume_requested", 1), inside(1, 1, "stopped")]
    assert fold(events).stopped is None
    assert fold([*events, inside(2, 1, "stopped")]).stopped == "stopped"


def test_a_refused_attempt_owns_nothing() -> None:
    state = fold([inside(1, 1, "claimed", job_id=3), inside(2, 1, "claimed", job_id=4), inside(2, 2, "refused")])
    assert state.owner is not None
    assert state.owner.attempt == 1
    assert state.jobs == (3, 4)


def test_restarts_and_the_end_of_an_attempt_are_told() -> None:
    state = fold(
        [
            inside(1, 1, "claimed"),
            inside(1, 2, "checkpoint_gate", resume_step=40),
            inside(1, 3, "restart_started"),
            inside(1, 4, "restart_started"),
            inside(1, 5, "attempt_ended", action="hand_over", **{"class": "node_failure"}),
        ]
    )
    (attempt,) = state.attempts
    assert (attempt.ended, attempt.action, attempt.failure_class) == (True, "hand_over", "node_failure")
    assert (attempt.restarts, attempt.resume_step) == (2, 40)


def test_what_did_not_go_on_over_a_resume_is_a_warning() -> None:
    events = [
        inside(1, 1, "claimed"),
        inside(1, 2, "loss_jump", restart=0),
        inside(1, 3, "lr_jump"),
        inside(1, 4, "note"),
    ]
    owner = fold(events).owner
    assert owner is not None
    assert owner.warnings == ("loss_jump", "lr_jump")
