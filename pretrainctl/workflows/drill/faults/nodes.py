"""Nodes that die (every process of theirs at once), fall silent (all of them stopped: no connection closes), are shut
down, or are lost to Slurm alone."""

from __future__ import annotations

import os
import signal
from functools import partial

from pretrainctl.sandbox import outages
from pretrainctl.workflows.drill.fault import Fault
from pretrainctl.workflows.drill.place import EVERY
from pretrainctl.workflows.drill.scene import Scene, SkippedError
from pretrainctl.workflows.drill.verdict import Expectation

__all__ = ["FAULTS", "kill", "other_node"]

_NODE_FAILURE = Expectation(classes=frozenset({"node_failure"}))


def kill(scene: Scene, *names: str, silent: bool = False) -> None:
    """The fault comes now: these nodes die."""
    if scene.place.sandbox is None:
        raise SkippedError("only a sandbox lets a node die")
    scene.strike()
    for name in names:
        scene.place.sandbox.kill_node(name, silent=silent)


def other_node(scene: Scene) -> str:
    """A node that trains and does not carry the batch script."""
    host, nodes = scene.nodes()
    return next(node for node in reversed(nodes) if node != host)


def _node_lost(scene: Scene, *, spares: int, silent: bool) -> None:
    scene.launch(f"resources.spares={spares}")
    scene.wait_for_step()
    kill(scene, other_node(scene), silent=silent)


def _host_lost(scene: Scene, *, silent: bool) -> None:
    scene.launch()
    scene.wait_for_step()
    kill(scene, scene.nodes()[0], silent=silent)


def _host_shut_down(scene: Scene) -> None:
    if scene.place.sandbox is None:
        raise SkippedError("only a sandbox lets a node go down")
    scene.launch()
    scene.wait_for_step()
    scene.strike()
    outages.shut_down(scene.place.sandbox, scene.nodes()[0])


def _killed_in_save(scene: Scene) -> None:
    scene.launch(
        "resources.spares=1",
        program=("slow-save", "--at", str(2 * EVERY), "--seconds", "20", *scene.once()),
    )
    scene.wait_for_torn_save()
    kill(scene, other_node(scene))


def _two_killed(scene: Scene) -> None:
    scene.launch("resources.spares=2")
    scene.wait_for_step()
    kill(scene, *scene.nodes()[1])


def _slurmd_killed(scene: Scene) -> None:
    if scene.place.sandbox is None:
        raise SkippedError("only a sandbox lets a node die")
    scene.launch("resources.spares=1", pace=2.0)
    scene.wait_for_step()
    lost = other_node(scene)
    (slurmd,) = (node.pid for node in scene.place.sandbox.status().nodes if node.name == lost and node.pid)
    scene.strike()
    os.kill(slurmd, signal.SIGKILL)


def _fault(name: str, what: str, *, spares: int, silent: bool) -> Fault:
    return Fault(name, what, partial(_node_lost, spares=spares, silent=silent), _NODE_FAILURE)


FAULTS = (
    _fault("node-killed-spare", "a node dies, and a spare is there", spares=1, silent=False),
    _fault("node-killed", "a node dies, and no spare is there", spares=0, silent=False),
    _fault("node-silent-spare", "a node falls silent, and a spare is there", spares=1, silent=True),
    _fault("node-silent", "a node falls silent, and no spare is there", spares=0, silent=True),
    Fault("batch-host-killed", "the node of the batch script dies", partial(_host_lost, silent=False), _NODE_FAILURE),
    Fault(
        "batch-host-silent",
        "the node of the batch script falls silent",
        partial(_host_lost, silent=True),
        _NODE_FAILURE,
    ),
    Fault(
        "batch-host-shut-down",
        "the node of the batch script is shut down, and Slurm is not told that the job ended",
        _host_shut_down,
        _NODE_FAILURE,
    ),
    Fault("node-killed-in-save", "a node dies with its shard half written", _killed_in_save, _NODE_FAILURE),
    Fault("slurmd-killed", "a node's slurmd dies, and its ranks train on", _slurmd_killed, _NODE_FAILURE),
    Fault("two-nodes-killed", "both nodes die at once, and two spares are there", _two_killed, _NODE_FAILURE),
)
