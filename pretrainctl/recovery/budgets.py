"""Budgets of going on without a human: what may be spent before somebody has to look. Pure.

| budget | counted | of |
|---|---|---|
| restarts_per_hour | failures in the last hour | the run, since the last resume |
| node_hours | node-hours of all its attempts, spares included | the run |
| older_checkpoints | starts in a row from another than the newest known checkpoint | the same |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pretrainctl.records.launch import RecoveryRule

__all__ = ["HOUR", "Opened", "Spent", "check_going_back", "check_node_hours", "check_spent"]

HOUR = 3600.0
"""Seconds over which restarts are counted."""


@dataclass(frozen=True)
class Spent:
    """`failures` in the last hour, the newest one included, and `node_hours` of the whole run so far."""

    failures: int = 0
    node_hours: float = 0.0


@dataclass(frozen=True)
class Opened:
    """What the checkpoint gate opened before a start: the step resumed from (0 = fresh), and that of the newest save
    that the run had completed, None for none."""

    step: int
    last_saved: int | None = None


def check_spent(spent: Spent, rule: RecoveryRule) -> str:
    """Why nothing more may be started, with the figures; empty where something may."""
    if rule.restarts_per_hour is not None and spent.failures > rule.restarts_per_hour:
        return (
            f"{spent.failures} failures within an hour, and the recipe allows a restart after "
            f"{rule.restarts_per_hour} (recovery.restarts_per_hour)"
        )
    return check_node_hours(spent, rule)


def check_node_hours(spent: Spent, rule: RecoveryRule) -> str:
    """The same for the node-hours alone, which a resume does not give back."""
    if rule.node_hours is None or spent.node_hours < rule.node_hours:
        return ""
    return (
        f"{spent.node_hours:.4g} node-hours are used, and the recipe allows {rule.node_hours:g} (recovery.node_hours)"
    )


def check_going_back(opened: Sequence[Opened], rule: RecoveryRule) -> str:
    """Why a start from yet another older checkpoint is one too many; empty where it may be done.

    A save that was torn when its writer was killed is no newer checkpoint: only one that was completed, or had been
    resumed from, is missed.
    """
    back: list[int] = []
    level = highest = 0
    known: int | None = None
    for one in opened:
        if one.last_saved != known:  # completed since the gate before
            level, known = max(level, one.last_saved or 0), one.last_saved
        if one.step < level:
            back.append(one.step)
        elif one.step > highest:
            back = []
        level, highest = one.step, max(highest, one.step)
    if len(back) <= rule.older_checkpoints:
        return ""
    steps = ", ".join(map(str, back))
    return (
        f"{len(back)} times in a row an older checkpoint had to do (step {steps}), and the recipe allows "
        f"{rule.older_checkpoints} (recovery.older_checkpoints): what writes or keeps checkpoints is broken"
    )
