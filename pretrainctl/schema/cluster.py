"""A cluster profile: where to train."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from pretrainctl.schema.base import (
    AbsolutePath,
    Amount,
    Count,
    Date,
    Known,
    Memory,
    Part,
    Positive,
    Rate,
    Seconds,
    SlurmWord,
    TaskVariable,
    TestTime,
    Text,
    TimeLimit,
    VariableText,
    Word,
)
from pretrainctl.schema.options import check_sbatch_options, check_srun_options
from pretrainctl.schema.site import (
    Account,
    Accounting,
    Attributed,
    Hosts,
    Internet,
    Provenance,
    Queue,
    SiteChain,
    Sourced,
    Tier,
)
from pretrainctl.schema.watching import Hang, Liveness, Mail

__all__ = [
    "ClusterProfile",
    "Container",
    "Node",
    "Pythons",
    "Rendezvous",
    "Request",
    "Signals",
    "TaskShape",
    "Throughput",
    "Variable",
]

_LONGEST_LEAD = 65535
_PORTS = 65536
_PYTHON_MODULE = re.compile(r"(?:^|[/-])python3?[/-]v?(3\.[0-9]+)", re.IGNORECASE)
Argument = Annotated[Word, Field(pattern=r"^--?[A-Za-z]")]


def _sbatch_options(values: tuple[str, ...]) -> tuple[str, ...]:
    check_sbatch_options(values)
    return values


def _srun_options(values: tuple[str, ...]) -> tuple[str, ...]:
    check_srun_options(values)
    return values


def _lead(value: int) -> int:
    if value > _LONGEST_LEAD:
        raise ValueError(f"{value}s is longer than sbatch --signal takes, at most {_LONGEST_LEAD} s (sbatch(1))")
    return value


def _image_file(value: Any) -> Any:
    if isinstance(value, str) and re.match(r"[a-z][a-z0-9+.-]*://", value):
        raise ValueError(f"{value!r} is no file: build an image file of it, and name that")
    return value


class Throughput(Part):
    """What one GPU reached in training, and in which."""

    gpu_flops: Annotated[Count, Field(ge=10**9)]
    """Model FLOPs a second of one GPU, from 10**9: of a forward and a backward pass, recomputation not counted."""
    recompute: Known = "unknown"
    """Whether all blocks were computed again in the backward pass then, which made it slower; unknown = no."""
    parameters: Annotated[Count, Field(ge=1)] | None = None
    """Weights of that dense model: taken for dense models of half to twice the size; null = for every model."""
    gpus: Positive | None = None
    """GPUs that trained it: of several figures the one of the nearest number is taken; null = unknown."""
    model: Word
    """What was trained, on how many nodes: another model or number of nodes is faster or slower."""
    source: Word
    """Where the value was found."""
    as_of: Date
    """When: YYYY-MM or YYYY-MM-DD."""


def _shape(value: Any) -> str:
    """Which of three forms was written, so that only its own mistakes are told."""
    if isinstance(value, (list, tuple)):
        return "sections"
    return "section" if isinstance(value, (dict, Throughput)) else "number"


class Node(Sourced):
    """One compute node."""

    cpus: Positive
    """CPUs that a job can ask for, as Slurm counts them."""
    threads: Positive | None = None
    """Hardware threads, where sources disagree whether Slurm counts those or `cpus`; null = no doubt."""
    memory: Memory = "unknown"
    """Host memory."""
    slurm_memory: Memory = "unknown"
    """Memory that a job can ask for, as Slurm counts it (`sinfo -o %m`, in MiB); unknown = `memory` is taken."""
    gpus: Annotated[int, Field(ge=0)]
    """GPUs."""
    gpu_type: Word | None = None
    """Model of the GPU."""
    gpu_memory: Memory = "unknown"
    """Memory of one GPU."""
    gpu_flops: Annotated[
        Annotated[Amount, Tag("number")]
        | Annotated[Throughput, Tag("section")]
        | Annotated[tuple[Throughput, ...], Tag("sections")],
        Discriminator(_shape),
    ] = "unknown"
    """Model FLOPs a second that one GPU reaches in training here without recomputation: a number, or a section that
    says in which training, or several; unknown, or none that fits = a share of what `gpu_type` can is assumed."""
    arch: Literal["x86_64", "aarch64", "unknown"] = "unknown"
    """Processor architecture, which environments and images must be made for."""

    @model_validator(mode="after")
    def _threads_of_cpus(self) -> Node:
        if self.threads is not None and self.threads < self.cpus:
            raise ValueError(f"threads {self.threads} are fewer than the {self.cpus} cpus that they belong to")
        return self


class Request(Sourced):
    """How resources are asked for here."""

    gpus: Literal["gres", "gpus-per-node", "none"]
    """`--gres=gpu:N`, `--gpus-per-node=N`, or not at all."""
    exclusive: bool
    """Whether to give `--exclusive`."""
    memory: Annotated[SlurmWord, Field(pattern=r"^(omit|[0-9]+[KMGT]?)$")]
    """`omit` = no memory option; else the value of `--mem` (`0` = all of the node)."""
    cpus_per_gpu: Positive | None = None
    """CPUs that must be asked for with each GPU, no more and no fewer; null = no such rule."""
    options: Annotated[tuple[Argument, ...], AfterValidator(_sbatch_options)] = ()
    """Further sbatch options by their long names, such as `--constraint=...`; none that the plan decides."""


class TaskShape(Sourced):
    """Ranks, and the tasks of the training srun that start them."""

    launcher: Literal["direct", "torchrun"] = "direct"
    """`direct` = a task is a rank; `torchrun` = a task a node starts the ranks there, and gives them 30 s to save
    at a preemption."""
    tasks_per_node: Positive
    """Ranks on each node."""
    cpus_per_task: Positive
    """CPUs of each rank; given to sbatch and to srun, which does not inherit it on every version."""
    srun_options: Annotated[tuple[Argument, ...], AfterValidator(_srun_options)] = ()
    """Further options of the training srun."""
    mpiexec: Known = "unknown"
    """Whether `mpirun` and `mpiexec` start tasks here; where not, only srun does."""
    kill_on_bad_exit: Known = "unknown"
    """Whether srun ends all tasks when one fails, without being asked: KillOnBadExit of this Slurm."""


class Rendezvous(Sourced):
    """How the ranks find the first of them."""

    names: tuple[Annotated[Word, Field(pattern=r"^[A-Za-z0-9.{}-]+$")], ...] = ()
    """Names tried first, in this order: `{host}` is the short name of the first training node; one that the batch
    host cannot resolve is passed over."""
    address: Literal["hostname", "ipv4", "localhost"]
    """MASTER_ADDR: name of the first training node; its IPv4 address, where the batch host resolves it, else its
    name; or localhost where all nodes are one machine."""
    one_node: Literal["address", "localhost"] = "address"
    """MASTER_ADDR of a run on one node: as for several, or 127.0.0.1."""
    suffix: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]*$")] = ""
    """Put before the first dot of the name, to reach the fast network (`i`, `-ib0`)."""
    port_base: Annotated[int, Field(ge=1024, le=65535)] = 30000
    """Lowest MASTER_PORT; the job's own is derived from its id."""
    port_span: Positive = 20000
    """Ports from `port_base` on that may be used."""

    @model_validator(mode="after")
    def _are_ports(self) -> Rendezvous:
        if self.port_base + self.port_span > _PORTS:
            raise ValueError(
                f"port_base {self.port_base} and port_span {self.port_span} go beyond {_PORTS - 1}, the last port"
            )
        return self


class Variable(Part):
    """An environment variable of the training tasks."""

    value: VariableText
    """Its value, without `$NAME` and `~`, which nothing replaces."""
    reason: Word
    """Why it is set here."""
    source: Word | None = None
    """Where the value was found."""


class Signals(Sourced):
    """The warning before the time limit."""

    lead: Annotated[Seconds, AfterValidator(_lead)]
    """Signal lead time: at least twice what a checkpoint takes."""
    write_rate: Rate = "unknown"
    """Bytes a second that one node writes into checkpoints, measured; unknown = an assumption is used and said."""


class Pythons(Part):
    """Interpreters on this cluster, such as those of virtual environments."""

    control: AbsolutePath | None = None
    """Runs pretrainctl in the job; null = the one that launches."""
    training: AbsolutePath | None = None
    """Runs the training program; null = the one that launches, or `python3` of the container's image."""


class Container(Sourced):
    """The image in which the training program runs; the attempt itself runs outside."""

    binary: Word
    """Program that runs it, such as `singularity`."""
    image: Annotated[AbsolutePath, BeforeValidator(_image_file)] | None = None
    """The image or unpacked image, in your own profile; null = no container."""
    options: tuple[Argument, ...] = ()
    """Options of its `exec`, such as `--nv`."""
    binds: tuple[Annotated[Word, Field(pattern=r"^/")], ...] = ()
    """Paths of the host that are seen inside besides the run folder, the checkpoints and the data."""
    modules: tuple[Word, ...] = ()
    """Modules that bring the program, loaded after the profile's own."""


class ClusterProfile(Attributed):
    """Where to train."""

    name: SlurmWord
    """What `--cluster` says."""
    description: Text = ""
    """One sentence for the list of clusters."""
    provenance: Provenance
    """Where the values come from, unless a part says otherwise."""
    slurm_conf: AbsolutePath | Literal["sandbox"] | None = None
    """SLURM_CONF of Slurm's commands; `sandbox` = that of the sandbox that is up, null = what the host has."""
    caveats: tuple[Word, ...] = ()
    """What a reader of a plan should know of this cluster: conflicts between sources, changes to come."""
    hosts: Hosts = Hosts()
    """How the cluster is recognised."""
    queues: Annotated[tuple[Queue, ...], Field(min_length=1)]
    """Rows of partition and QoS, the preferred first."""
    default_partition: SlurmWord = "unknown"
    """Partition of a job that names none; unknown = not known, or the QoS implies one."""
    families: tuple[Word, ...] = ()
    """Queue families that your allocation may use, in your own profile."""
    account: Account
    """The account rule."""
    accounting: Accounting | None = None
    """How the site counts what a job costs; null = in node-hours."""
    node: Node
    """The compute node."""
    request: Request
    """How resources are asked for."""
    tasks: TaskShape
    """Tasks of the training srun."""
    rendezvous: Rendezvous
    """How ranks find each other."""
    internet: Internet = Internet()
    """Which nodes reach hosts outside."""
    modules: tuple[Word, ...] = ()
    """Modules loaded before anything else, in this order, after `module purge`."""
    container: Container | None = None
    """The image of the training program; null = none."""
    storage: tuple[Tier, ...] = ()
    """Spaces of the file systems."""
    caches: Literal["node-local", "run-folder"] | None = None
    """Where compilers of kernels keep what they make: $TMPDIR of each node, or the run folder; null = their own
    choice, mostly the home folder."""
    environment: dict[TaskVariable, Variable] = Field(default_factory=dict)
    """Variables of the training tasks, each with its reason."""
    workloads: dict[Word, dict[TaskVariable, Variable]] = Field(default_factory=dict)
    """Further variables by kind of traffic, for recipes that name it."""
    python: Pythons = Pythons()
    """Interpreters."""
    signals: Signals
    """The warning before the time limit."""
    chain: SiteChain
    """How the next job comes into the queue."""
    liveness: Liveness = Liveness()
    """When a node counts as dead."""
    node_test: TestTime = 20
    """How long the test of all nodes at the start of each attempt may take; `off` = none is made."""
    node_list: AbsolutePath | None = None
    """Folder of the node exclusion list; null = `.nodes` in the folder of the runs."""
    hang: Hang = Hang()
    """When a program that reports its steps counts as hung."""
    login_limit: TimeLimit = None
    """CPU time that a process may use on a login node."""
    mail: Mail | None = None
    """Mail from Slurm; set it in your own profile."""

    def source_of(self, section: Sourced | None, *keys: str) -> str:
        """Where the values of these keys of a section come from, of all where none is named; of this level's for None.

        That is the section's own provenance, else the profile's, but for what other files, or settings, say.
        """
        if section is None:
            return self.origin_of(self.provenance, *keys) if keys else str(self.provenance)
        return section.origin_of(section.provenance or self.provenance, *keys)

    @property
    def python_module(self) -> tuple[str, str] | None:
        """The module that brings Python and its version (`3.13`); None where no name of `modules` says so."""
        found = [(module, match[1]) for module in self.modules if (match := _PYTHON_MODULE.search(module)) is not None]
        return found[-1] if found else None

    @model_validator(mode="after")
    def _fits(self) -> ClusterProfile:
        rows = [row.name for row in self.queues]
        twice = [name for name in rows if rows.count(name) > 1]
        if twice:
            raise ValueError(f"two queues are called {twice[0]!r}")
        known = sorted({row.family for row in self.queues if row.family is not None})
        for family in self.families:
            if family not in known:
                raise ValueError(f"no queue is of the family {family!r}; families: {', '.join(known) or 'none'}")
        return self
