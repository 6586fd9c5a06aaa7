"""Who a checkpoint directory belongs to: one run, named by a record in it.

Two runs in one directory would resume from each other's weights, write each other's tags and prune them. So the launch
takes the directory before its first job is submitted, and each start of the training asks again whether it is still
the run's own. A run that was launched before there were owners takes its directory at its next start.
"""

from __future__ import annotations

import getpass
import time
from pathlib import Path

from pretrainctl.errors import CheckpointError, LedgerError, UnreadableError
from pretrainctl.records import codec
from pretrainctl.records.run import CheckpointOwner

__all__ = ["OWNER", "own", "read_owner", "refuse_stranger", "release"]

OWNER = "owner.json"


def read_owner(directory: Path) -> CheckpointOwner | None:
    """The run that took a directory, None where none did.

    CheckpointError for a record that says nothing, UnreadableError where the file system does not answer.
    """
    path = directory / OWNER
    try:
        return codec.read(CheckpointOwner, path)
    except LedgerError as error:
        cause = error.__cause__
        if isinstance(cause, FileNotFoundError):
            return None
        if isinstance(cause, OSError):
            raise UnreadableError(
                f"{path} cannot be read ({cause.strerror}): whose checkpoints these are is unknown",
                hint="nothing was changed; try again when the file system answers",
            ) from error
        raise CheckpointError(f"whose checkpoints these are is unknown: {error}", hint=_by_hand(directory)) from error


def refuse_stranger(directory: Path, run_id: str) -> None:
    """CheckpointError where another run than `run_id` owns the directory; one that nobody owns is nobody's trouble."""
    owner = read_owner(directory)
    if owner is not None and owner.run_id != run_id:
        raise _owned(directory, owner)


def own(directory: Path, run_id: str, run_dir: Path, *, instead_of: CheckpointOwner | None = None) -> None:
    """Take a directory, which is made where it is missing, for a run; CheckpointError where another run has it.

    `instead_of` is an owner that the caller found to be over: it is replaced.
    """
    owner = read_owner(directory)
    if instead_of is None and owner is not None and owner.run_id == run_id:
        return  # nothing is written: the disk may be full, and the run goes on all the same
    mine = CheckpointOwner(run_id, run_dir, getpass.getuser(), time.time())
    directory.mkdir(parents=True, exist_ok=True)
    if instead_of is not None and read_owner(directory) == instead_of:
        codec.write(directory / OWNER, mine)
    elif not codec.create(directory / OWNER, mine):
        refuse_stranger(directory, run_id)


def release(directory: Path, run_id: str, *, back_to: CheckpointOwner | None = None) -> None:
    """Undo `own` of a run that never began; the owner before it is put back."""
    owner = read_owner(directory)
    if owner is None or owner.run_id != run_id:
        return
    if back_to is not None:
        codec.write(directory / OWNER, back_to)
    else:
        (directory / OWNER).unlink()


def _owned(directory: Path, owner: CheckpointOwner) -> CheckpointError:
    return CheckpointError(
        f"the checkpoints in {directory} belong to another run: {owner.run_dir} of {owner.user}",
        hint=_by_hand(directory),
    )


def _by_hand(directory: Path) -> str:
    return (
        "name another checkpoint.directory; or, when the other run has ended for good, remove "
        f"{directory / OWNER} by hand"
    )
