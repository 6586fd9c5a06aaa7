"""What the recovery bench measures, in the same way for every tool: the lines of the training program itself.

`next_start` is the first line of a process that was started after the fault (Python and the telemetry are loaded by
then, 0.2 s after its fork), `new_step` the first step that nobody had done before.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.sandbox.training_runs import TrainingRun, wait_until

__all__ = ["Figure", "Start", "await_recovery", "newest_start"]


@dataclass(frozen=True)
class Figure:
    """Seconds from the fault; `start_up` from the first line of the first start to its first step."""

    case: str
    next_start: float
    new_step: float
    start_up: float


@dataclass(frozen=True)
class Start:
    """One start of the training program, and when rank 0 said its first word."""

    attempt: int
    restart: int
    time: float


def starts(run: TrainingRun) -> list[Start]:
    """All starts of the training program so far, in order."""
    said = [line for line in run.samples("phase") if line["phase"] == "start"]
    return sorted((Start(line["attempt"], line["restart"], line["time"]) for line in said), key=lambda one: one.time)


def newest_start(run: TrainingRun) -> Start:
    """The start that trains now."""
    return starts(run)[-1]


def await_recovery(case: str, run: TrainingRun, fault: float, old: Start, timeout: float = 240.0) -> Figure:
    """Wait until a start after `old` has done a new step, and give the seconds since `fault` (epoch seconds).

    torchrun's ranks may start more than once before a step: the first start counts, as it does for the others.
    """

    def new_step() -> float:
        samples = run.samples()
        before = max(one["step"] for one in samples if (one["attempt"], one["restart"]) == (old.attempt, old.restart))
        later = [one for one in samples if (one["attempt"], one["restart"]) != (old.attempt, old.restart)]
        return next((one["time"] for one in later if one["step"] > before and one["time"] > fault), 0.0)

    done = wait_until(new_step, timeout, f"a new step of {run.name}", pause=0.3)
    first = starts(run)[0]
    following = next(start for start in starts(run) if start.time > max(old.time, fault))
    return Figure(case, following.time - fault, done - fault, run.samples()[0]["time"] - first.time)


def now() -> float:
    """The moment of a fault, on the clock that the training program writes."""
    return time.time()
