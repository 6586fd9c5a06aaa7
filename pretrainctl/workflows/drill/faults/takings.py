"""Slurm takes the nodes away: time limits and preemption."""

from __future__ import annotations

import json

from pretrainctl.errors import CommandError
from pretrainctl.workflows.drill.fault import Fault
from pretrainctl.workflows.drill.place import EVERY
from pretrainctl.workflows.drill.scene import Scene, UnmetError
from pretrainctl.workflows.drill.verdict import Expectation

__all__ = ["FAULTS"]

_LEAD = "cluster.signals.lead=55s"
"""Of a limit of one minute: Slurm signals as soon as it looks, which it does every half minute."""
_SPOT = "drill-spot"


def _time_limit(scene: Scene) -> None:
    scene.launch(_LEAD, pace=1.2)
    scene.wait_for_step(3)
    scene.place.slurm("scontrol", "update", f"JobId={scene.job()}", "TimeLimit=1")
    scene.struck = scene.wait_for("save_asked", seconds=90.0)[0].time


def _time_limit_in_save(scene: Scene) -> None:
    """The signal that Slurm gives before the limit, at the very moment: its own clock is too coarse for one save."""
    scene.launch(program=("slow-save", "--at", str(2 * EVERY), "--seconds", "10", *scene.once()))
    scene.wait_for_torn_save()
    scene.strike()
    scene.place.slurm("scancel", "--batch", "--signal=USR1", str(scene.job()))
    asked = scene.wait_for("save_asked", seconds=30.0)[0].time
    if any(asked > save.time for save in scene.series().saved if save.step == 2 * EVERY):
        raise UnmetError("the signal came after the save")


def _preempt(scene: Scene) -> None:
    """A job of the partition `high` takes all nodes for a moment, and must get them."""
    scene.wait_for_step()
    scene.strike()
    urgent = scene.place.slurm(
        *("sbatch", "--parsable", "--partition=high", "--nodes=4", "--exclusive", "--output=/dev/null"),
        "--wrap=srun sleep 2",
    ).strip()
    scene.wait_for("finished", seconds=180.0)
    state = scene.place.slurm("sacct", "-nXP", "-o", "state", "-j", urgent).split()
    if state != ["COMPLETED"]:
        raise UnmetError(f"the job that preempted it is {' '.join(state)}")


def _preempted_by_requeue(scene: Scene) -> None:
    scene.launch()
    _preempt(scene)


def _preempted_by_cancel(scene: Scene) -> None:
    nodes = scene.place.slurm("sinfo", "-h", "-p", "production", "-o", "%N").strip()
    place = scene.place
    partition = (f"PartitionName={_SPOT}", f"Nodes={nodes}", "PriorityTier=1", "State=UP", "MaxTime=60")
    place.slurm("scontrol", "create", *partition, "PreemptMode=CANCEL", "GraceTime=20")
    try:
        queue = {"name": "spot", "partition": _SPOT, "purpose": "production", "max_nodes": None, "max_walltime": "1h"}
        scene.launch(f"cluster.queues=[{json.dumps(queue)}]")
        _preempt(scene)
        scene.wait(lambda: not scene.jobs(), 60.0, "its jobs to end")
    finally:
        scene.end()
        try:
            place.slurm("scontrol", "delete", f"PartitionName={_SPOT}")
        except CommandError as error:
            raise UnmetError(f"the partition {_SPOT} cannot be removed: {error}") from error


FAULTS = (
    Fault(
        "time-limit",
        "the job's time limit draws near",
        _time_limit,
        Expectation(classes=frozenset({"time_limit"}), twice=0, starts=2),
    ),
    Fault(
        "time-limit-in-save",
        "the job's time limit draws near in the middle of a save",
        _time_limit_in_save,
        Expectation(classes=frozenset({"time_limit"}), twice=0, starts=2),
    ),
    Fault(
        "preempted-requeue",
        "a more urgent job takes the nodes, from a partition that requeues",
        _preempted_by_requeue,
        Expectation(classes=frozenset({"preempted"}), twice=0, starts=2),
    ),
    Fault(
        "preempted-cancel",
        "a more urgent job takes the nodes, from a partition that cancels after a grace time",
        _preempted_by_cancel,
        Expectation(classes=frozenset({"preempted"}), twice=0, starts=2),
    ),
)
