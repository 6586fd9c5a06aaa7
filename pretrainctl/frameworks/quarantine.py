"""Where what is in the way of a resume is kept: `quarantine/` of a checkpoint directory. Nothing is deleted."""

from __future__ import annotations

import os
from pathlib import Path

from pretrainctl.errors import CheckpointError
from pretrainctl.records.codec import sync_directory
from pretrainctl.records.run import Checkpoint

__all__ = ["QUARANTINE", "quarantine", "set_aside"]

QUARANTINE = "quarantine"


def quarantine(directory: Path, checkpoint: Checkpoint, label: str) -> Path:
    """Move a tag to `quarantine/<tag>.<label>`, by rename: nothing is deleted or overwritten.

    A name that is taken gets a number. Returns the new path; CheckpointError where it cannot be moved.
    """
    return set_aside(directory, checkpoint.tag, label)


def set_aside(directory: Path, name: str, label: str) -> Path:
    """Move any entry of a checkpoint directory into its quarantine; see `quarantine`."""
    folder = directory / QUARANTINE
    target = folder / f"{name}.{label}"
    try:
        folder.mkdir(exist_ok=True)
        number = 2
        # rename() would silently replace an empty directory, so a free name is looked for first.
        while os.path.lexists(target):
            target = folder / f"{name}.{label}.{number}"
            number += 1
        (directory / name).rename(target)
        sync_directory(folder)
        sync_directory(directory)
    except OSError as error:
        raise CheckpointError(
            f"{directory / name} cannot be moved to {target}: {error.strerror}",
            hint="move it away by hand, then resume",
        ) from error
    return target
