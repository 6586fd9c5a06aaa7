"""What is submitted: the launch record that the attempt reads in the job, and the rendered bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = [
    "AddressRule",
    "Bundle",
    "ChainStrategy",
    "CheckpointLayout",
    "HangRule",
    "Launch",
    "LivenessRule",
    "NodeTestRule",
    "RecoveryRule",
    "SrunShape",
]

ChainStrategy = Literal["inside", "prequeued"]
"""`inside`: each attempt queues its own chained job. `prequeued`: the launch queued them from the login node."""


@dataclass(frozen=True)
class AddressRule:
    """How MASTER_ADDR is made from the first active node's name.

    First the `names` that the batch host resolves, `{host}` in them being the short name. Then `hostname` with an
    optional `suffix` (put before the first dot: jwb0097.juwels + i = jwb0097i.juwels), `ipv4`, the address of
    that name, or `localhost`. With `one_node_local`, a run on one node takes 127.0.0.1. The port is `port_base` +
    (job id x 16 + restart) % `port_span`.
    """

    kind: Literal["hostname", "ipv4", "localhost"]
    suffix: str = ""
    port_base: int = 30000
    port_span: int = 20000
    names: tuple[str, ...] = ()
    one_node_local: bool = False


@dataclass(frozen=True)
class SrunShape:
    """Counts and options of the training srun: `nodes` active nodes with `tasks_per_node` tasks each, each of which
    is a rank, or starts `ranks_per_task` of them."""

    nodes: int
    tasks_per_node: int
    cpus_per_task: int
    options: tuple[str, ...] = ()
    ranks_per_task: int = 1

    @property
    def tasks(self) -> int:
        """Tasks in all."""
        return self.nodes * self.tasks_per_node

    @property
    def ranks_per_node(self) -> int:
        """Ranks on each node."""
        return self.tasks_per_node * self.ranks_per_task

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True)
class CheckpointLayout:
    """Where checkpoints lie and what a complete one is made of.

    `world_size` data-parallel ranks and `model_parallel` slices (tensor x pipeline) wrote it. `trainer_state`: each tag
    holds the `state.json` of the reference trainer, which cannot go on without.
    """

    framework: str
    directory: Path
    zero_stage: Literal[0, 1, 2, 3]
    precision: str
    world_size: int
    model_parallel: int = 1
    trainer_state: bool = False


@dataclass(frozen=True)
class LivenessRule:
    """A node beats each `interval` s; one silent for `silent_after` s, or whose connection closed and did not
    come back within `closed_after` s, is dead."""

    interval: float = 1.0
    silent_after: float = 10.0
    closed_after: float = 1.0


@dataclass(frozen=True)
class NodeTestRule:
    """All nodes are tested at the start of an attempt, for at most `seconds`; 0 = not at all.

    `python` runs the test, inside the container where there is one; each node must show `gpus` GPUs.
    """

    seconds: float = 0.0
    gpus: int = 0
    python: str = "python3"


@dataclass(frozen=True)
class HangRule:
    """A program that reports is hung where nothing comes for longer than `factor` times what the phase has shown, and
    longer than that phase's own least seconds; `start` is `start_per_node` longer for each node that trains. One that
    does not `announces` each phase may save or evaluate where it says `step`, until it has said otherwise."""

    factor: float = 8.0
    start: float = 1800.0
    start_per_node: float = 2.0
    step: float = 120.0
    checkpoint: float = 600.0
    evaluation: float = 1800.0
    announces: bool = True

    def start_on(self, nodes: int) -> float:
        """Least seconds without a word of a start on so many nodes."""
        return self.start + self.start_per_node * nodes


@dataclass(frozen=True)
class RecoveryRule:
    """Limits of going on by itself.

    `restarts_per_attempt` restarts inside one allocation; `attempts_without_progress` attempts in a row whose
    newest complete checkpoint did not advance stop the chain, and so do more than `older_checkpoints` starts in a row
    from a checkpoint older than the newest known, more than `restarts_per_hour` failures in an hour, and `node_hours`
    used by all attempts (None = no limit). `policies`: by failure class, a course other than the usual one.
    """

    restarts_per_attempt: int = 8
    attempts_without_progress: int = 3
    older_checkpoints: int = 2
    restarts_per_hour: int | None = None
    node_hours: float | None = None
    policies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    """`bundle/launch.json`: all that the attempt needs on the batch host, with no recipe or profile at hand.

    `program` is the argv that each rank runs (paths absolute), `environment` what is exported to it. In front of it
    stand `container`, the argv that enters an image, and `torchrun`, the argv of a launcher of ranks up to what
    only a task knows; both may be empty.
    `python` runs pretrainctl itself on the batch host and the nodes. `job_name` is unique to the run;
    `chained_jobs` wait in the queue while one runs. With `prequeued` the launch queues them; `tops_up`: attempts try to
    queue the missing ones there too, since nobody has said that sbatch does not work inside jobs.
    """

    run_name: str
    run_id: str
    job_name: str
    framework: str
    python: str
    program: tuple[str, ...]
    environment: Mapping[str, str]
    srun: SrunShape
    spares: int
    address: AddressRule
    checkpoint: CheckpointLayout
    chain: ChainStrategy
    chained_jobs: int
    signal_lead: int
    target_steps: int
    tokens_per_step: int
    liveness: LivenessRule = field(default_factory=LivenessRule)
    hang: HangRule = field(default_factory=HangRule)
    recovery: RecoveryRule = field(default_factory=RecoveryRule)
    node_test: NodeTestRule = field(default_factory=NodeTestRule)
    resume_arguments: tuple[str, ...] = ()
    """Added to `program` by task.sh when there is a tag to resume from; `{tag}` in them is that tag."""
    container: tuple[str, ...] = ()
    torchrun: tuple[str, ...] = ()
    tops_up: bool = False


@dataclass(frozen=True)
class Bundle:
    """Rendered text by file name: exactly what goes into `bundle/` of the run folder."""

    files: Mapping[str, str]
