"""A cluster profile: where to train."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from pretrainctl.schema.base import (
    Limit,
    Part,
    Positive,
    Seconds,
    SlurmWord,
    Text,
    TimeLimit,
    VariableName,
    Word,
)

__all__ = [
    "Account",
    "ClusterProfile",
    "Hosts",
    "Liveness",
    "Mail",
    "Node",
    "Provenance",
    "Pythons",
    "Queue",
    "Rendezvous",
    "Request",
    "Signals",
    "SiteChain",
    "TaskShape",
    "Variable",
]


_MISSED_BEATS = 3


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from error
    return value


Pattern = Annotated[Word, AfterValidator(_pattern)]
Argument = Annotated[Word, Field(pattern=r"^--?[A-Za-z]")]


class Provenance(Part):
    """Where a value comes from."""

    source: Word
    """Document, measurement or person."""
    as_of: Word
    """Date of the source, YYYY-MM or YYYY-MM-DD."""
    confidence: Literal["official", "measured", "script", "guess"]
    """How far it can be trusted."""


class Hosts(Part):
    """How to tell from a host name that one is on this cluster."""

    login: tuple[Pattern, ...] = ()
    """Regular expressions of full login host names."""
    compute: tuple[Pattern, ...] = ()
    """Regular expressions of full compute host names."""


class Queue(Part):
    """One row of partition and QoS with its limits."""

    name: Word
    """What recipes call it."""
    partition: SlurmWord | None = None
    """`--partition`; null = not given."""
    qos: SlurmWord | None = None
    """`--qos`; null = not given."""
    purpose: Literal["production", "debug", "long", "preemptible", "urgent"]
    """A recipe that names no queue gets the first `production` row that fits."""
    min_nodes: Positive = 1
    """Fewest nodes of a job."""
    max_nodes: Limit
    """Most nodes of a job."""
    max_walltime: TimeLimit
    """Longest time limit of a job."""
    provenance: Provenance | None = None
    """Where the limits come from, where not from the profile's own source."""


class Account(Part):
    """The account that is charged."""

    required: bool
    """Whether the site refuses jobs without one."""
    name: SlurmWord | None = None
    """`--account`; never in a shipped profile, but in your own that extends it."""


class Node(Part):
    """One compute node."""

    cpus: Positive
    """CPUs as Slurm counts them."""
    gpus: Annotated[int, Field(ge=0)]
    """GPUs."""
    gpu_type: Word | None = None
    """Model of the GPU."""
    arch: Literal["x86_64", "aarch64", "unknown"] = "unknown"
    """Processor architecture, which environments and images must be made for."""


class Request(Part):
    """How resources are asked for here."""

    gpus: Literal["gres", "gpus-per-node", "none"]
    """`--gres=gpu:N`, `--gpus-per-node=N`, or not at all."""
    exclusive: bool
    """Whether to give `--exclusive`."""
    memory: Annotated[SlurmWord, Field(pattern=r"^(omit|[0-9]+[KMGT]?)$")]
    """`omit` = no memory option; else the value of `--mem` (`0` = all of the node)."""
    options: tuple[Argument, ...] = ()
    """Further sbatch options, such as `--constraint=...`."""


class TaskShape(Part):
    """Tasks of the training srun."""

    tasks_per_node: Positive
    """Ranks on each node."""
    cpus_per_task: Positive
    """CPUs of each rank; given to sbatch and to srun, which does not inherit it on every version."""
    srun_options: tuple[Argument, ...] = ()
    """Further options of the training srun."""


class Rendezvous(Part):
    """How the ranks find the first of them."""

    address: Literal["hostname", "localhost"]
    """MASTER_ADDR: name of the first training node, or localhost where all nodes are one machine."""
    suffix: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]*$")] = ""
    """Put before the first dot of the name, to reach the fast network (`i`, `-ib0`)."""
    port_base: Annotated[int, Field(ge=1024, le=65535)] = 30000
    """Lowest MASTER_PORT; the job's own is derived from its id."""
    port_span: Positive = 20000
    """Ports from `port_base` on that may be used."""


class Variable(Part):
    """An environment variable of the training tasks."""

    value: Text
    """Its value."""
    reason: Word
    """Why it is set here."""


class Signals(Part):
    """The warning before the time limit."""

    lead: Seconds
    """Signal lead time: at least twice what a checkpoint takes."""


class SiteChain(Part):
    """How the next job of a run comes into the queue."""

    strategy: Literal["inside", "prequeued"]
    """`inside` = sbatch works on compute nodes; `prequeued` = only on login nodes."""
    jobs: Positive = 2
    """Jobs queued at launch with `prequeued`, the first included."""


class Liveness(Part):
    """When a node counts as dead."""

    interval: Annotated[float, Field(gt=0)] = 1.0
    """Seconds between two beats of a node."""
    silent_after: Annotated[float, Field(gt=0)] = 10.0
    """Seconds of silence after which it is dead."""
    closed_after: Annotated[float, Field(gt=0)] = 1.0
    """Seconds after its connection closed and did not come back."""

    @model_validator(mode="after")
    def _can_miss_beats(self) -> Liveness:
        if self.silent_after < _MISSED_BEATS * self.interval:
            raise ValueError(
                f"silent_after {self.silent_after:g} s is less than {_MISSED_BEATS} beats of {self.interval:g} s: "
                "healthy nodes would count as dead"
            )
        return self


class Pythons(Part):
    """Interpreters on this cluster."""

    control: Path | None = None
    """Runs pretrainctl in the job; null = the one that launches."""
    training: Path | None = None
    """Runs the training program; null = the one that launches."""


class Mail(Part):
    """Mail from Slurm."""

    type: SlurmWord
    """`--mail-type`."""
    user: Annotated[SlurmWord, Field(min_length=3)] | None = None
    """`--mail-user`; null = Slurm's own choice."""


class ClusterProfile(Part):
    """Where to train."""

    name: SlurmWord
    """What `--cluster` says."""
    description: Text = ""
    """One sentence for the list of clusters."""
    provenance: Provenance
    """Where the values come from, unless a part says otherwise."""
    slurm_conf: Path | Literal["sandbox"] | None = None
    """SLURM_CONF of Slurm's commands; `sandbox` = that of the sandbox that is up, null = what the host has."""
    hosts: Hosts = Hosts()
    """How the cluster is recognised."""
    queues: Annotated[tuple[Queue, ...], Field(min_length=1)]
    """Rows of partition and QoS, the preferred first."""
    account: Account
    """The account rule."""
    node: Node
    """The compute node."""
    request: Request
    """How resources are asked for."""
    tasks: TaskShape
    """Tasks of the training srun."""
    rendezvous: Rendezvous
    """How ranks find each other."""
    modules: tuple[Word, ...] = ()
    """Modules loaded before anything else, in this order, after `module purge`."""
    environment: dict[VariableName, Variable] = Field(default_factory=dict)
    """Variables of the training tasks, each with its reason."""
    python: Pythons = Pythons()
    """Interpreters."""
    signals: Signals
    """The warning before the time limit."""
    chain: SiteChain
    """How the next job comes into the queue."""
    liveness: Liveness = Liveness()
    """When a node counts as dead."""
    login_limit: TimeLimit = None
    """CPU time that a process may use on a login node."""
    mail: Mail | None = None
    """Mail from Slurm; set it in your own profile."""
