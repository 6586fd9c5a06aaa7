"""What bounds an attempt before a start of the program: budgets, and how often it goes back to an older checkpoint."""

from __future__ import annotations

import functools

from pretrainctl.records.run import Action, Decision
from pretrainctl.recovery.budgets import Spent, check_going_back, check_spent
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.patience import Patience
from pretrainctl.workflows.spending import opened_before, spent_by

__all__ = ["spent_now", "too_far_back", "used_up"]


def spent_now(attempt: Attempt, patience: Patience) -> Spent:
    """What the run has spent of its budgets, this attempt included."""
    return patience.until("the ledger", functools.partial(spent_by, attempt.run, running=attempt.number))


def used_up(attempt: Attempt, patience: Patience) -> Decision | None:
    """STOP where a budget leaves nothing for this attempt, else None."""
    used = check_spent(spent_now(attempt, patience), attempt.launch.recovery)
    return Decision(Action.STOP, used) if used else None


def too_far_back(attempt: Attempt, patience: Patience) -> Decision | None:
    """STOP where the checkpoint that the gate has just opened is one older one too many, else None."""
    patience.until("the ledger", attempt.write_events)  # what the gate found is the last of them
    opened = patience.until("the ledger", functools.partial(opened_before, attempt.run))
    back = check_going_back(opened, attempt.launch.recovery)
    return Decision(Action.STOP, back) if back else None
