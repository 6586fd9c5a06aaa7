"""Errors of the training program itself: the drill's own program has them."""

from __future__ import annotations

from pretrainctl.workflows.drill.fault import Fault
from pretrainctl.workflows.drill.scene import Scene
from pretrainctl.workflows.drill.verdict import Expectation

__all__ = ["FAULTS"]

_AT = ("--at", "15")


def _deterministic_crash(scene: Scene) -> None:
    scene.launch(program=("crash", *_AT))
    scene.come_by_itself()


def _crash_before_first_step(scene: Scene) -> None:
    scene.launch(program=("crash-at-start",))
    scene.come_by_itself()


def _nan(scene: Scene) -> None:
    scene.launch(program=("nan", *_AT))
    scene.come_by_itself()


def _out_of_memory(scene: Scene) -> None:
    scene.launch(program=("memory", *_AT, *scene.once()))
    scene.come_by_itself()


FAULTS = (
    Fault(
        "deterministic-crash",
        "a rank raises in the same step, each time",
        _deterministic_crash,
        Expectation("stopped", stop=frozenset({"application_error"}), starts=2),
        own=True,
    ),
    Fault(
        "crash-before-first-step",
        "a rank raises before its first step, each time",
        _crash_before_first_step,
        Expectation("stopped", stop=frozenset({"application_error"}), starts=2),
        own=True,
    ),
    Fault(
        "nan",
        "the loss is not a number from a step on",
        _nan,
        Expectation("stopped", stop=frozenset({"divergence"}), starts=1),
        own=True,
    ),
    Fault(
        "host-out-of-memory",
        "a rank runs against its memory limit, once",
        _out_of_memory,
        Expectation(classes=frozenset({"host_oom"})),
    ),
)
