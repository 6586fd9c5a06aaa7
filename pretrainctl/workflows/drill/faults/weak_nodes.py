"""Nodes that answer and are no good: they fail the test before a start, or are slower than the others.

All nodes of a sandbox are one machine: what ails one of them alone is done by the Python that trains, a wrapper that
knows on which node it runs.
"""

from __future__ import annotations

import sys

from pretrainctl.workflows.drill.fault import Fault
from pretrainctl.workflows.drill.scene import Scene, UnmetError
from pretrainctl.workflows.drill.verdict import Expectation

__all__ = ["FAULTS"]

_VICTIM = "node02"


def _launch(scene: Scene, spares: int, line: str) -> None:
    """Launch with a Python that does a line of shell first, on the node that is ill."""
    wrapper = scene.place.folder / "programs" / f"{scene.name}-python"
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(
        f'#!/bin/bash\nif [ "$SLURMD_NODENAME" = {_VICTIM} ]; then\n{line}\nfi\nexec {sys.executable} "$@"\n',
        encoding="utf-8",
    )
    wrapper.chmod(0o755)
    scene.strike()
    scene.launch(f"cluster.python.training={wrapper}", f"resources.spares={spares}")


def _found(scene: Scene, how: str) -> None:
    """The node must have been found in the test, and must not train."""
    scene.wait_for("finished")
    tests = scene.events("nodes_tested")
    if not tests or _VICTIM not in tests[0].data[how]:
        raise UnmetError(f"{_VICTIM} was not found {how}: {tests[0].message if tests else 'no node was tested'}")
    if any(_VICTIM in event.data["nodes"] for event in scene.events("restart_started")):
        raise UnmetError(f"{_VICTIM} was found {how}, and trained")


def _unfit(scene: Scene) -> None:
    _launch(scene, 1, "export TMPDIR=/nowhere")
    _found(scene, "unfit")


def _slow(scene: Scene) -> None:
    # Less time on the processor would not do: that is the load of the others on this one machine, and is not measured.
    _launch(scene, 2, "[[ $1 == */probe.py ]] && export PYTHONMALLOC=malloc_debug")
    _found(scene, "slow")


FAULTS = (
    Fault("node-fails-its-test", "a node has no room for temporary files", _unfit, Expectation(twice=0, starts=1)),
    Fault("slow-node", "a node computes at little more than half the speed", _slow, Expectation(twice=0, starts=1)),
)
