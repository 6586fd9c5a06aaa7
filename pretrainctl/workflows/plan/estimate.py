"""What a run will be like and cost: memory, checkpoint time, jobs, the site's units. What is assumed is said."""

from __future__ import annotations

from pretrainctl import sizing
from pretrainctl.errors import InputError
from pretrainctl.frameworks.deepspeed import model_shape
from pretrainctl.records.training import ModelShape
from pretrainctl.schema import ClusterProfile, Estimate, Geometry, Memory, Recipe
from pretrainctl.units import show_count, show_duration, show_estimate, show_size
from pretrainctl.workflows.plan.risk import warn_of_risk, work_at_risk
from pretrainctl.workflows.plan.speed import choose_speed

__all__ = ["ASSUMED_WRITE_RATE", "estimate"]

ASSUMED_WRITE_RATE = 10**9
"""Bytes a second that a node writes into checkpoints, where nothing is known: a parallel file system gives more."""
_VERY_MANY = 10**6
"""Ranks that stand for as many as anybody has."""


def estimate(
    recipe: Recipe, profile: ClusterProfile, geometry: Geometry, gpus: int, notes: list[str], warnings: list[str]
) -> Estimate:
    """Sizes and cost; InputError where the model cannot fit, or a checkpoint not be saved in time.

    What may not fit goes to `warnings`, what is assumed to `notes`.
    """
    shape = model_shape(recipe)
    experts, active = (recipe.model.experts.count, recipe.model.experts.active) if recipe.model.experts else (0, 0)
    parameters = sizing.count_parameters(shape, experts)
    flops = sizing.flops_per_token(shape, recipe.data.sequence_length, experts, active)
    size, alone = sizing.checkpoint_bytes(parameters, recipe.training.precision, recipe.training.zero_stage)
    node_hours = (geometry.nodes + geometry.spares) * recipe.resources.walltime / 3600
    accounting = profile.accounting
    units = None
    if accounting is not None and accounting.per_node_hour != "unknown":
        units = node_hours * accounting.per_node_hour
    speed = choose_speed(recipe, profile, geometry, gpus, parameters, notes)
    seconds = recipe.resources.seconds_per_step
    if speed is not None and speed.gpu_flops is not None:
        counted = flops * speed.longer
        seconds = sizing.seconds_per_step(geometry.tokens_per_step, counted, geometry.world_size, speed.gpu_flops)
    jobs = held = None
    if seconds is not None:
        jobs, held = sizing.jobs_needed(geometry.total_steps, seconds, recipe.resources.walltime, profile.signals.lead)
    save = _checkpoint_seconds(profile, geometry, size, alone, notes, warnings)
    risk = None if seconds is None else work_at_risk(recipe, profile, geometry, seconds)
    if risk is not None:
        warn_of_risk(risk, geometry, save, warnings)
    needed = None if held is None else (geometry.nodes + geometry.spares) * held / 3600
    _warn_of_budget(recipe, node_hours, needed, warnings)
    return Estimate(
        parameters=parameters,
        flops_per_token=flops,
        checkpoint_bytes=size,
        checkpoint_alone_bytes=alone,
        checkpoint_seconds=save,
        checkpoint_basis="assumed" if profile.signals.write_rate == "unknown" else "given",
        memory=_memory(recipe, profile, geometry, shape, parameters, notes, warnings) if gpus else None,
        seconds_per_step=seconds,
        speed=speed,
        node_hours_per_job=node_hours,
        site_units_per_job=units,
        jobs=jobs,
        node_hours=needed,
        at_risk=risk,
    )


def _warn_of_budget(recipe: Recipe, a_job: float, needed: float | None, warnings: list[str]) -> None:
    """Say where the node-hours that the recipe allows do not reach, to the target or even for the first job."""
    budget = recipe.recovery.node_hours
    if budget is None:
        return
    if needed is not None and needed > budget:
        warnings.append(
            f"recovery.node_hours {budget:g} does not reach the target, which takes {show_estimate(needed)}: "
            "the run will stop on the way"
        )
    if a_job > budget:
        warnings.append(
            f"one job may use {a_job:.2f} node-hours, more than recovery.node_hours {budget:g}, which is looked at "
            "only before and after each start: a shorter resources.walltime holds it"
        )


def _checkpoint_seconds(
    profile: ClusterProfile, geometry: Geometry, size: int, alone: int, notes: list[str], warnings: list[str]
) -> float:
    """Time to write `size` bytes, of which the first rank writes `alone` without the others."""
    lead, rate = profile.signals.lead, profile.signals.write_rate
    assumed = rate == "unknown"
    speed = ASSUMED_WRITE_RATE if rate == "unknown" else rate
    seconds = sizing.save_seconds(size, geometry.nodes, speed, alone=alone)
    how = f"{'an assumed ' if assumed else ''}{speed / 1e9:g} GB a second and node"
    how += _parts(size, alone, geometry.nodes, speed)
    if assumed:
        notes.append(
            f"a checkpoint of {show_size(size)} takes about {show_duration(seconds)} at {how}; measure, and set "
            "cluster.signals.write_rate"
        )
    if 2 * seconds > lead:
        says = (
            f"the signal lead time {show_duration(lead)} of {profile.name} is less than twice the "
            f"{show_duration(seconds)} of a checkpoint of {show_size(size)} at {how}"
        )
        if not assumed:
            raise InputError(
                f"{says} ({profile.source_of(profile.signals, 'lead')})", hint="set a longer cluster.signals.lead"
            )
        warnings.append(f"{says}: the last save of a job may be cut; set a longer cluster.signals.lead")
    return seconds


def _parts(size: int, alone: int, nodes: int, rate: float) -> str:
    """What makes a checkpoint take longer than its size by the rate of all nodes."""
    if not alone or nodes == 1:
        return ""
    first, rest = show_duration(alone / rate), show_duration((size - alone) / nodes / rate)
    return (
        f", {first} of it for the {show_size(alone)} that the first rank writes alone, and {rest} for the rest, which "
        f"{nodes} nodes write together"
    )


def _memory(
    recipe: Recipe,
    profile: ClusterProfile,
    geometry: Geometry,
    shape: ModelShape,
    parameters: int,
    notes: list[str],
    warnings: list[str],
) -> Memory:
    training = recipe.training
    experts = recipe.model.experts.count if recipe.model.experts else 0
    states, formula = sizing.model_states(
        parameters,
        geometry.data_parallel,
        training.zero_stage,
        training.precision,
        sizing.largest_layer(shape, experts),
    )
    activations, bound = sizing.activation_bytes(
        shape, recipe.data.sequence_length, geometry.micro_batch, recompute=training.recompute
    )
    _check_host_memory(recipe, profile, geometry, parameters, warnings)
    there = profile.node.gpu_memory
    if there == "unknown":
        notes.append(f"the memory of a GPU of {profile.name} is unknown and was not checked")
    else:
        where = f"a GPU of {profile.name} has {show_size(there)} ({profile.source_of(profile.node, 'gpu_memory')})"
        if states > there and recipe.program is None:
            raise InputError(
                f"model states of {show_count(parameters)} parameters on {geometry.data_parallel} ranks take "
                f"{show_size(states)} a GPU by {formula}; {where}",
                hint=_memory_hint(there, parameters, recipe, shape, experts),
            )
        if states + activations > there:
            warnings.append(
                f"model states {show_size(states)} and at most {show_size(activations)} of activations ({bound}) may "
                f"not fit: {where}; {_activations_hint(recipe)}"
            )
    return Memory(
        states=int(states),
        states_formula=formula,
        activations=int(activations),
        activations_formula=bound,
        gpu=None if there == "unknown" else there,
    )


def _activations_hint(recipe: Recipe) -> str:
    training = recipe.training
    smaller = (
        "set training.recompute=true" if not training.recompute else "",
        "a smaller training.micro_batch" if training.micro_batch > 1 else "",
        "a higher training.zero_stage" if training.zero_stage < 3 else "",
        "more nodes" if training.zero_stage > 0 else "",
    )
    return ", or ".join(filter(None, smaller))


def _memory_hint(there: int, parameters: int, recipe: Recipe, shape: ModelShape, experts: int) -> str:
    """What helps where the states do not fit: ranks share only what the stage shards."""
    training, layer = recipe.training, sizing.largest_layer(shape, experts)
    least, _ = sizing.model_states(parameters, _VERY_MANY, training.zero_stage, training.precision, layer)
    more = "more nodes" if least < there else ""
    higher = "a higher training.zero_stage" if training.zero_stage < 3 else ""
    return f"use {' or '.join(filter(None, (more, higher)))}" if more or higher else "use GPUs with more memory"


def _check_host_memory(
    recipe: Recipe, profile: ClusterProfile, geometry: Geometry, parameters: int, warnings: list[str]
) -> None:
    """Below stage 3 the reference trainer makes all weights in fp32 on each rank before ZeRO shards them."""
    there, needed = profile.node.memory, 4 * parameters * geometry.tasks_per_node
    if recipe.program is None and recipe.training.zero_stage < 3 and isinstance(there, int) and needed > there:
        warnings.append(
            f"the reference trainer makes {show_count(parameters)} weights in fp32 on each of "
            f"{geometry.tasks_per_node} ranks of a node before they are sharded: {show_size(needed)}, and a node of "
            f"{profile.name} has {show_size(there)} ({profile.source_of(profile.node, 'memory')})"
        )
