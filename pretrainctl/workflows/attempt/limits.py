"""What bounds an attempt before a start of the program: budgets, and how often it goes back to an older checkpoint."""

from __future__ import annotations

import functools

from pretrainctl.records.run import Action, Decision
from pretrainctl.recovery.budgets import Spent, check_going_back, check_spent
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.patience import Patience
from pretrainctl.workflows.spending import opened_before, opened_in, spent_by

__all__ = ["spent_now", "too_far_back", "used_up"]


def spent_now(attempt: Attempt, patience: Patience) -> Spent:
    """What the run has spent of its budgets, this attempt included; nothing where the recipe sets none.

    The whole ledger is read for it: on a parallel file system that is time which a restart does not have to spare.
    """
    rule = attempt.launch.recovery
    if rule.node_hours is None and rule.restarts_per_hour is None:
        return Spent()
    return patience.until("the ledger", functools.partial(spent_by, attempt.run, running=attempt.number))


def used_up(attempt: Attempt, patience: Patience) -> Decision | None:
    """STOP where a budget leaves nothing for this attempt, else None."""
    used = check_spent(spent_now(attempt, patience), attempt.launch.recovery)
    return Decision(Action.STOP, used) if used else None


def too_far_back(attempt: Attempt, patience: Patience) -> Decision | None:
    """STOP where the checkpoint that the gate has just opened is one older one too many, else None."""
    patience.until("the ledger", attempt.write_events)  # what the gate found is the last of them
    now = patience.until("the ledger", functools.partial(opened_in, attempt.run, attempt.number))[-1]
    if now.last_saved is not None and now.step >= now.last_saved:
        return None
    opened = patience.until("the ledger", functools.partial(opened_before, attempt.run))
    back = check_going_back(opened, attempt.launch.recovery)
    return Decision(Action.STOP, back) if back else None
