"""Nodes that Slurm takes from a job which goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.errors import SlurmError
from pretrainctl.records.job import Job
from pretrainctl.records.launch import LivenessRule
from pretrainctl.slurm.states import read_state
from pretrainctl.workflows.attempt import node_watch
from pretrainctl.workflows.attempt.node_watch import NodeWatch


class Attempt:
    """Job 7 on n1 to n3, as a stand-in for Slurm tells of it."""

    def __init__(self) -> None:
        self.number, self.run = 1, SimpleNamespace(path=Path("/nowhere"))
        self.launch = SimpleNamespace(address=SimpleNamespace(kind="localhost"), liveness=LivenessRule())
        self.record = SimpleNamespace(job_id=7, nodes=("n1", "n2", "n3"), host="n1")
        self.slurm = self
        self.signals = SimpleNamespace(terminated=True)
        self.state, self.nodes = "RUNNING", ("n1", "n3")
        self.told: list[str] = []

    def jobs(self, ids: list[int]) -> dict[int, Job]:
        if not self.state:
            raise SlurmError("no answer")
        return {ids[0]: Job(ids[0], "a", read_state(self.state), nodes=self.nodes)}

    def event(self, kind: str, message: str, data: Mapping[str, str] = {}) -> None:
        self.told.append(" ".join([kind, message, *filter(None, [data.get("node")])]))


@pytest.fixture
def watch() -> Iterator[NodeWatch]:
    made = NodeWatch(Attempt())  # type: ignore[arg-type]
    yield made
    made.listener.close()


def test_a_node_that_is_no_longer_of_the_job_is_told_once_and_does_not_train(watch: NodeWatch) -> None:
    assert watch.note_taken() == {"n2": "Slurm has taken it from the job"}
    assert watch.attempt.told == ["node_dead node n2 is lost: Slurm has taken it from the job n2"]
    assert watch.healthy() == ("n3", "n1")
    assert watch.note_taken() == {}
    assert len(watch.attempt.told) == 1


@pytest.mark.parametrize(
    ("state", "nodes"),
    [("RUNNING", ("n1", "n2", "n3")), ("RUNNING", ()), ("COMPLETING", ("n1",)), ("CANCELLED", ("n1",)), ("", ())],
)
def test_nothing_is_known_of_a_job_that_ends_or_where_slurm_does_not_say(
    watch: NodeWatch, state: str, nodes: tuple[str, ...]
) -> None:
    watch.attempt.state, watch.attempt.nodes = state, nodes
    assert watch.note_taken() == {}
    assert watch.healthy() == ("n2", "n3", "n1")


def test_where_not_all_nodes_can_be_heard_none_is_watched(watch: NodeWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_watch, "make_room", lambda nodes: f"no room for {nodes}")
    watch.start()
    watch.wait_for_first_beats()
    watch.poll(0.0)
    assert watch.attempt.told == ["note nodes are not watched: no room for 3"]
    assert watch.healthy() == ("n2", "n3", "n1")
