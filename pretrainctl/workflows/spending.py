"""What a run has spent of its budgets, as its ledger and its files tell it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from pretrainctl.records import contract
from pretrainctl.records.run import AttemptRecord, Event
from pretrainctl.recovery.budgets import HOUR, Opened, Spent
from pretrainctl.recovery.diagnosis import FailureClass
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import RunState, fold

__all__ = ["opened_before", "opened_in", "spent_by"]

_NO_FAILURE = {
    kind.value
    for kind in (
        FailureClass.FINISHED,
        FailureClass.CHECKPOINTED,
        FailureClass.STOPPED,
        FailureClass.TIME_LIMIT,
        FailureClass.PREEMPTED,
    )
}


def spent_by(run: RunFolder, *, running: int = 0, clock: Callable[[], float] = time.time) -> Spent:
    """What the run has spent until now; `running` is the number of the attempt that asks, 0 for none.

    An attempt that died without a word counts until the last sign of it. Clocks of hosts may be wrong until they are
    set: none counts from before the run was made, or beyond now.
    """
    now = clock()
    events = ledger.read_events(run.path)
    state = fold(events)
    hours = 0.0
    for record in run.attempts():
        own = [event for event in events if event.attempt == record.attempt]
        if any(event.kind == "refused" for event in own):
            continue
        end = now if record.attempt == running else _last_sign(run, record, own)
        hours += len(record.nodes) * max(0.0, min(end, now) - max(record.time, run.record.created)) / HOUR
    return Spent(_failures(events, state, now), hours)


def opened_before(run: RunFolder) -> list[Opened]:
    """What the checkpoint gate opened before each start since the last resume, in order."""
    events = ledger.read_events(run.path)
    resumed_after = fold(events).resumed_after
    return _opened([event for event in events if event.attempt > resumed_after])


def opened_in(run: RunFolder, attempt: int) -> list[Opened]:
    """The same of one attempt."""
    return _opened(ledger.read_events(run.path, attempt))


def _opened(events: Sequence[Event]) -> list[Opened]:
    return [
        Opened(int(event.data.get("resume_step") or 0), event.data.get("last_saved_step"))
        for event in events
        if event.kind == "checkpoint_gate"
    ]


def _last_sign(run: RunFolder, record: AttemptRecord, events: Sequence[Event]) -> float:
    times = [record.time, *(event.time for event in events)]
    if not any(event.kind == "attempt_ended" for event in events):
        for restart in run.restarts(record.attempt):
            folder = contract.restart_dir(run.path, record.attempt, restart)
            for name in ("metrics.jsonl", "training.log"):
                with contextlib.suppress(OSError):
                    times.append((folder / name).stat().st_mtime)
    return max(times)


def _failures(events: Sequence[Event], state: RunState, now: float) -> int:
    """Failures in the last hour: those that an attempt saw, and those of attempts that could not say so themselves."""
    wordless = {attempt.attempt for attempt in state.attempts if not attempt.ended and not attempt.refused}
    return sum(
        event.attempt > state.resumed_after
        and event.time > now - HOUR
        and event.data.get("class") not in _NO_FAILURE
        and (event.kind == "restart_ended" or (event.kind == "looked_back" and event.data.get("of") in wordless))
        for event in events
    )
