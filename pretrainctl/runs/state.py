"""The run as the fold of its events: pure, and the same for everybody who has the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pretrainctl.records.run import Event
from pretrainctl.runs.going_back import WentBack, went_back

__all__ = ["AttemptState", "RunState", "fold"]

_WISHED = {"", "user_cancel", "stopped"}
"""Classes of stops that a person wished for; an event without a class is one of them."""

_DIES_WITHIN = 600.0
"""Seconds from the loss of a batch host, as another host told it, to the last word that an attempt may have in a job
which is cancelled for that: the clocks of the two differ, and Slurm waits before it kills."""
_WARNINGS = {"checkpoint_unusable", "loss_jump", "lr_jump"}


@dataclass(frozen=True)
class AttemptState:
    """What the ledger says of one attempt.

    `job_id` is None where it was never written. `action` and `failure_class` are those of its last decision, None
    while it has not ended by its own will. `lost_host`: its batch host and how it was lost, where its job was ended for
    that; empty where the host was seen again, or the attempt wrote long after: then its job went on.
    """

    attempt: int
    job_id: int | None
    refused: bool
    ended: bool
    action: str | None
    failure_class: str | None
    message: str
    resume_step: int | None
    restarts: int
    dead_nodes: tuple[str, ...]
    lost_host: Mapping[str, str]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class RunState:
    """What the ledger says of the run.

    `finished` and `stopped` are the messages that said so, None where nothing did. That it was finished holds until a
    person goes back to an older checkpoint, as `went_back` tells of the last time. A stop holds until a resume:
    `failed` where nobody wished it, `cancelled` where a person wants the jobs ended at once. `resumed_after` is the
    newest attempt that existed at the last resume; what attempts up to it did is past and stops nothing; `resumes` are
    those of all resumes. `jobs` are all Slurm job ids of the run, oldest first. `unsubmitted`: it is stopped only
    because its launch has not submitted it, and may do so yet. `unclaimed` are the jobs since the last resume that
    follow the last one in which an attempt began: those in the queue, and any that ended without an attempt;
    `lost_jobs` are the events that say how such a job was lost, by job id.
    """

    finished: str | None
    stopped: str | None
    failed: bool
    cancelled: bool
    resumed_after: int
    resumes: tuple[int, ...]
    jobs: tuple[int, ...]
    attempts: tuple[AttemptState, ...]
    last: Event | None
    unsubmitted: bool = False
    went_back: WentBack | None = None
    unclaimed: tuple[int, ...] = ()
    lost_jobs: Mapping[int, Event] = field(default_factory=dict)

    @property
    def owner(self) -> AttemptState | None:
        """The newest attempt that was not refused."""
        return next((attempt for attempt in reversed(self.attempts) if not attempt.refused), None)

    @property
    def open_attempt(self) -> AttemptState | None:
        """The owner, where it has not said that it ended: it runs, or died without a word."""
        return self.owner if self.owner is not None and not self.owner.ended else None


def fold(events: Sequence[Event]) -> RunState:
    """Fold events, in the order of the ledger, into the state of the run."""
    outside = [event for event in events if event.attempt == 0]
    resumes = [event for event in outside if event.kind == "resume_requested"]
    resumed_after = resumes[-1].after_attempt if resumes else 0
    resume_sequence = resumes[-1].sequence if resumes else 0
    # One of these events may have become unreadable.
    submitted = any(event.attempt or event.kind in {"submitting", "submitted"} for event in events)
    finished = stopped = None
    back = went_back(events)
    failed = cancelled = unsubmitted = False
    for event in events:
        current = event.sequence > resume_sequence if event.attempt == 0 else event.attempt > resumed_after
        if event.kind == "finished":
            finished = finished if back is not None and back.is_before(event) else event.message
        elif current and event.kind == "made" and not submitted:
            stopped, unsubmitted = event.message, True
        elif current and event.kind in {"stopped", "stop_requested", "cancel_requested"}:
            stopped, unsubmitted = event.message, False
            failed = event.kind == "stopped" and event.data.get("class", "") not in _WISHED
            cancelled = cancelled or event.kind == "cancel_requested"
    lost = _lost_hosts(events)
    jobs = _jobs(events)
    claimed = {event.data.get("job_id") for event in events if event.kind in {"claimed", "batch_host_lost"}}
    last_claimed = max((index for index, job in enumerate(jobs) if job in claimed), default=-1)
    numbers = sorted({event.attempt for event in events if event.attempt})
    return RunState(
        finished=finished,
        stopped=stopped,
        failed=failed,
        cancelled=cancelled,
        resumed_after=resumed_after,
        resumes=tuple(event.after_attempt for event in resumes),
        jobs=tuple(jobs),
        attempts=tuple(
            _attempt(number, [event for event in events if event.attempt == number], lost.get(number))
            for number in numbers
        ),
        last=_last(events, resumed_after),
        unsubmitted=unsubmitted,
        went_back=back,
        unclaimed=tuple(
            job
            for job, told in list(jobs.items())[last_claimed + 1 :]
            if (told.attempt > resumed_after if told.attempt else told.sequence > resume_sequence)
        ),
        lost_jobs={event.data["job_id"]: event for event in outside if event.kind == "job_lost"},
    )


def _lost_hosts(events: Sequence[Event]) -> dict[int, Mapping[str, Any]]:
    """The last loss of a batch host of each attempt whose job was cancelled for that."""
    lost: dict[int, Event] = {}
    for event in events:
        if event.attempt == 0 and event.kind == "batch_host_lost":
            lost[event.data["attempt"]] = event
        elif event.attempt == 0 and event.kind == "batch_host_back":
            lost.pop(event.data["attempt"], None)
    last = {event.attempt: event.time for event in events}
    return {
        attempt: event.data
        for attempt, event in lost.items()
        if last.get(attempt, event.time) <= event.time + _DIES_WITHIN
    }


def _last(events: Sequence[Event], resumed_after: int) -> Event | None:
    """The newest event, less what attempts say that have the run no more: one may write late, while its job ends."""
    refused = {event.attempt for event in events if event.kind == "refused"}
    owner = max((event.attempt for event in events if event.attempt not in refused), default=0)
    owner = owner if owner > resumed_after else resumed_after + 1
    current = (event for event in events if event.attempt == 0 or event.attempt >= owner)
    return max(current, key=lambda event: event.time, default=None)


def _jobs(events: Sequence[Event]) -> dict[int, Event]:
    """The jobs of a run, oldest first, each with the first event that names it."""
    found: dict[int, Event] = {}
    for event in events:
        for job in (event.data.get("job_id"), *_list(event.data.get("job_ids"))):
            if isinstance(job, int) and event.kind in {"submitted", "chained", "claimed", "resume_requested"}:
                found.setdefault(job, event)
    return dict(sorted(found.items(), key=lambda item: (item[1].time, item[0])))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _attempt(number: int, events: Sequence[Event], lost: Mapping[str, Any] | None) -> AttemptState:
    kinds = {event.kind for event in events}
    ended = [event for event in events if event.kind == "attempt_ended"]
    gates = [event for event in events if event.kind == "checkpoint_gate"]
    data = ended[-1].data if ended else {}
    return AttemptState(
        attempt=number,
        job_id=next((event.data.get("job_id") for event in events if event.kind == "claimed"), None),
        refused="refused" in kinds,
        ended=bool(ended),
        action=data.get("action"),
        failure_class=data.get("class"),
        message=(ended or list(events))[-1].message if events else "",
        resume_step=gates[-1].data.get("resume_step") if gates else None,
        restarts=sum(event.kind == "restart_started" for event in events),
        dead_nodes=tuple(str(event.data.get("node", "")) for event in events if event.kind == "node_dead"),
        lost_host={} if lost is None else {str(lost["node"]): str(lost["how"])},
        warnings=tuple(event.message for event in events if event.kind in _WARNINGS),
    )
