"""What an event must hold to be one: those who fold the ledger rely on it, and look at no type again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pretrainctl.records.run import Event

__all__ = ["check_event"]

_TEXTS = {"action", "back_to", "class", "confidence", "hint", "how", "node", "reason"}
_NUMBERS = {"attempt", "back_to_step", "from_step", "job_id", "of", "restart", "since", "slurm_restart"}
_LISTS: Mapping[str, type] = {
    "behind": dict,
    "changes": dict,
    "evidence": str,
    "exclude": str,
    "job_ids": int,
    "nodes": str,
    "ranks": int,
    "waiting": dict,
}
_MAY_BE_NULL = {"last_saved_step": int, "resume_step": int, "resume_tag": str}
_NEEDED = {
    "batch_host_back": ("attempt",),
    "batch_host_lost": ("attempt", "how", "node"),
    "job_lost": ("class", "job_id", "nodes"),
    "node_dead": ("node",),
    "restart_ended": ("class", "restart"),
    "restart_started": ("nodes", "restart"),
    "submitted": ("job_id",),
    "went_back": ("back_to", "back_to_step", "from_step"),
}
"""What an event of this kind is told by."""
_GREATEST = 1 << 63
_LATEST = 1e11
"""Epoch seconds, far beyond what any clock shows: a greater number cannot be printed as a date."""


def check_event(event: Event, attempt: int, sequence: int) -> None:
    """ValueError where an event is not that of its place, or its time or data are none that an event can have.

    `attempt` and `sequence` are those of its file. Data under names that are not known here may be anything.
    """
    if (event.attempt, event.sequence) != (attempt, sequence):
        raise ValueError(f"it says that it is event {event.sequence} of attempt {event.attempt}")
    if not 0 <= event.time < _LATEST:
        raise ValueError(f"its time is none: {event.time:g}")
    missing = [name for name in _NEEDED.get(event.kind, ()) if name not in event.data]
    if missing:
        raise ValueError(f"an event {event.kind!r} has no data.{missing[0]}")
    for name, value in event.data.items():
        if not _fits(name, value):
            raise ValueError(f"data.{name} cannot be {str(value)[:80]!r}")


def _fits(name: str, value: Any) -> bool:
    if name in _MAY_BE_NULL:
        return value is None or _is(_MAY_BE_NULL[name], value)
    if name in _LISTS:
        return isinstance(value, list) and all(_is(_LISTS[name], item) for item in value)
    return (name not in _TEXTS or _is(str, value)) and (name not in _NUMBERS or _is(int, value))


def _is(kind: type, value: Any) -> bool:
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _GREATEST
    return isinstance(value, kind)
