"""Checkpoints: what lies in the checkpoint folder of a run, and what each tag is worth."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from pretrainctl.errors import LedgerError
from pretrainctl.frameworks.checkpoint_gate import as_recorded, stamp_of
from pretrainctl.frameworks.checkpoint_verification import verify
from pretrainctl.frameworks.zero_checkpoint import inventory
from pretrainctl.records.run import Checkpoint, CheckpointStatus, EventKind, RefusedTag
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows.loading import refused_tags

__all__ = ["Verified", "list_checkpoints", "verify_checkpoints"]


@dataclass(frozen=True)
class Verified:
    """Every tag, oldest first, and what could not be recorded of those that are corrupt."""

    checkpoints: tuple[Checkpoint, ...]
    notes: tuple[str, ...] = ()

    @property
    def corrupt(self) -> tuple[str, ...]:
        """The tags that are corrupt."""
        return tuple(one.tag for one in self.checkpoints if one.status is CheckpointStatus.CORRUPT)


def list_checkpoints(name: str) -> list[Checkpoint]:
    """Every tag, oldest first; nothing is changed."""
    run = folder.find(name)
    layout, refused = run.launch().checkpoint, _refused(run)
    return [as_recorded(layout.directory, one, refused) for one in inventory(layout.directory, layout)]


def verify_checkpoints(name: str, tell: Callable[[int, int], object] = lambda _done, _total: None) -> Verified:
    """The same, where each complete tag has been read to its last byte and held against its checksums.

    One that is corrupt is recorded, so that no start takes it, and so is one that was found corrupt before and no
    longer is; no file is changed. `tell` hears how many bytes have been read, and how many there are. UnreadableError
    where the file system does not give a file.
    """
    run = folder.find(name)
    layout, refused = run.launch().checkpoint, _refused(run)
    directory = layout.directory
    # What was found by its bytes before is read again: a file system may have given other bytes than it holds.
    settled = {tag: one for tag, one in refused.items() if one.because != "bytes"}
    found = [as_recorded(directory, one, settled) for one in inventory(directory, layout)]
    total = sum(one.size for one in found if one.status is CheckpointStatus.COMPLETE)
    done = 0
    lock = threading.Lock()

    def count(read: int) -> None:
        nonlocal done
        with lock:
            done = min(done + read, total)
            tell(done, total)

    verified, notes = [], []
    for one in found:
        stamp = stamp_of(directory, one.tag)
        read = verify(directory, one, count)
        if stamp_of(directory, one.tag) != stamp:
            read = one  # it was written anew meanwhile, so nothing is known of what lies there now
        elif one.status is CheckpointStatus.COMPLETE:
            note = _record(run, read, stamp, refused.get(one.tag))
            notes += [note] if note else []
        verified.append(read)
    return Verified(tuple(verified), tuple(notes))


def _record(run: RunFolder, read: Checkpoint, stamp: int, known: RefusedTag | None) -> str:
    """Write down what is news of a tag that was read; why that could not be done, empty where it was."""
    kind: EventKind
    data: dict[str, object]
    if read.status is CheckpointStatus.CORRUPT:
        one = RefusedTag(read.tag, read.reason, stamp, "bytes")
        kind, data = "checkpoint_damaged", {"refused": one}
        said = f"{read.tag} is corrupt, and nothing resumes from it: {read.reason}"
        news = known != one
    else:
        kind, data = "checkpoint_sound", {"tag": read.tag}
        said = f"{read.tag} is not corrupt: its bytes are those that were written"
        news = known is not None and known.stamp == stamp
    if not news:
        return ""
    if not run.is_own():
        why = f"the run belongs to {run.record.user}"
    elif stamp == 0:
        why = "its files cannot be looked at"
    else:
        try:
            ledger.append(run.path, kind, said, data=data)
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
        else:
            return ""
    return f"{said}; this is not recorded, so no start knows of it: {why}"


def _refused(run: RunFolder) -> dict[str, RefusedTag]:
    with contextlib.suppress(LedgerError):  # what the files say is worth showing all the same
        return refused_tags(ledger.read_events(run.path))
    return {}
