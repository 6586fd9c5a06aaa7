"""Beats that end alone, and nodes that die: by an srun that starts the tasks here, and says what the real one says."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.records.launch import AddressRule, LivenessRule
from pretrainctl.workflows.attempt.node_watch import NodeWatch
from pretrainctl.workflows.attempt.task_ends import read_task_ends

SRUN = """#!/bin/bash
# A node that is dead says nothing; Slurm's own process on one that lives says that its task has ended.
for word; do case $word in --nodelist=*) nodes=${word#*=};; esac; done
case "$*" in *pretrainctl.liveness.lookout*) exit 0;; esac
while [ "$1" != PYTHON ]; do shift; done
for node in NODES; do
  case ",$nodes," in *",$node,"*) ;; *) continue;; esac
  ( SLURMD_NODENAME=$node SLURM_PROCID=0 "$@" & echo $! >FOLDER/$node.new; mv FOLDER/$node.new FOLDER/$node.pid
    wait $! || [ -e FOLDER/$node.dead ] || echo "srun: error: $node: task 1: Killed" >&2 ) &
done
wait
"""
NODES = ("n1", "n2", "n3")


class Attempt:
    """As much of an attempt as the watch over its nodes sees; keeps its events."""

    number = 1

    def __init__(self, folder: Path) -> None:
        self.launch = SimpleNamespace(
            address=AddressRule("localhost"), liveness=LivenessRule(0.1, 5.0, 0.5), python=sys.executable
        )
        self.record = SimpleNamespace(host="n1", nodes=NODES, attempt=1)
        self.run = SimpleNamespace(path=folder)
        self.signals = SimpleNamespace(terminated=False)
        self.events: list[tuple[str, str]] = []

    def event(self, kind: str, message: str, _data: object = None) -> None:
        self.events.append((kind, message))


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempt = Attempt(folder)
        self.watch = NodeWatch(self.attempt)  # type: ignore[arg-type]

    def kill(self, node: str, *, dead: bool) -> int:
        pid = int((self.folder / f"{node}.pid").read_text())
        if dead:
            (self.folder / f"{node}.dead").touch()
        os.kill(pid, signal.SIGKILL)
        return pid

    def within(self, seconds: float, found: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + seconds
        while not found():
            if time.monotonic() > deadline:
                return False
            self.watch.poll(0.05)
            self.watch.note_dead()
        return True

    def is_new(self, node: str, pid: int) -> bool:
        return int((self.folder / f"{node}.pid").read_text()) != pid


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    program = tmp_path / "srun"
    text = SRUN.replace("PYTHON", sys.executable).replace("FOLDER", str(tmp_path)).replace("NODES", " ".join(NODES))
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("pretrainctl.slurm.steps.fold", ",".join)
    made = World(tmp_path)
    made.watch.start()
    assert made.within(20, lambda: set(NODES) <= made.watch.listener.seen())
    yield made
    made.watch.stop()


def test_a_beat_that_ends_alone_is_started_again_and_its_node_is_not_dead(world: World) -> None:
    pid = world.kill("n2", dead=False)
    assert world.within(20, lambda: world.is_new("n2", pid) and not world.watch.listener.dead())
    world.within(1.0, lambda: False)
    assert world.watch.dead == {}
    assert [kind for kind, _ in world.attempt.events] == ["note"]
    assert "the beat on n2 ended, and the node did not" in world.attempt.events[0][1]


def test_a_node_that_dies_is_dead_as_soon_as_its_connection_did_not_come_back(world: World) -> None:
    begun = time.monotonic()
    world.kill("n2", dead=True)
    assert world.within(5, lambda: "n2" in world.watch.dead)
    assert time.monotonic() - begun < 2.0
    assert world.watch.dead == {"n2": "closed"}


def test_a_node_that_dies_after_its_beat_came_back_is_dead_too(world: World) -> None:
    pid = world.kill("n2", dead=False)
    assert world.within(20, lambda: world.is_new("n2", pid) and not world.watch.listener.dead())
    world.kill("n2", dead=True)
    world.watch._alone = {}
    assert world.within(5, lambda: "n2" in world.watch.dead)


def test_the_beat_of_the_batch_host_is_started_again(world: World) -> None:
    pid = world.kill("n1", dead=False)
    assert world.within(20, lambda: world.is_new("n1", pid))
    assert world.watch.dead == {}


def test_a_batch_host_that_hears_only_its_own_beat_calls_no_node_dead(world: World) -> None:
    others = [int((world.folder / f"{node}.pid").read_text()) for node in ("n2", "n3")]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert world.within(20, world.watch.listener.all_silent)
        world.within(0.5, lambda: False)
        assert world.watch.dead == {}
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)
    assert world.within(20, lambda: not world.watch.listener.all_silent())
    assert world.watch.dead == {}


@pytest.mark.parametrize(
    ("line", "nodes"),
    [
        ("srun: error: node02: task 1: Killed", ("node02",)),
        ("srun: error: node[02-03]: tasks 1-2: Terminated", ("node02", "node03")),
        ("srun: error: as01r1b02: task 7: Exited with exit code 1", ("as01r1b02",)),
        ("srun: error: node02: task 1: Out Of Memory", ("node02",)),
        ("srun: error: node02: task 1: Segmentation fault (core dumped)", ("node02",)),
        ("srun: error: Node failure on node02", ()),
        ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", ()),
        ("srun: error: Timed out waiting for job step to complete", ()),
        ("slurmstepd: error: *** STEP 7.1 ON node02 CANCELLED AT 2026-01-01T00:00:00 ***", ()),
    ],
)
def test_what_srun_says_of_tasks_that_ended(line: str, nodes: tuple[str, ...]) -> None:
    assert read_task_ends(line + "\n") == nodes
