"""A recipe: what to train."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, model_serializer, model_validator

from pretrainctl.schema.base import (
    ChainJobs,
    Count,
    Part,
    Positive,
    Seconds,
    SomePath,
    TaskVariable,
    TestTime,
    Text,
    VariableText,
    Word,
    at_most,
)
from pretrainctl.schema.model import Model
from pretrainctl.schema.site import SiteChain

__all__ = [
    "Chain",
    "CheckpointPolicy",
    "Data",
    "DeepSpeed",
    "GlobalBatch",
    "Optimizer",
    "Prepare",
    "Program",
    "Recipe",
    "Recovery",
    "Resources",
    "Schedule",
    "Source",
    "Tracking",
    "Training",
]

Fraction = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Whole = Annotated[int, Field(ge=0), AfterValidator(at_most(10**12))]
_SHORTEST_STEP = 1e-6


def _seed(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{value} is no seed of 64 bits")
    return value


Seed = Annotated[int, AfterValidator(_seed)]


def _no_shorter(value: float) -> float:
    if value < _SHORTEST_STEP:
        raise ValueError(f"{value:g} s is no time of a step, at least a microsecond is expected")
    return value


class Source(Part):
    """One Megatron `.bin/.idx` pair."""

    prefix: SomePath
    """Path without `.bin`; a relative one starts at the folder where the command is given."""
    weight: Annotated[float, Field(gt=0), AfterValidator(at_most(10**12))] = 1.0
    """Share of the samples, relative to the other sources."""


class Prepare(Part):
    """How the data of a demonstration are made when they are not there yet."""

    source: Literal["python-stdlib"]
    """The text: `python-stdlib` = the sources of Python's own standard library."""
    tokenizer: Literal["bytes"]
    """`bytes` = one token a byte, and one that ends a document."""


class Data(Part):
    """What is read, and in which order."""

    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    """Where tokens come from."""
    sequence_length: Positive
    """Tokens a sample."""
    seed: Seed = 1234
    """Fixes the order of samples, together with how many were consumed; nothing else does."""
    prepare: Prepare | None = None
    """How `pretrainctl demo` makes the data; other commands want them to be there."""


class GlobalBatch(Part):
    """Samples or tokens of one optimizer step over all ranks; typed as `16 samples` or `4M tokens`."""

    count: Count
    """How many."""
    unit: Literal["samples", "tokens"]
    """Of what."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return value
        words = value.split() if isinstance(value, str) else []
        if len(words) != 2 or words[1] not in ("samples", "tokens"):
            raise ValueError(f"{value!r} is not a batch (write `16 samples` or `4M tokens`)")
        return {"count": words[0], "unit": words[1]}

    @model_serializer
    def _write(self) -> str:
        return f"{self.count} {self.unit}"


class Optimizer(Part):
    """AdamW."""

    name: Literal["adamw"] = "adamw"
    """The algorithm."""
    lr: Annotated[float, Field(gt=0)]
    """Peak learning rate."""
    betas: Annotated[tuple[Decay, ...], Field(min_length=2, max_length=2)] = (0.9, 0.95)
    """Decay of the two moments."""
    eps: Annotated[float, Field(gt=0)] = 1e-8
    """Added to the root of the second moment."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """Decoupled weight decay."""
    clip: Annotated[float, Field(ge=0)] = 1.0
    """Norm to which gradients are clipped; 0 = not at all."""


class Schedule(Part):
    """Linear warm-up, then cosine decay to the last step."""

    warmup_steps: Whole
    """Steps from 0 to the peak learning rate."""
    min_lr_ratio: Fraction = 0.1
    """Learning rate of the last step, as a share of the peak."""


class Training(Part):
    """How far and how it is trained."""

    tokens: Count
    """Token target of the run; rounded up to whole steps."""
    global_batch: GlobalBatch
    """`16 samples` or `4M tokens`, over all ranks."""
    micro_batch: Positive
    """Samples that a rank takes at a time."""
    optimizer: Optimizer
    """AdamW and its numbers."""
    schedule: Schedule
    """Learning rate over the steps."""
    precision: Literal["fp32", "bf16"]
    """Number format of weights and activations in the forward and backward pass."""
    zero_stage: Literal[0, 1, 2, 3]
    """What ZeRO shards: 1 = optimizer states, 2 = gradients too, 3 = weights too."""
    recompute: bool = False
    """Whether blocks are computed again in the backward pass instead of keeping their activations."""
    init_seed: Seed = 1234
    """Seeds the initial weights."""
    log_every: Positive = 1
    """Steps between two lines of the training log; `metrics.jsonl` has every step."""


class CheckpointPolicy(Part):
    """When and where checkpoints are written."""

    every_steps: Positive
    """Optimizer steps between two checkpoints."""
    keep: Whole = 0
    """Newest complete ones that are kept; 0 = all."""
    directory: SomePath | None = None
    """Where they lie, one directory for each run; null = `checkpoints/` of the run folder."""
    adopt: bool = False
    """Whether a launch may take over a directory with checkpoints of a run that is over, and go on from the newest."""


class Resources(Part):
    """What one job asks for."""

    nodes: Positive
    """Nodes that train."""
    spares: Whole = 0
    """Nodes allocated besides, which take over from dead ones."""
    walltime: Seconds
    """Time limit of one job; the run goes on in the next."""
    gpus_per_node: Annotated[int, Field(ge=0)] | Literal["all"] = "all"
    """GPUs asked for on each node; 0 = train on CPUs."""
    tasks_per_node: Positive | None = None
    """Ranks on each node; null = as the profile says."""
    queue: Word | None = None
    """A queue row of the profile by name; null = the first production row that fits."""
    seconds_per_step: Annotated[float, Field(gt=0, le=86400), AfterValidator(_no_shorter)] | None = None
    """Seconds of an optimizer step, measured or assumed, for the number of jobs; null = from the profile's
    `node.gpu_flops`."""


class Chain(Part):
    """How the next job comes into the queue, where the recipe wants it other than the profile."""

    strategy: Literal["inside", "prequeued"] | None = None
    """`inside` = each job queues the next; `prequeued` = the launch queues them; null = the profile's."""
    jobs: ChainJobs | None = None
    """Jobs of the run at once, the running one included, each queued before an attempt trains; null = the profile's
    number."""

    def at(self, site: SiteChain) -> SiteChain:
        """The site's way with what the recipe wants other."""
        own = {"strategy": self.strategy, "jobs": self.jobs}
        return site.model_copy(update={key: value for key, value in own.items() if value is not None})


class Recovery(Part):
    """Limits of going on without a human."""

    restarts_per_attempt: Whole = 8
    """Restarts inside one allocation."""
    attempts_without_progress: Positive = 3
    """Attempts in a row without a newer complete checkpoint, after which the chain stops."""
    older_checkpoints: Annotated[int, Field(ge=0)] = 2
    """Starts in a row from a checkpoint older than the newest known one; one more stops the chain."""
    restarts_per_hour: Positive | None = None
    """Failures in one hour that are followed by a start; one more stops the chain; null = no limit."""
    node_hours: Annotated[float, Field(gt=0), AfterValidator(at_most(10**9))] | None = None
    """Node-hours of the whole run, spares included, after which nothing goes on; null = no limit."""
    policies: dict[Word, Word] = Field(default_factory=dict)
    """By failure class, what is done instead of the usual: `restart`, `restart_once`, `exclude_node`, `hand_over` or
    `stop`, such as `gpu_oom: stop`."""


class Tracking(Part):
    """Weights & Biases."""

    wandb: Literal["off", "offline", "online"] = "off"
    """`offline` = written to the run folder and uploaded later."""
    project: Word = "pretrainctl"
    """Project there."""
    entity: Word | None = None
    """Team or user there; null = the account's default."""
    group: Word | None = None
    """Group there."""


class ProgramCheckpoint(Part):
    """Where the checkpoints of a training program of your own lie."""

    directory: Word
    """The path; `{run_dir}` stands for the run folder, where a relative one starts."""
    layout: Literal["deepspeed"] = "deepspeed"
    """Which files a complete one has."""


class Program(Part):
    """A training program of your own, in place of the reference trainer."""

    argv: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Program and arguments; `{run_dir}`, `{checkpoint_dir}` and `{python}` are replaced, nothing else."""
    checkpoint: ProgramCheckpoint
    """Where its checkpoints lie."""
    resume_arguments: tuple[Text, ...] = ()
    """Added when it goes on from a checkpoint; `{tag}` is its tag (also in PRETRAINCTL_RESUME_TAG)."""
    announces_phases: bool = False
    """Whether it says `phase("checkpoint", ...)` and `phase("evaluation", ...)` before each of these: then a silence in
    its steps is a hang after the time-out of a step, else after the longest of the three until it has said them."""


def _is_json(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    found: list[tuple[str, JsonValue]] = list(value.items())
    while found:
        place, item = found.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"{place} is {item}, which is no number of JSON")
        if isinstance(item, dict):
            found += [(f"{place}.{key}", inner) for key, inner in item.items()]
        if isinstance(item, list):
            found += [(f"{place}.{index}", inner) for index, inner in enumerate(item)]
    return value


class DeepSpeed(Part):
    """Tuning of DeepSpeed; what decides the training stands in `training`."""

    version: Annotated[Word, Field(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$")] | None = None
    """The version that is installed there, against which keys are checked; null = the newest known."""
    config: Annotated[dict[Word, JsonValue], AfterValidator(_is_json)] = Field(default_factory=dict)
    """Keys of its configuration file beside those that pretrainctl writes."""


class Recipe(Part):
    """What to train. Under `clusters:` a recipe file may hold, by name of a profile, what differs there."""

    name: Word
    """What people call the run, unless the launch names it."""
    description: Text = ""
    """One sentence for the list of recipes."""
    framework: Literal["deepspeed"]
    """Which training framework."""
    model: Model
    """Shape of the model."""
    data: Data
    """Training data."""
    training: Training
    """Target, batch, optimizer."""
    checkpoint: CheckpointPolicy
    """When and where to save."""
    resources: Resources
    """Nodes and time."""
    environment: dict[TaskVariable, VariableText] = Field(default_factory=dict)
    """Variables for the training tasks, over those of the profile; none of Slurm, pretrainctl or the ranks. A number is
    taken as its text; `$NAME` and `~` are refused, since nothing replaces them."""
    workloads: tuple[Word, ...] = ()
    """Kinds of traffic for which profiles may have variables of their own, such as `pipeline-parallel`."""
    deepspeed: DeepSpeed = DeepSpeed()
    """Tuning of DeepSpeed."""
    chain: Chain = Chain()
    """How the next job comes into the queue."""
    recovery: Recovery = Recovery()
    """Limits of going on without a human."""
    node_test: TestTime | None = None
    """How long the test of all nodes at the start of each attempt may take, or `off`; null = as the profile says."""
    tracking: Tracking = Tracking()
    """Experiment tracking."""
    program: Program | None = None
    """A training program of your own; null = the reference trainer."""

    @model_validator(mode="after")
    def _fits(self) -> Recipe:
        if self.data.sequence_length > self.model.context:
            raise ValueError(
                f"data.sequence_length {self.data.sequence_length} is longer than model.context {self.model.context}"
            )
        return self
