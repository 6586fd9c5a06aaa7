"""What an attempt wrote down about one of its restarts."""

from __future__ import annotations

from collections.abc import Sequence

from pretrainctl.records.run import Event

__all__ = ["events_of", "what_the_witness_did", "what_was_decided", "what_was_done"]

_TOLD = {
    "node_dead",
    "save_asked",
    "hang",
    "decided",
    "checkpoint_gate",
    "restart_started",
    "attempt_ended",
    "finished",
    "stopped",
}


def events_of(told: Sequence[Event], restart: int) -> list[Event]:
    """The events of an attempt while a restart ran, and after it until the next one started."""
    within: list[Event] = []
    current: int | None = None
    for event in told:
        if event.kind == "restart_started":
            current = event.data.get("restart")
        elif current == restart:
            within.append(event)
    return within


def what_was_decided(told: Sequence[Event], restart: int | None) -> str:
    """The action that an attempt took after an end, empty where it took none: `Action` has the words."""
    action, after = "", restart is None
    for event in told:
        if event.kind == "restart_ended" and event.data.get("restart") == restart:
            after = True
        elif after and event.kind == "restart_started":
            break
        elif after and event.kind in {"decided", "attempt_ended"}:
            action = str(event.data.get("action", ""))
    return action


def what_was_done(told: Sequence[Event], restart: int | None) -> tuple[str, ...]:
    """What pretrainctl did about an end, up to the next start."""
    if restart is None:
        return tuple(event.message for event in told if event.kind in _TOLD)
    ends = [event.sequence for event in told if event.kind == "restart_ended" and event.data.get("restart") == restart]
    after = [event for event in told if ends and event.sequence > ends[0] and event.kind in _TOLD]
    starts = [index for index, event in enumerate(after) if event.kind == "restart_started"]
    noticed = [event for event in events_of(told, restart) if event.kind in {"node_dead", "save_asked", "hang"}]
    messages = [event.message for event in (*noticed, *(after[: starts[0] + 1] if starts else after))]
    # The end of an attempt says again what was decided.
    return tuple(text for index, text in enumerate(messages) if not any(text in said for said in messages[:index]))


def what_the_witness_did(events: Sequence[Event], attempt: int) -> tuple[str, ...]:
    """What was done about the lost batch host of an attempt, which cannot say so itself, and which job went on."""
    lost = [event for event in events if event.kind == "batch_host_lost" and event.data.get("attempt") == attempt]
    if not lost:
        return ()
    refused = {event.attempt for event in events if event.kind == "refused"}
    later = [event for event in events if event.attempt > attempt and event.attempt not in refused]
    claimed = next((event for event in later if event.kind == "claimed"), None)
    if claimed is None:
        return (lost[-1].message,)
    started = [event for event in later if event.kind == "restart_started" and event.attempt == claimed.attempt]
    went_on = f"job {claimed.data.get('job_id')} went on by itself as attempt {claimed.attempt}"
    return (lost[-1].message, went_on, *(event.message for event in started[:1]))
