"""Checkpoints: what lies in the checkpoint folder of a run, and what each tag is worth."""

from __future__ import annotations

import contextlib

from pretrainctl.errors import LedgerError
from pretrainctl.frameworks.checkpoint_gate import refused_by_program
from pretrainctl.frameworks.zero_checkpoint import inventory
from pretrainctl.records.run import Checkpoint, RefusedTag
from pretrainctl.runs import folder, ledger
from pretrainctl.workflows.loading import refused_tags

__all__ = ["list_checkpoints"]


def list_checkpoints(name: str) -> list[Checkpoint]:
    """Every tag, oldest first; nothing is changed."""
    run = folder.find(name)
    layout = run.launch().checkpoint
    refused: dict[str, RefusedTag] = {}
    with contextlib.suppress(LedgerError):  # what the files say is worth showing all the same
        refused = refused_tags(ledger.read_events(run.path))
    return [refused_by_program(layout.directory, one, refused) for one in inventory(layout.directory, layout)]
