"""The nodes of an attempt, tested by a stand-in for srun that runs the real program once for each node, here."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.liveness.listener import Listener
from pretrainctl.records import codec, contract
from pretrainctl.records.launch import AddressRule, LivenessRule, NodeTestRule
from pretrainctl.records.nodes import NodeTest
from pretrainctl.records.run import AttemptRecord, RunRecord
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.node_choice import NodeChoice
from pretrainctl.workflows.attempt.signals import Signals
from pretrainctl.workflows.exclusions import list_of

NODES = ("n1", "n2", "n3")
SRUN = """\
#!/bin/bash
while [[ $1 == -* ]]; do
  [[ $1 == --nodelist=* ]] && nodes=$1
  shift
done
[ "$nodes" = '--nodelist=n[1-3]' ] || exit 9
for node in n1 n2 n3; do
  export SLURMD_NODENAME=$node
  ( {inside}; exec "$@" ) | sed 's/^/0: /' &
done
wait
"""


class Watch:
    """Beats of three nodes, n1 the batch host."""

    def __init__(self, attempt: Attempt, listener: Listener) -> None:
        self.attempt = attempt
        self.listener = listener
        self.dead: dict[str, str] = {}

    def wait_for_first_beats(self) -> None:
        pass

    def note_dead(self) -> None:
        pass

    def poll(self, seconds: float) -> None:
        time.sleep(seconds)

    def healthy(self) -> tuple[str, ...]:
        return tuple(sorted((n for n in NODES if n not in self.dead), key=lambda node: node == "n1"))


class Chain:
    """Remembers what the chained job is kept off."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.can = True

    def keep_off(self, nodes: tuple[str, ...]) -> bool:
        self.asked.append(nodes)
        return self.can


class World:
    """A run, and `choice` of one attempt of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.run = folder / "runs" / "a"
        (self.run / "attempts" / "0001" / "events").mkdir(parents=True)
        recipe = {"data": {"sources": [{"prefix": str(folder / "data" / "a")}, {"prefix": str(folder / "more" / "a")}]}}
        codec.write(
            self.run / "run.json", RunRecord("a", "a", "a-1", "c", 0.0, "me", recipe, {}, {}, slurm_cluster="s")
        )
        for name in ("checkpoints/owner.json", "data/a.bin", "data/a.idx", "more/a.bin", "more/a.idx"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).touch()
        self.chain = Chain()
        self.choices: list[NodeChoice] = []
        self.listener = Listener(LivenessRule(), bind="127.0.0.1")
        self.listener.serve()
        monkeypatch.setenv("PATH", str(folder), prepend=":")

    def choose(self, inside: str = "true", *, seconds: float = 20.0) -> NodeChoice:
        (self.folder / "srun").write_text(SRUN.replace("{inside}", inside))
        (self.folder / "srun").chmod(0o755)
        launch = SimpleNamespace(
            node_test=NodeTestRule(seconds, 0, sys.executable),
            container=(),
            address=AddressRule("localhost"),
            checkpoint=SimpleNamespace(directory=self.folder / "checkpoints"),
        )
        record = AttemptRecord(1, 7, 0, "n1", 1, NODES, 0.0)
        attempt = Attempt(RunFolder(self.run), launch, record, SimpleNamespace(jobs=lambda _ids: {}), Signals())  # type: ignore[arg-type]
        choice = NodeChoice(attempt, Watch(attempt, self.listener), self.chain)  # type: ignore[arg-type]
        choice.start()
        choice.settle()
        self.choices.append(choice)
        return choice

    def told(self, kind: str) -> list[str]:
        return [event.message for event in ledger.read_events(self.run) if event.kind == kind]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path, monkeypatch)
    yield world
    for choice in world.choices:
        choice.stop()
    world.listener.close()


def test_nodes_that_are_well_are_taken_the_batch_host_last(world: World) -> None:
    choice = world.choose()
    assert choice.usable() == ["n2", "n3", "n1"]
    (said,) = world.told("nodes_tested")
    assert said.startswith("3 of 3 nodes tested in ")
    record = codec.read(NodeTest, contract.attempt_dir(world.run, 1) / "node-test" / "result.json")
    assert [answer.node for answer in record.answers] == list(NODES)
    assert all("peers" in answer.passed for answer in record.answers)


def hidden(world: World, node: str, folder: str) -> str:
    """What one node of the stand-in does: all are one machine, so what it does not see has another name in its list."""
    return (
        f"[ $SLURMD_NODENAME = {node} ] && cd {world.run}/attempts/0001/node-test && mkdir other && cp probe.py other"
        f" && sed 's|/{folder}/|/nowhere/|g' paths.json >other/paths.json"
        f' && set -- {sys.executable} other/probe.py "${{@:3}}"'
    )


def test_a_node_that_does_not_see_the_data_is_left_out_and_named(world: World) -> None:
    choice = world.choose(hidden(world, "n3", "more"))
    assert choice.usable() == ["n2", "n1"]
    words = f"paths: {world.folder}/more/a.bin and 1 more are not seen there, and on 2 other nodes"
    assert f"n3 is unfit ({words})" in world.told("nodes_tested")[0]
    record = codec.read(NodeTest, contract.attempt_dir(world.run, 1) / "node-test" / "result.json")
    names = ("checkpoints/owner.json", "data/a.bin", "more/a.bin", "data/a.idx", "more/a.idx")
    assert record.paths == tuple(str(world.folder / name) for name in names)


def test_a_batch_host_that_does_not_see_the_checkpoints_opens_no_gate(world: World) -> None:
    choice = world.choose(hidden(world, "n1", "checkpoints"))
    assert choice.usable() == []
    assert choice.lack(2) == "the batch host n1 does not see the checkpoints, and other nodes do"
    assert choice.keep_off()
    assert world.chain.asked == [("n1",)]
    assert choice.take_unfit(3)
    assert choice.usable() == ["n2", "n3", "n1"]


@pytest.mark.parametrize(("node", "folder"), [("n1", "data"), ("n2", "checkpoints")])
def test_another_node_without_them_or_a_batch_host_without_data_stops_nothing(
    world: World, node: str, folder: str
) -> None:
    assert world.choose(hidden(world, node, folder)).usable() == [name for name in ("n2", "n3", "n1") if name != node]


def test_data_that_no_node_sees_are_noted(world: World) -> None:
    shutil.rmtree(world.folder / "data")
    assert world.choose().usable() == ["n2", "n3", "n1"]
    words = f"{world.folder}/data/a.bin and 1 more are seen on none of the 3 nodes that tell, so it is not the nodes"
    assert world.told("nodes_tested")[0].endswith(words)


def test_an_unfit_node_is_left_out_and_listed(world: World) -> None:
    choice = world.choose("[ $SLURMD_NODENAME = n2 ] && export TMPDIR=/nowhere")
    assert choice.usable() == ["n3", "n1"]
    assert choice.lack(3) == "2 healthy nodes are left, 3 are needed; unfit: n2"
    assert choice.keep_off()
    assert world.chain.asked == [("n2",)]
    choice.listing.tell(wait=True)
    assert world.told("node_listed") == ["jobs keep off n2 for 1d00h: node_test"]
    (entry,) = list_of(RunFolder(world.run)).read()[0].values()
    assert (entry.node, entry.reason) == (
        "n2",
        "tmpdir: FileNotFoundError: [Errno 2] No such file or directory: '/nowhere'",
    )


def test_where_no_other_job_can_do_better_an_unfit_node_trains(world: World) -> None:
    choice = world.choose("[ $SLURMD_NODENAME = n2 ] && export TMPDIR=/nowhere")
    assert not choice.take_unfit(4)
    assert choice.take_unfit(3)
    assert choice.usable() == ["n2", "n3", "n1"]
    assert not choice.take_unfit(3), "once"
    assert world.told("note") == ["trains on n2 all the same: no other nodes are left"]


def test_what_all_nodes_lack_is_not_the_nodes(world: World) -> None:
    choice = world.choose("export TMPDIR=/nowhere")
    assert choice.usable() == ["n2", "n3", "n1"]
    assert "tmpdir fails on all 3 nodes that tell, so it is not the nodes" in world.told("nodes_tested")[0]


def test_a_node_that_does_not_answer_counts_and_nobody_waits_longer(world: World) -> None:
    begun = time.monotonic()
    choice = world.choose("[ $SLURMD_NODENAME = n3 ] && sleep 600", seconds=5)
    assert time.monotonic() - begun < 12
    assert choice.usable() == ["n2", "n1"]
    assert "n3 is unfit (no answer within 5 s)" in world.told("nodes_tested")[0]


def test_a_test_that_nobody_answers_says_nothing(world: World) -> None:
    choice = world.choose("exit 3")
    assert choice.usable() == ["n2", "n3", "n1"]
    assert "nothing is known of 3 of 3 nodes" in world.told("nodes_tested")[0]


def test_no_test_and_nodes_that_are_blamed(world: World) -> None:
    choice = world.choose(seconds=0)
    assert world.told("nodes_tested") == []
    choice.leave_out(["n3"])
    choice.watch.dead["n2"] = "closed"
    assert choice.usable() == ["n1"]
    assert choice.count() == 1
    assert not choice.take_unfit(2), "what a diagnosis says is no test"
