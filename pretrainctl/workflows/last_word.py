"""That a person, or the site, ended a run: by the ledger where it knows, by Slurm's word on jobs where not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pretrainctl.records.job import Job, JobClass
from pretrainctl.records.run import Diagnosis, Event
from pretrainctl.recovery.policies import FailureClass
from pretrainctl.runs.state import RunState

__all__ = [
    "CANCELS",
    "as_wished",
    "before",
    "cancel_of",
    "cancelled_in_queue",
    "cut_short",
    "stopped_besides",
    "what_it_saw",
    "wish_of_run",
    "word_of",
    "word_on",
]

CANCELS = {FailureClass.USER_CANCEL.value, FailureClass.ADMIN_CANCEL.value}
_WISHES = {*CANCELS, FailureClass.STOPPED.value}
_ASKED = {"cancel_requested": FailureClass.USER_CANCEL.value, "stop_requested": FailureClass.STOPPED.value}
_BY_SLURM = {
    JobClass.USER_CANCEL: FailureClass.USER_CANCEL,
    JobClass.CANCELLED: FailureClass.USER_CANCEL,
    JobClass.ADMIN_CANCEL: FailureClass.ADMIN_CANCEL,
}
_ENDED_IN_ORDER = {
    *(FailureClass.CHECKPOINTED.value, FailureClass.TIME_LIMIT.value, FailureClass.PREEMPTED.value),
    FailureClass.UNKNOWN.value,
}
"""How an attempt ends of which a person took the job, or what was to come after it, as far as it could see itself."""


def wish_of_run(state: RunState, events: Sequence[Event]) -> Diagnosis | None:
    """The stop of the run as a person's wish, None where it is not stopped or stopped for another reason."""
    if state.stopped is None:
        return None
    said = next((event for event in reversed(events) if event.message == state.stopped), None)
    kind = "" if said is None else _ASKED.get(said.kind, str(said.data.get("class", "")))
    if state.cancelled:
        kind = FailureClass.USER_CANCEL.value
    return Diagnosis(kind, state.stopped, evidence=(f"ledger: {state.stopped}",)) if kind in _WISHES else None


def word_on(attempt: int, events: Sequence[Event]) -> Diagnosis | None:
    """What the next look from anywhere found Slurm to say of an attempt: that its job was cancelled."""
    for event in events:
        kind = str(event.data.get("class", ""))
        if event.kind in {"looked_back", "stopped"} and event.data.get("of") == attempt and kind in CANCELS:
            return Diagnosis(kind, event.message, evidence=(f"ledger: {event.message}",))
    return None


def cancel_of(attempt: int, state: RunState, events: Sequence[Event]) -> Event | None:
    """The last `pretrainctl cancel` that was given while this attempt had the run, or began, and before the next
    `resume`; None where none was."""
    refused = {known.attempt for known in state.attempts if known.refused}
    found: Event | None = None
    for event in events:
        if event.kind == "cancel_requested":
            owner = event.after_attempt
            while owner in refused:
                owner -= 1
            resumed = [one.after_attempt for one in events if one.kind == "resume_requested" and _is_later(one, event)]
            if owner <= attempt <= min(resumed, default=attempt):
                found = event
    return found


def _is_later(one: Event, other: Event) -> bool:
    """Of two events from outside."""
    return one.attempt == other.attempt == 0 and one.sequence > other.sequence


def before(cancel: Event | None, told: Sequence[Event]) -> list[Event]:
    """The events of an attempt without what its cancel made it say: beats that end with the job are no dead nodes.

    By the clocks of two hosts, since nothing else orders what was done from outside and inside.
    """
    made = {"node_dead", "restart_ended"}
    return [
        event
        for event in told
        if cancel is None
        or event.time < cancel.time
        or event.kind not in made
        or (event.kind == "restart_ended" and event.data.get("class") != FailureClass.NODE_FAILURE.value)
    ]


def cut_short(cancel: Event | None, told: Sequence[Event], restart: int | None) -> bool:
    """Whether a cancel came before the end of this start of the program, or of an attempt that started none."""
    if cancel is None:
        return False
    ends = (
        event.time
        for event in told
        if event.kind in {"attempt_ended", "refused"}
        or (event.kind == "restart_ended" and event.data.get("restart") == restart)
    )
    return cancel.time <= min(ends, default=cancel.time)


def word_of(cancel: Event) -> Diagnosis:
    """A cancel as a person's wish."""
    return Diagnosis(_ASKED[cancel.kind], cancel.message, evidence=(f"ledger: {cancel.message}",))


def cancelled_in_queue(state: RunState, jobs: Mapping[int, Job]) -> Diagnosis | None:
    """That the last job of a run was cancelled before an attempt began in it, as Slurm says; None where one is alive,
    or it was not."""
    mine = [jobs[job] for job in state.jobs if job in jobs]
    claimed = {attempt.job_id for attempt in state.attempts}
    if not mine or any(job.state.alive is not False for job in mine):
        return None
    if mine[-1].job_id in {*claimed, *state.lost_jobs} or mine[-1].job_id not in state.unclaimed:
        return None
    last = mine[-1]
    kind = _BY_SLURM.get(last.state.job_class)
    if kind is None:
        return None
    return Diagnosis(
        kind.value,
        f"job {last.job_id} was cancelled before it began",
        evidence=(f"Slurm: {last.state.text}",),
        confidence="low" if last.state.job_class is JobClass.CANCELLED else "high",
    )


def as_wished(found: Diagnosis, wish: Diagnosis, *, cut: bool, sure: bool) -> Diagnosis:
    """How an attempt ended, as the wish tells it, where it saw no more than that it ended; else as it was found.

    `cut`: it was taken away by this, so what it did not know is no news. `sure`: this took its own job away.
    """
    if found.failure_class not in _ENDED_IN_ORDER and not sure:
        return found
    lines = (line for line in found.evidence if "(a consequence)" not in line and line not in wish.evidence)
    unknown = found.failure_class == FailureClass.UNKNOWN.value
    return replace(
        found,
        failure_class=wish.failure_class,
        message=wish.message if cut and unknown else f"{found.message}; {wish.message}",
        evidence=(*wish.evidence, *lines),
        confidence=wish.confidence if sure or (cut and unknown) else found.confidence,
        hint="",
        nodes=(),
        ranks=(),
    )


def what_it_saw(attempt: int, told: Sequence[Event]) -> Diagnosis | None:
    """The word of an attempt that started no training because there was nothing to do for it."""
    said = [event for event in told if event.kind in {"refused", "attempt_ended"}]
    if not said:
        return None
    kind = FailureClass.FENCED.value if said[0].kind == "refused" else str(said[0].data.get("class", ""))
    kind = kind if kind in set(FailureClass) else FailureClass.UNKNOWN.value
    message = said[0].message
    return Diagnosis(kind, f"no training was started: {message}", evidence=(f"attempt {attempt}: {message}",))


def stopped_besides(found: Diagnosis, wish: Diagnosis | None) -> list[str]:
    """That a person has stopped the run besides, where that is not how this ended."""
    if wish is None or found.failure_class == wish.failure_class or wish.message in found.message:
        return []
    return [f"besides, the run is stopped: {wish.message}"]
