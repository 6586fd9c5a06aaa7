"""Ranks and batch: global batch = micro batch x accumulation x data-parallel ranks."""

from __future__ import annotations

from pretrainctl import sizing
from pretrainctl.errors import InputError
from pretrainctl.schema import ClusterProfile, Geometry, Recipe
from pretrainctl.units import show_count

__all__ = ["geometry"]


def geometry(recipe: Recipe, profile: ClusterProfile, notes: list[str]) -> Geometry:
    """Ranks, batch and steps; InputError where they do not divide. Roundings go to `notes`."""
    training, resources = recipe.training, recipe.resources
    tasks = resources.tasks_per_node or profile.tasks.tasks_per_node
    world = resources.nodes * tasks
    length = recipe.data.sequence_length
    samples = sizing.batch_samples(training.global_batch.count, training.global_batch.unit, length)
    replicas, accumulation = sizing.choose_geometry(samples, training.micro_batch, world, tasks_per_node=tasks)
    tokens_per_step = samples * length
    steps = sizing.steps_for_tokens(training.tokens, tokens_per_step)
    if steps * tokens_per_step != training.tokens:
        notes.append(
            f"{show_count(training.tokens)} tokens are rounded up to {steps} whole steps "
            f"of {tokens_per_step} tokens: {steps * tokens_per_step} tokens"
        )
    if training.schedule.warmup_steps > steps:
        raise InputError(
            f"training.schedule.warmup_steps {training.schedule.warmup_steps} exceeds the {steps} steps",
            hint="warm up for fewer steps, or train on more tokens",
        )
    return Geometry(
        nodes=resources.nodes,
        spares=resources.spares,
        tasks_per_node=tasks,
        world_size=world,
        model_parallel=1,
        data_parallel=replicas,
        micro_batch=training.micro_batch,
        accumulation=accumulation,
        global_batch=samples,
        tokens_per_step=tokens_per_step,
        total_steps=steps,
    )
