"""Checkpoints: what lies in the checkpoint folder of a run, and what each tag is worth."""

from __future__ import annotations

from pretrainctl.frameworks.zero_checkpoint import inventory
from pretrainctl.records.run import Checkpoint
from pretrainctl.runs import folder

__all__ = ["list_checkpoints"]


def list_checkpoints(name: str) -> list[Checkpoint]:
    """Every tag, oldest first; nothing is changed."""
    launch = folder.find(name).launch()
    return list(inventory(launch.checkpoint.directory, launch.checkpoint))
