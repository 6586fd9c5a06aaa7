"""Slurm jobs as we hand them around."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Job", "JobClass", "JobStep", "StateMeaning"]


class JobClass(Enum):
    """What a Slurm job state means for a run; `slurm.states` holds the one table."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    FINISHED = "finished"
    FAILED = "failed"
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    NODE_FAILURE = "node_failure"
    BOOT_FAILURE = "boot_failure"
    HOST_OOM = "host_oom"
    USER_CANCEL = "user_cancel"
    ADMIN_CANCEL = "admin_cancel"
    CANCELLED = "cancelled"
    """Cancelled, by whom is not known yet."""
    DEADLINE = "deadline"
    REQUEUED = "requeued"
    """An earlier attempt of a job that was put back into the queue under its own id."""
    HELD = "held"
    LAUNCH_FAILURE = "launch_failure"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class StateMeaning:
    """A state as printed, read: `alive` = may still run or start, None where that cannot be told."""

    text: str
    job_class: JobClass
    alive: bool | None
    cancelled_by: int | None = None
    """uid of whoever cancelled it, where Slurm says so."""


@dataclass(frozen=True)
class JobStep:
    """A Slurm step of a job (`batch`, `extern`, `0` ...)."""

    step: str
    state: StateMeaning
    exit_code: int
    exit_signal: int
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One start of a Slurm job; times are seconds since the epoch or None, `elapsed` and `time_limit` seconds.
    `batch_host` is the node of its batch script, also after Slurm took that from the job; empty where it is not known.

    A job that was requeued under its own id is several of these, `restart` 0, 1, 2 ...
    """

    job_id: int
    name: str
    state: StateMeaning
    exit_code: int = 0
    exit_signal: int = 0
    reason: str = ""
    partition: str = ""
    nodes: tuple[str, ...] = ()
    batch_host: str = ""
    submit: float | None = None
    start: float | None = None
    end: float | None = None
    expected_start: float | None = None
    elapsed: float | None = None
    time_limit: float | None = None
    restart: int = 0
    uid: int | None = None
    work_dir: str = ""
    comment: str = ""
    steps: tuple[JobStep, ...] = field(default=())

    @property
    def is_waiting(self) -> bool:
        """In the queue, held or not."""
        return self.state.job_class in {JobClass.PENDING, JobClass.HELD}

    @property
    def is_running(self) -> bool:
        """On its nodes; a job that is ending is not."""
        return self.state.job_class is JobClass.RUNNING

    @property
    def is_suspended(self) -> bool:
        """On its nodes, and held still there: by an administrator, or for jobs that take turns."""
        return self.is_running and self.state.text.upper() == "SUSPENDED"
