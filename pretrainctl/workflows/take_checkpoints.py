"""May a new run have its checkpoint directory? Looked at before anything is made."""

from __future__ import annotations

from pathlib import Path

from pretrainctl.errors import CheckpointError, RunError
from pretrainctl.frameworks.checkpoint_owner import OWNER, read_owner
from pretrainctl.frameworks.zero_checkpoint import tags
from pretrainctl.records.run import CheckpointOwner
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold

__all__ = ["refuse_taken"]


def refuse_taken(directory: Path, *, adopt: bool) -> CheckpointOwner | None:
    """CheckpointError where a new run must not have the directory; returns an owner that it may replace.

    A directory without checkpoints and owner is free. One with checkpoints is not, unless `adopt` says that they are
    meant, and whoever owns them is over.
    """
    owner = read_owner(directory)
    if owner is None:
        if directory.is_dir() and (found := tags(directory)) and not adopt:
            raise CheckpointError(
                f"{directory} holds checkpoints already, the newest {found[0]}, and no record of whose they are",
                hint="give `--set checkpoint.adopt=true` to go on from them, or name another checkpoint.directory",
            )
        return None
    over = _is_over(owner)
    if adopt and over:
        return owner
    raise CheckpointError(
        f"the checkpoints in {directory} belong to another run: {owner.run_dir} of {owner.user}"
        + (", which is over" if over else ""),
        hint="give `--set checkpoint.adopt=true` to go on from them, or name another checkpoint.directory"
        if over
        else "name another checkpoint.directory; or end that run with "
        f"`pretrainctl stop --save {owner.run_dir}`, and then give `--set checkpoint.adopt=true` (where it has ended "
        f"and cannot say so, remove {directory / OWNER} by hand)",
    )


def _is_over(owner: CheckpointOwner) -> bool:
    """Nothing of it trains, and nothing will before a `resume`, which asks who owns the checkpoints; a ledger that
    cannot be read proves nothing."""
    try:
        run = RunFolder(owner.run_dir)
        state = fold(ledger.read_events(run.path))
    except RunError:
        return not owner.run_dir.exists() and owner.run_dir.parent.is_dir()
    if run.record.run_id != owner.run_id:
        return True
    return state.finished is not None or (state.stopped is not None and state.open_attempt is None)
