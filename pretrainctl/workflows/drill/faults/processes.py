"""Ranks that die, or stand still."""

from __future__ import annotations

from signal import SIGKILL, SIGSEGV, SIGSTOP

from pretrainctl.workflows.drill.fault import Fault
from pretrainctl.workflows.drill.place import STEPS
from pretrainctl.workflows.drill.scene import Scene
from pretrainctl.workflows.drill.verdict import Expectation

__all__ = ["FAULTS"]

_HANG = Expectation(classes=frozenset({"hang"}))
_HANG_PATIENCE = 420.0


def _rank_killed(scene: Scene) -> None:
    scene.launch()
    scene.wait_for_step()
    scene.signal(1, SIGKILL)


def _rank_segfault(scene: Scene) -> None:
    scene.launch()
    scene.wait_for_step()
    scene.signal(1, SIGSEGV)


def _one_rank_stopped(scene: Scene) -> None:
    scene.launch()
    scene.wait_for_step()
    scene.signal(1, SIGSTOP)


def _all_ranks_stopped(scene: Scene) -> None:
    scene.launch()
    scene.wait_for_step()
    for rank in scene.all_ranks():
        scene.signal(rank, SIGSTOP)


def _hang_at_start(scene: Scene) -> None:
    scene.launch("cluster.hang.start=40s")
    scene.wait_for("restart_started")
    scene.signal(1, SIGSTOP)


def _hang_after_last_step(scene: Scene) -> None:
    scene.launch(program=("stay",))
    scene.wait_for_step(STEPS)
    scene.strike()


FAULTS = (
    Fault("rank-killed", "a rank gets SIGKILL", _rank_killed, own=True),
    Fault("rank-segfault", "a rank gets SIGSEGV", _rank_segfault, own=True),
    Fault(
        "one-rank-stopped", "a rank is stopped in a step", _one_rank_stopped, _HANG, own=True, patience=_HANG_PATIENCE
    ),
    Fault(
        "all-ranks-stopped",
        "all ranks are stopped in a step",
        _all_ranks_stopped,
        _HANG,
        own=True,
        patience=_HANG_PATIENCE,
    ),
    Fault("hang-at-start", "a rank is stopped before its first step", _hang_at_start, _HANG, patience=_HANG_PATIENCE),
    Fault(
        "hang-after-last-step",
        "no rank leaves after the end record",
        _hang_after_last_step,
        Expectation(classes=frozenset({"finished"}), twice=0, starts=1),
        own=True,
    ),
)
