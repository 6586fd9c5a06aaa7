"""Who looks out for the batch host, and when others are asked to."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pretrainctl.records.launch import AddressRule, LivenessRule
from pretrainctl.workflows.attempt import lookouts as module
from pretrainctl.workflows.attempt.lookouts import Lookouts


class World:
    """Lookouts of job 7 on n1 (the batch host) to n10, by a clock of its own; `started` are the nodes of each start."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.status: int | None = None
        self.started: list[str] = []
        self.told: list[str] = []
        self.turns: list[str] = []
        self.signals: list[int] = []
        (folder / "attempts" / "0001").mkdir(parents=True)
        launch = SimpleNamespace(address=AddressRule("localhost"), liveness=LivenessRule(), python="python")
        record = SimpleNamespace(host="n1", attempt=1, nodes=tuple(f"n{number}" for number in range(1, 11)))
        attempt: Any = SimpleNamespace(run=SimpleNamespace(path=folder), launch=launch, record=record, event=self.event)
        self.lookouts = Lookouts(attempt, SimpleNamespace(port=1234, token="secret"))  # type: ignore[arg-type]
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module.process, "start", self.start)

    def start(self, argv: list[str], *, env: dict[str, str], **_streams: object) -> SimpleNamespace:
        assert env["PRETRAINCTL_BEAT_TOKEN"] == "secret"
        inner = list(argv)[list(argv).index("env") :]
        self.turns.append(list(argv)[-1])
        self.started.append(next(word for word in inner if word.startswith("--nodelist=")).partition("=")[2])
        self.status = None
        return SimpleNamespace(poll=lambda: self.status, signal=self.signals.append, wait=lambda _timeout: None)

    def event(self, _kind: str, message: str) -> None:
        self.told.append(message)

    def pass_by(self, seconds: int, *healthy: str) -> None:
        for _ in range(seconds):
            self.lookouts.tick(healthy)
            self.now += 1.0


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_few_nodes_far_from_each_other_look_out_and_never_the_batch_host(world: World) -> None:
    world.pass_by(60, *(f"n{number}" for number in range(10, 0, -1)))
    assert world.started == ["n[3,6,9]"]


def test_nobody_looks_out_where_the_batch_host_is_alone(world: World) -> None:
    world.pass_by(60, "n1")
    assert (world.started, world.told) == ([], [])


def test_another_looks_out_for_each_of_those_who_did_and_are_dead(world: World) -> None:
    world.pass_by(20, "n2", "n3", "n4", "n5", "n1")
    assert world.started == ["n[2,4-5]"]
    world.pass_by(20, "n2", "n3", "n4", "n1")
    assert world.started == ["n[2,4-5]", "n3"]
    assert world.turns == ["0", "2"]
    world.pass_by(60, "n2", "n3", "n4", "n1")
    assert len(world.started) == 2


def test_a_step_that_ends_is_started_again_a_few_times_and_then_it_is_said(world: World) -> None:
    for _ in range(60):
        world.pass_by(1, "n2", "n1")
        world.status = 1
    assert world.started == ["n2"] * 4
    (said,) = world.told
    assert said == "nobody looks out for the batch host: the step of the lookouts ended 4 times (status 1)"


def test_no_srun_is_left_behind_and_none_is_told_to_end_its_step(world: World) -> None:
    world.pass_by(20, "n2", "n3", "n4", "n5", "n1")
    world.pass_by(20, "n2", "n3", "n4", "n1")
    world.lookouts.leave()
    assert world.signals == [signal.SIGKILL] * 2, "SIGTERM would end the step"
