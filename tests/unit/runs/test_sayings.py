"""What is said of an end: each thing once, whatever the ledger keeps."""

from __future__ import annotations

import pytest

from pretrainctl.runs.sayings import Sayings

HANG = "no progress for 20.7 s in the phase step after step 5"
REACHED = "the target was reached at step 160"


@pytest.mark.parametrize(
    ("events", "said"),
    [
        pytest.param(
            [
                ("hang", HANG),
                ("restart_ended", HANG),
                ("decided", f"restart_here: {HANG}; 2 healthy nodes are here, 2 are needed"),
                ("restart_started", "restart 1 on node[01-02], from global_step4"),
            ],
            [
                HANG,
                "restart_here: 2 healthy nodes are here, 2 are needed",
                "restart 1 on node[01-02], from global_step4",
            ],
            id="hang",
        ),
        pytest.param(
            [
                ("restart_ended", REACHED),
                ("decided", f"finish: {REACHED}"),
                ("finished", REACHED),
                ("attempt_ended", REACHED),
            ],
            [REACHED, "finish"],
            id="finished",
        ),
        pytest.param(
            [("decided", f"finish: {REACHED}"), ("finished", REACHED)],
            [f"finish: {REACHED}"],
            id="where the end itself is not told",
        ),
        pytest.param(
            [("decided", "stop: a; b; but c"), ("stopped", "a; b; but c"), ("attempt_ended", "a; b; but c")],
            ["stop: a; b; but c"],
            id="stopped",
        ),
        pytest.param(
            [("restart_ended", "a"), ("decided", "hand_over: a and more"), ("attempt_ended", "a and more")],
            ["a", "hand_over: a and more"],
            id="another reason that begins alike",
        ),
        pytest.param(
            [("restart_ended", "a"), ("restart_started", "restart 1"), ("restart_ended", "a")],
            ["a", "restart 1", "a"],
            id="the same end of another start",
        ),
        pytest.param([("note", "x"), ("note", "x")], ["x", "x"], id="what happens twice"),
        pytest.param([("attempt_ended", "2 nodes are left")], ["2 nodes are left"], id="an end without a decision"),
    ],
)
def test_each_thing_is_said_once(events, said) -> None:
    sayings = Sayings()
    assert [words for words in (sayings.words(kind, message) for kind, message in events) if words] == said
