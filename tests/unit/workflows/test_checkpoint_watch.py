"""The first checkpoint of a restart is judged while the training goes on."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.workflows.attempt.checkpoint_watch import CheckpointWatch
from tests.unit.frameworks.conftest import Tree


class Attempt:
    """As much of an attempt as the watch sees; keeps its events."""

    def __init__(self, tree: Tree) -> None:
        self.launch = SimpleNamespace(checkpoint=tree.layout(), srun=SimpleNamespace(tasks_per_node=2))
        self.events: list[tuple[str, str]] = []

    def event(self, kind: str, message: str, _data: object = None) -> None:
        self.events.append((kind, message))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path / "checkpoints")
    made.save(10, without=[0, 1])  # of an earlier restart: the gate has judged it
    return made


def look(watch: CheckpointWatch, clock: Clock) -> None:
    """Two looks a pause apart, with the reader's time between them."""
    clock.now += 11
    watch.tick()
    deadline = time.monotonic() + 10
    while watch._reader is not None and watch._reader.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    watch.tick()


def test_one_that_no_resume_could_take_is_said_once(tree: Tree) -> None:
    attempt, clock = Attempt(tree), Clock()
    watch = CheckpointWatch(attempt, clock=clock)
    tree.save(20, without=[2])
    look(watch, clock)
    assert attempt.events == [], "it may be half written"
    tree.save(30, without=[2])
    look(watch, clock)
    look(watch, clock)
    ((kind, message),) = attempt.events
    assert kind == "checkpoint_unusable"
    assert message.startswith("global_step20 could not be resumed from: 1 of 4 optimizer shards missing")


def test_another_layout_is_said(tree: Tree) -> None:
    attempt, clock = Attempt(tree), Clock()
    watch = CheckpointWatch(attempt, clock=clock)
    tree.save(20, ranks=2)
    clock.now = 5.0
    look(watch, clock)
    clock.now += 1000.0
    look(watch, clock)
    assert "saved by 2 data-parallel ranks, the run has 4" in attempt.events[0][1]


def test_a_whole_one_is_no_event_and_ends_the_watch(tree: Tree) -> None:
    attempt, clock = Attempt(tree), Clock()
    watch = CheckpointWatch(attempt, clock=clock)
    tree.save(20)
    tree.save(30)
    look(watch, clock)
    tree.save(40, without=[1])
    tree.save(50)
    look(watch, clock)
    assert attempt.events == []
