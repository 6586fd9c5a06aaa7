"""A plan: recipe and profile with every number worked out, before anything is rendered or submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pretrainctl.schema.base import Part
from pretrainctl.schema.cluster import ClusterProfile, Variable
from pretrainctl.schema.recipe import Recipe
from pretrainctl.schema.site import Queue, SiteChain
from pretrainctl.units import show_count, show_estimate

__all__ = ["Estimate", "Geometry", "Memory", "Plan", "Risk", "Speed"]


class Geometry(Part):
    """Ranks and batch. global_batch = micro_batch x accumulation x data_parallel, always."""

    nodes: int
    """Nodes that train."""
    spares: int
    """Nodes allocated besides."""
    tasks_per_node: int
    """Ranks on each node."""
    world_size: int
    """Ranks in all."""
    model_parallel: int
    """Ranks that hold one replica of the model together (tensor x pipeline)."""
    data_parallel: int
    """Replicas."""
    micro_batch: int
    """Samples that a rank takes at a time."""
    accumulation: int
    """Micro batches of one optimizer step."""
    global_batch: int
    """Samples of one optimizer step over all ranks."""
    tokens_per_step: int
    """Tokens of one optimizer step over all ranks."""
    total_steps: int
    """Optimizer steps to the token target, rounded up."""

    @property
    def tokens(self) -> int:
        """Tokens consumed when the last step is done."""
        return self.total_steps * self.tokens_per_step


class Memory(Part):
    """Memory of one GPU, in bytes; buffers, fragmentation and the framework itself come on top."""

    states: int
    """Weights, gradients and optimizer states."""
    states_formula: str
    """The formula behind it."""
    activations: int
    """A rough upper bound."""
    activations_formula: str
    """The formula behind it."""
    gpu: int | None
    """What a GPU has; null = unknown."""


class Speed(Part):
    """What the time of a step, and so jobs and node-hours to the target, rest on."""

    basis: Literal["given", "measured", "assumed"]
    """`given` = the recipe says the time of a step, or the profile a number without more; `measured` = on another
    training; `assumed` = nothing is known."""
    gpu_flops: int | None
    """Model FLOPs a second of one GPU; null where the recipe says the time of a step."""
    recompute: Literal["counted", "contained", "removed", "none"]
    """What full recomputation does to it: `counted` = this training has it and the figure does not, so a third more
    operations are counted; `contained` = in both; `removed` = in the figure alone, so a quarter fewer; `none` = in
    neither, or contained in a time of a step."""
    model: str | None
    """What was measured; null = nothing."""
    source: str
    """Where it comes from."""
    as_of: str | None
    """Date of the source; null = none."""

    @property
    def longer(self) -> float:
        """How many times the model FLOPs a step takes at this speed.

        Full recomputation is one more forward pass: 8 N + 16 L H Q T in place of the PaLM paper's 6 N + 12 L H Q T.
        """
        return {"counted": 4 / 3, "removed": 3 / 4}.get(self.recompute, 1.0)

    def __str__(self) -> str:
        rate = f"{show_count(self.gpu_flops)} model FLOPs a second and GPU, " if self.gpu_flops else ""
        of = f" on {self.model}" if self.model else ""
        date = f", {self.as_of}" if self.as_of else ""
        recomputation = {
            "counted": "; a third more operations are counted for training.recompute, which is not in that figure",
            "contained": "; recomputation is in that figure already",
            "removed": "; a quarter fewer operations are counted, since recomputation is in that figure",
        }.get(self.recompute, "")
        return f"{rate}{self.basis}{of} ({self.source}{date}){recomputation}"


class Risk(Part):
    """The most work that one fault can cost: all since the newest checkpoint, just before the next one."""

    steps: int
    """Optimizer steps: `checkpoint.every_steps`, or as many as a job takes or the run has where those are fewer."""
    seconds: float
    """The time of these steps."""
    node_hours: float
    """Their node-hours, spares included."""


class Estimate(Part):
    """What it will be like, and what it will cost."""

    parameters: int
    """Weights of the model."""
    flops_per_token: float
    """Floating-point operations of a forward and backward pass, by the PaLM paper's formula (appendix B)."""
    checkpoint_bytes: int
    """Size of one checkpoint."""
    checkpoint_alone_bytes: int
    """Bytes of it that the first rank writes while the others wait; all others are written by all nodes together."""
    checkpoint_seconds: float
    """Time to write one."""
    checkpoint_basis: Literal["given", "assumed"]
    """What that rests on: the profile's signals.write_rate, or an assumption."""
    memory: Memory | None
    """Memory of one GPU; null on CPUs."""
    seconds_per_step: float | None
    """Time of an optimizer step; null = unknown."""
    speed: Speed | None
    """What that rests on; null = it is unknown."""
    node_hours_per_job: float
    """Nodes, spares included, times the time limit."""
    site_units_per_job: float | None
    """The same in the unit of the site's accounting; null = unknown."""
    jobs: int | None
    """Jobs to the token target; null = unknown."""
    node_hours: float | None
    """Node-hours to the token target, spares included; null = unknown."""
    at_risk: Risk | None
    """The most work that one fault can cost; null = unknown."""


class Plan(Part):
    """Recipe and profile with everything worked out."""

    name: str
    """Name of the run."""
    recipe: Recipe
    """What is trained, overrides applied, data paths absolute."""
    profile: ClusterProfile
    """Where."""
    queue: Queue
    """The chosen row."""
    geometry: Geometry
    """Ranks and batch."""
    cpus_per_task: int
    """CPUs of each rank."""
    gpus_per_node: int
    """GPUs asked for on each node."""
    environment: dict[str, Variable]
    """Variables of the training tasks that the site needs, each with its reason."""
    directives: dict[str, str]
    """sbatch options that do not depend on the run folder, in order; an empty value is a flag."""
    estimate: Estimate
    """Sizes and cost."""
    notes: tuple[str, ...]
    """What a reader should know: roundings, limits that are unknown."""
    warnings: tuple[str, ...] = ()
    """What may make the run fail: it can be launched, and should be looked at before."""
    blocked: str | None = None
    """Why `render` and `launch` refuse it; null = they do not."""

    @property
    def chain(self) -> SiteChain:
        """How the next job comes into the queue, and how many are there at once: of those that attempts queue
        themselves no more than the queue takes."""
        chain = self.recipe.chain.at(self.profile.chain)
        most = self.queue.max_jobs
        if chain.strategy == "inside" and isinstance(most, int) and most < chain.jobs:
            return chain.model_copy(update={"jobs": most})
        return chain

    @property
    def node_hours(self) -> float:
        """Node-hours to the target, as estimated; of one job where the number of jobs is unknown."""
        return self.estimate.node_hours_per_job if self.estimate.node_hours is None else self.estimate.node_hours

    def cost(self) -> str:
        """What the run is estimated to cost, in one line."""
        jobs, each = self.estimate.jobs, self.estimate.node_hours_per_job
        if jobs is None:
            return f"how many jobs it takes is unknown, each of at most {each:.2f} node-hours"
        if jobs == 1:
            return f"{show_estimate(self.node_hours)} node-hours in about one job, of at most {each:.2f}"
        return f"{show_estimate(self.node_hours)} node-hours in about {jobs} jobs of at most {each:.2f} each"

    def summary(self) -> str:
        """What is about to be submitted, in one line."""
        geometry = self.geometry
        spares = f" and {geometry.spares} spare" if geometry.spares else ""
        return (
            f"{geometry.nodes} nodes{spares} of {self.profile.name}, {geometry.world_size} ranks, "
            f"{geometry.total_steps} steps of {geometry.tokens_per_step} tokens, "
            f"at most {self.estimate.node_hours_per_job:.2f} node-hours a job"
        )

    def checkpoint_directory(self, run_dir: Path) -> Path:
        """Where the checkpoints of this run lie when its folder is `run_dir`."""
        if self.recipe.program is not None:
            # A relative one starts where the program runs, which is the run folder.
            return run_dir / self.recipe.program.checkpoint.directory.replace("{run_dir}", str(run_dir))
        return self.recipe.checkpoint.directory or run_dir / "checkpoints"
