"""Checkpoints that are not whole, and file systems that do not take what is written."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from signal import SIGKILL, SIGSTOP

from pretrainctl.sandbox import outages
from pretrainctl.workflows.drill.fault import Fault
from pretrainctl.workflows.drill.place import EVERY
from pretrainctl.workflows.drill.scene import Scene, UnmetError
from pretrainctl.workflows.drill.verdict import Expectation

__all__ = ["FAULTS"]

_AWAY = 20.0
_FILESYSTEM = Expectation(classes=frozenset({"filesystem"}))


def _incomplete(scene: Scene, stage: int) -> None:
    tag = f"global_step{2 * EVERY}"
    scene.launch(
        f"training.zero_stage={stage}",
        program=("slow-save", "--at", str(2 * EVERY), "--seconds", "20", *scene.once()),
    )
    scene.wait_for_torn_save()
    scene.signal(1, SIGKILL)
    gate = scene.wait_for("checkpoint_gate", count=2)[1].data
    if [entry["tag"] for entry in gate["quarantined"]] != [tag]:
        raise UnmetError(f"{tag} is half written, and was not set aside")


def _truncate(scene: Scene, tags: Sequence[Path]) -> None:
    """Cut the last bytes off a shard of each of these checkpoints."""
    for tag in tags:
        shard = max(tag.glob("*optim_states.pt"))
        os.truncate(shard, shard.stat().st_size - 100)
        scene.damaged.add(int(tag.name.removeprefix("global_step")))


def _truncated(scene: Scene, *, every: bool) -> None:
    scene.launch()
    scene.wait_for_step(2 * EVERY + 3)
    for rank in scene.all_ranks():  # so that no save comes in between
        scene.signal(rank, SIGSTOP)
    saves = scene.saves()
    _truncate(scene, saves if every else saves[-1:])
    scene.strike()
    scene.signal(1, SIGKILL)


def _disk_full(scene: Scene) -> None:
    with outages.small_disk(scene.place.folder / "disk", "64m") as disk:
        scene.launch(f"checkpoint.directory={disk / 'checkpoints'}")
        scene.wait_for_step()
        scene.strike()
        with outages.fill(disk):
            scene.wait_for("restart_ended")
        scene.wait_for("finished", seconds=150.0)


def _read_only(scene: Scene) -> None:
    scene.launch()
    scene.wait_for_step()
    scene.strike()
    with outages.read_only(scene.path):
        time.sleep(_AWAY)


FAULTS = (
    *(
        Fault(
            f"incomplete-checkpoint-zero-{stage}",
            f"a rank dies with its shard half written, ZeRO {stage}",
            partial(_incomplete, stage=stage),
            zero_stage=stage,
        )
        for stage in (1, 2, 3)
    ),
    Fault(
        "truncated-checkpoint",
        "the newest checkpoint is cut short, and a rank dies",
        partial(_truncated, every=False),
        own=True,
    ),
    Fault(
        "all-checkpoints-bad",
        "every checkpoint is cut short, and a rank dies",
        partial(_truncated, every=True),
        Expectation("stopped", stop=frozenset({"checkpoint_incomplete"}), starts=1),
        own=True,
    ),
    Fault("disk-full-in-save", "the disk of the checkpoints is full at a save", _disk_full, _FILESYSTEM, mounts=True),
    Fault(
        "run-folder-read-only",
        f"the run folder cannot be written for {_AWAY:.0f} s",
        _read_only,
        _FILESYSTEM,
        mounts=True,
    ),
)
