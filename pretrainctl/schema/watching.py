"""How a run is watched on a cluster: when a node counts as dead, a program as hung, and whom Slurm mails."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from pretrainctl.schema.base import Part, Seconds, SlurmWord

__all__ = ["Hang", "Liveness", "Mail"]

_MISSED_BEATS = 3
_MAIL_TYPES = (
    *("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT"),
    *("TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS"),
)


class Liveness(Part):
    """When a node counts as dead."""

    interval: Annotated[float, Field(ge=0.1, le=3600)] = 1.0
    """Seconds between two beats of a node."""
    silent_after: Annotated[float, Field(gt=0, le=86400)] = 10.0
    """Seconds of silence after which it is dead."""
    closed_after: Annotated[float, Field(ge=0.1, le=3600)] = 1.0
    """Seconds after its connection closed and did not come back."""

    @model_validator(mode="after")
    def _can_miss_beats(self) -> Liveness:
        if self.silent_after < _MISSED_BEATS * self.interval:
            raise ValueError(
                f"silent_after {self.silent_after:g} s is less than {_MISSED_BEATS} beats of {self.interval:g} s: "
                "healthy nodes would count as dead"
            )
        return self


class Hang(Part):
    """When a program that reports its steps counts as hung: time-outs are learned, and never shorter than these."""

    factor: Annotated[float, Field(ge=2, le=1000)] = 8.0
    """A phase may take this many times what it took so far in the run."""
    start: Seconds = 1800
    """Least seconds without a word from the start of the program to its fifth step, compilation and loading among
    them."""
    start_per_node: Annotated[float, Field(ge=0, le=3600)] = 2.0
    """Seconds that `start` is longer for each node that trains."""
    step: Seconds = 120
    """Least seconds between two steps."""
    checkpoint: Seconds = 600
    """Least seconds of a save; before the first one was seen, at least twice `signals.lead`."""
    evaluation: Seconds = 1800
    """Least seconds of an evaluation, and of phases with a name of their own."""


def _mail_types(value: str) -> str:
    for name in value.split(","):
        if name.upper() not in _MAIL_TYPES:
            raise ValueError(f"{name!r} is no mail type of Slurm ({', '.join(_MAIL_TYPES)})")
    return value


class Mail(Part):
    """Mail from Slurm."""

    type: Annotated[SlurmWord, AfterValidator(_mail_types)]
    """`--mail-type`: what the man page of sbatch lists, separated by commas."""
    user: Annotated[SlurmWord, Field(min_length=3)] | None = None
    """`--mail-user`; null = Slurm's own choice."""
