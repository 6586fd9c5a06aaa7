"""What the ledger and a restart's files say of checkpoints that could not be loaded."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pretrainctl.frameworks.checkpoint_gate import stamp_of
from pretrainctl.records import codec
from pretrainctl.records.run import Diagnosis, Event, RefusedTag
from pretrainctl.recovery.loading import blame_tag, find_failed_load
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.log_tail import tail

__all__ = ["judge_load", "refused_tags", "resume_tag_of"]

_LAST_LINES = 20
_LINE = 1000
"""Characters of a line that are kept."""


def judge_load(
    run: RunFolder, folder: Path, tag: str | None, diagnosis: Diagnosis, *, stepped: bool
) -> tuple[Diagnosis, dict[str, Any]]:
    """The diagnosis of the restart in `folder`, laid on its checkpoint where that is proven, and the data that tell so.

    `load_failed` of the data is the tag, `refused` the proof, for `refused_tags`; both are left out where the start did
    not end while it loaded. Called before the end of this start is in the ledger.
    """
    failed = find_failed_load(diagnosis, tag, phase=_last_phase(folder), stepped=stepped)
    if failed is None:
        return diagnosis, {}
    data: dict[str, Any] = {"load_failed": failed.tag}
    again = not failed.proven and _failed_before(ledger.read_events(run.path), failed.tag)
    if failed.proven or again:
        directory = run.launch().checkpoint.directory
        refused = RefusedTag(failed.tag, failed.line[:_LINE], stamp_of(directory, failed.tag))
        data["refused"] = codec.to_json(refused)
    return (blame_tag(diagnosis, failed) if again else diagnosis), data


def refused_tags(events: Sequence[Event]) -> dict[str, RefusedTag]:
    """The tags that are not to be loaded: those that could not be, or that a person went back from, and that no
    checkpoint gate has moved away since; and those whose bytes were found damaged, until their files change."""
    unloadable: dict[str, RefusedTag] = {}
    damaged: dict[str, RefusedTag] = {}
    behind: dict[str, RefusedTag] = {}
    went_back_after = 0
    for event in events:  # what was done from outside comes first
        refused = event.data.get("refused")
        if event.kind == "checkpoint_gate":
            unloadable = _left(unloadable, event)
            behind = _left(behind, event) if event.attempt > went_back_after else behind
        elif event.kind in {"restart_ended", "looked_back"}:
            unloadable |= _read([refused])
        elif event.kind == "checkpoint_damaged":
            damaged |= _read([refused])
        elif event.kind == "checkpoint_sound":
            damaged.pop(str(event.data.get("tag")), None)
        elif event.kind == "went_back":
            behind, went_back_after = _read(event.data.get("behind")), event.after_attempt
    return damaged | unloadable | behind


def _left(tags: Mapping[str, RefusedTag], gate: Event) -> dict[str, RefusedTag]:
    """Those that a checkpoint gate could not move away."""
    left = gate.data.get("left", ())
    return {tag: one for tag, one in tags.items() if isinstance(left, list) and tag in left}


def _read(entries: Any) -> dict[str, RefusedTag]:
    found = {}
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping):
            with contextlib.suppress(ValueError):
                one = codec.from_json(RefusedTag, entry)
                found[one.tag] = one
    return found


def resume_tag_of(events: Sequence[Event], restart: int) -> str | None:
    """The tag that a restart of these events was started from."""
    started = [event for event in events if event.kind == "restart_started" and event.data.get("restart") == restart]
    return started[-1].data.get("resume_tag") if started else None


def _failed_before(events: Sequence[Event], tag: str) -> bool:
    """Whether the start before ended while it loaded the same tag."""
    ends = [
        event
        for event in events
        if event.kind == "restart_ended" or (event.kind == "looked_back" and "load_failed" in event.data)
    ]
    return bool(ends) and ends[-1].data.get("load_failed") == tag


def _last_phase(folder: Path) -> str:
    for text in reversed(tail(folder / "metrics.jsonl", _LAST_LINES)):
        with contextlib.suppress(ValueError, AttributeError):
            line = json.loads(text)
            if line.get("kind") == "phase":
                return str(line.get("phase"))
    return ""
