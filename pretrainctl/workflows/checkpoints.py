"""Checkpoints: what lies in the checkpoint folder of a run, and what each tag is worth."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from pretrainctl.errors import LedgerError
from pretrainctl.frameworks.checkpoint_gate import refused_by_program
from pretrainctl.frameworks.checkpoint_verification import verify
from pretrainctl.frameworks.zero_checkpoint import inventory
from pretrainctl.records.run import Checkpoint, CheckpointStatus, RefusedTag
from pretrainctl.runs import folder, ledger
from pretrainctl.workflows.loading import refused_tags

__all__ = ["list_checkpoints", "verify_checkpoints"]


def list_checkpoints(name: str) -> list[Checkpoint]:
    """Every tag, oldest first; nothing is changed."""
    run = folder.find(name)
    layout = run.launch().checkpoint
    refused: dict[str, RefusedTag] = {}
    with contextlib.suppress(LedgerError):  # what the files say is worth showing all the same
        refused = refused_tags(ledger.read_events(run.path))
    return [refused_by_program(layout.directory, one, refused) for one in inventory(layout.directory, layout)]


def verify_checkpoints(name: str, tell: Callable[[int, int], object] = lambda _done, _total: None) -> list[Checkpoint]:
    """The same, where each complete tag has been read to its last byte and held against its checksums.

    `tell` hears how many bytes have been read, and how many there are. UnreadableError where the file system does not
    give a file.
    """
    directory = folder.find(name).launch().checkpoint.directory
    found = list_checkpoints(name)
    total = sum(one.size for one in found if one.status is CheckpointStatus.COMPLETE)
    done = 0
    lock = threading.Lock()

    def count(read: int) -> None:
        nonlocal done
        with lock:
            done = min(done + read, total)
            tell(done, total)

    return [verify(directory, one, count) for one in found]
