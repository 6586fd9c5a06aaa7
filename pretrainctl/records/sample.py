"""Lines of `metrics.jsonl`, one writer each (rank 0 of one restart), and what they add up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["PhaseChange", "Recovered", "Sample", "Saved", "Summary"]


@dataclass(frozen=True)
class Sample:
    """One optimizer step: `step` counts from 1, `tokens` consumed by the run up to and with it, `seconds` of
    wall time since the step before, `time` epoch seconds at its end."""

    step: int
    tokens: int
    loss: float
    grad_norm: float
    lr: float
    seconds: float
    time: float
    kind: Literal["step"] = "step"


@dataclass(frozen=True)
class PhaseChange:
    """The program enters a phase: `start`, `load`, `step`, `checkpoint`, `evaluation`, `end`.

    `step` is the last step done."""

    phase: str
    step: int
    time: float
    kind: Literal["phase"] = "phase"


@dataclass(frozen=True)
class Saved:
    """A checkpoint that all ranks finished, written after their barrier."""

    tag: str
    step: int
    seconds: float
    time: float
    kind: Literal["saved"] = "saved"


@dataclass(frozen=True)
class Recovered:
    """A start that went on from an earlier one: `seconds` from the last step before it (`last_step`) to the
    first step that had never been done (`new_step`), or not since a person went back to before it, by the samples' own
    times."""

    attempt: int
    restart: int
    last_step: int
    new_step: int
    seconds: float


@dataclass(frozen=True)
class Summary:
    """What the samples of a run add up to; None where there is nothing to tell it from.

    `step` and `tokens` are where the newest start stands, `steps_done` counts every step done and
    `steps_repeated` those of them that had been done before. `step_seconds` and `tokens_per_second` are medians
    that leave out the first step of each start; `checkpoint_seconds` is the median save. `startup_seconds` holds,
    for each start that did a step, the seconds from its first phase to the end of its first step.
    `alerts` say where loss or learning rate did not go on over a resume.
    `broken_lines` could not be read; `torn_files` end in the middle of a line, as a killed writer leaves them.
    """

    step: int
    tokens: int
    starts: int
    steps_done: int
    steps_repeated: int
    step_seconds: float | None
    tokens_per_second: float | None
    loss: float | None
    loss_min: float | None
    loss_min_step: int | None
    saves: int
    checkpoint_seconds: float | None
    startup_seconds: tuple[float, ...]
    recovered: tuple[Recovered, ...]
    broken_lines: int
    torn_files: int
    alerts: tuple[str, ...] = ()
