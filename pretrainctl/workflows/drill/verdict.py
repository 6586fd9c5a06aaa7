"""The verdict on a fault, by the run's own records: ledger, metrics, checkpoints, weights, and Slurm's queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pretrainctl.metrics.series import Series, Start
from pretrainctl.records.run import Event
from pretrainctl.runs.state import fold

__all__ = ["Expectation", "Record", "Row", "judge", "measure", "resumed", "told_as"]

_NOTICES = {
    *("node_dead", "batch_host_lost", "save_asked", "restart_ended", "attempt_ended", "stopped"),
    *("refused", "looked_back", "checkpoint_gate", "chain_refused", "hang", "nodes_tested"),
}
"""Events that say that a run has noticed something."""


@dataclass(frozen=True)
class Expectation:
    """How a run must end. `classes`: what the end of a start, or of an attempt, must have been told as, one of them;
    nothing where the run need not end a start. `stop`: the class of the stop, `""` for a person's wish by command.

    `twice`: steps that may be done twice, None where the last complete checkpoint decides. `starts`: how often the
    program may be started at most. `weights`: they must be those of the undisturbed run.
    """

    end: Literal["finished", "stopped"] = "finished"
    classes: frozenset[str] = frozenset()
    stop: frozenset[str] = frozenset()
    twice: int | None = None
    starts: int = 3
    weights: bool = True


@dataclass(frozen=True)
class Record:
    """What is known of a run after its fault. `damaged`: steps whose checkpoints the fault made unusable. `queued`:
    jobs that are left. `every`: steps from one regular save to the next. `weights` and `expected_weights` are None
    where they are not compared."""

    events: Sequence[Event]
    series: Series
    struck: float | None
    damaged: frozenset[int] = frozenset()
    queued: Sequence[int] = ()
    target: int = 0
    every: int = 0
    weights: str | None = None
    expected_weights: str | None = None


@dataclass(frozen=True)
class Row:
    """One line of the table; times in seconds from the fault, None where there is nothing to tell.

    `noticed`: to the first event that tells of it. `again`: to the first step that nobody had done, by a new start.
    `resumed` says where it went on: the first step, and the last complete checkpoint before. `failure_class`: as
    the run told it. `seconds`: how long the row took.
    """

    fault: str
    verdict: Literal["pass", "fail", "skipped"]
    noticed: float | None = None
    again: float | None = None
    twice: int | None = None
    resumed: str = ""
    failure_class: str = ""
    reason: str = ""
    path: str = ""
    seconds: float = 0.0


def measure(record: Record) -> tuple[float | None, float | None]:
    """Seconds from the fault until it was noticed, and until training went on."""
    if record.struck is None:
        return None, None
    struck = record.struck
    noticed = [
        event.time
        for event in record.events
        if event.kind in _NOTICES and event.time >= struck and event.data.get("class") != "finished"
    ]
    after = [start for start in record.series.starts if start.begun is not None and start.begun > struck]
    again = [start.first_new_time for start in after if start.first_new_time is not None]
    return (
        min(noticed) - struck if noticed else None,
        min(again) - struck if again else None,
    )


def judge(record: Record, expected: Expectation) -> list[str]:
    """Why a run did not end as it must; nothing where it did."""
    return [
        *_end(record, expected),
        *_told(record, expected),
        *(problem for start in _later(record.series) for problem in _resume(record, start)),
        *_steps(record, expected),
        *_weights(record, expected),
        *([f"jobs are left in the queue: {', '.join(map(str, record.queued))}"] if record.queued else []),
    ]


def told_as(events: Sequence[Event]) -> str:
    """The class that the run told the fault as: that of its stop, else that of the first end; empty for none."""
    stops = [str(event.data["class"]) for event in events if event.kind == "stopped" and "class" in event.data]
    return next(iter([*stops, *_told_classes(events)]), "")


def _told_classes(events: Sequence[Event]) -> list[str]:
    """The classes of all ends that the run told, in order."""
    kinds = {"restart_ended", "attempt_ended", "looked_back", "stopped"}
    return [str(event.data["class"]) for event in events if event.kind in kinds and "class" in event.data]


def resumed(series: Series, events: Sequence[Event]) -> str:
    """Where the last resume went on: `21 after 20`."""
    for start in reversed(_later(series)):
        step = _gate(events, start)
        if start.first_step is not None and step is not None:
            return f"{start.first_step} after {step}"
    return ""


def _end(record: Record, expected: Expectation) -> list[str]:
    state = fold(record.events)
    if expected.end == "finished":
        if state.finished is None:
            return [f"it did not finish: {state.stopped or 'it has no job, or was not waited for'}"]
        last = max((start.last_step or 0 for start in record.series.starts), default=0)
        return [f"it finished at step {last} of {record.target}"] if record.target and last != record.target else []
    if state.finished is not None:
        return [f"it had to stop, and finished: {state.finished}"]
    if state.stopped is None:
        return ["it had to stop, and did not"]
    stops = [str(event.data.get("class", "")) for event in record.events if event.kind == "stopped"]
    if expected.stop and not expected.stop & set(stops or [""]):
        return [f"it stopped as {stops or 'a wish'}, not as {' or '.join(sorted(expected.stop))}: {state.stopped}"]
    return []


def _told(record: Record, expected: Expectation) -> list[str]:
    found = _told_classes(record.events)
    if not expected.classes or expected.classes & set(found):
        return []
    return [
        f"it was told as {', '.join(dict.fromkeys(found)) or 'nothing'}, not {' or '.join(sorted(expected.classes))}"
    ]


def _later(series: Series) -> list[Start]:
    """The starts after the first one that did a step, if they did one."""
    return [start for start in series.starts if start.first_step is not None][1:]


def _gate(events: Sequence[Event], start: Start) -> int | None:
    gates = [
        event.data.get("resume_step")
        for event in events
        if event.kind == "checkpoint_gate"
        and (event.attempt, event.data.get("restart")) == (start.attempt, start.restart)
    ]
    return gates[-1] or 0 if gates else None


def _resume(record: Record, start: Start) -> list[str]:
    """A start must go on right after the newest checkpoint that was complete before it."""
    who = f"attempt {start.attempt}, restart {start.restart}"
    saved = {save.step for save in record.series.saved if start.begun is None or save.time < start.begun}
    last = max(saved - record.damaged, default=0)
    taken = _gate(record.events, start)
    # The ranks may die between the last shard of a save and the line that tells of it.
    if taken is not None and taken not in record.damaged and record.every and taken % record.every == 0:
        last = max(last, taken)
    if start.first_step != last + 1:
        return [f"{who} began with step {start.first_step}; the last complete checkpoint was that of step {last}"]
    return [] if taken == last else [f"{who} was given the checkpoint of step {taken}, not {last}"]


def _steps(record: Record, expected: Expectation) -> list[str]:
    problems = []
    if expected.twice is not None and record.series.steps_repeated > expected.twice:
        problems.append(f"{record.series.steps_repeated} steps were done twice; {expected.twice} may be")
    begun = len(record.series.starts)
    if begun > expected.starts:
        problems.append(f"the program was started {begun} times; {expected.starts} are enough")
    steps = list(record.series.step)
    if steps != list(range(1, len(steps) + 1)):
        problems.append("steps are missing in the metrics")
    return problems


def _weights(record: Record, expected: Expectation) -> list[str]:
    if expected.end != "finished" or not expected.weights or record.expected_weights is None:
        return []
    if record.weights is None:
        return ["the last weights have no digest"]
    return [] if record.weights == record.expected_weights else ["the last weights are not those of an undisturbed run"]
