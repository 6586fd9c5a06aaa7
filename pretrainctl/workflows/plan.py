"""Plan: recipe + profile -> every number worked out, what the site would refuse refused. Asks no machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pretrainctl import catalog, sizing
from pretrainctl.errors import InputError
from pretrainctl.records.training import ModelShape
from pretrainctl.schema import ClusterProfile, Estimate, Geometry, Plan, Queue, Recipe
from pretrainctl.units import show_count, show_duration, slurm_time

__all__ = ["list_catalog", "make_plan"]


def make_plan(
    recipe: str,
    cluster: str | None,
    *,
    set_values: Sequence[str] = (),
    name: str | None = None,
    mail_type: str | None = None,
    mail_user: str | None = None,
    directory: Path | None = None,
) -> Plan:
    """The plan of a recipe on a cluster, each a name or a path.

    `cluster` None means the one this host belongs to. `set_values` are `key=value` settings of the recipe, or
    of the profile with `cluster.` in front. Relative data paths start at `directory`, by default the current.
    InputError says what cannot be, with the numbers.
    """
    base = directory or Path.cwd()
    for_cluster = [value.removeprefix("cluster.") for value in set_values if value.startswith("cluster.")]
    for_recipe = [value for value in set_values if not value.startswith("cluster.")]
    if name is not None:
        for_recipe.append(f"name={json.dumps(name)}")
    if mail_type is not None:
        for_cluster.append("mail=" + json.dumps({"type": mail_type, "user": mail_user}))
    what = _absolute(catalog.load_recipe(recipe, for_recipe), base)
    where = catalog.load_profile(cluster or _this_cluster(), for_cluster)
    notes: list[str] = []
    queue = _choose_queue(what, where, notes)
    geometry = _geometry(what, where, notes)
    gpus = _gpus(what, where)
    cpus = _cpus(geometry.tasks_per_node, where)
    if what.resources.walltime <= where.signals.lead:
        raise InputError(
            f"the walltime {show_duration(what.resources.walltime)} is not longer than the signal lead time "
            f"{show_duration(where.signals.lead)}",
            hint="ask for a longer resources.walltime",
        )
    return Plan(
        name=what.name,
        recipe=what,
        profile=where,
        queue=queue,
        geometry=geometry,
        cpus_per_task=cpus,
        gpus_per_node=gpus,
        directives=_directives(what, where, queue, geometry, cpus, gpus),
        estimate=_estimate(what, where, geometry),
        notes=tuple(notes),
    )


def list_catalog(kind: Literal["recipes", "cluster_profiles"]) -> tuple[tuple[str, str, Path], ...]:
    """Name, description and file of each recipe or profile that is known here."""
    return catalog.describe(kind)


def _this_cluster() -> str:
    found = catalog.here()
    if found is None:
        raise InputError(
            "no cluster profile knows this host",
            hint=f"say --cluster, one of {', '.join(catalog.names('cluster_profiles'))}, or a path",
        )
    return found


def _absolute(recipe: Recipe, base: Path) -> Recipe:
    sources = tuple(
        source.model_copy(update={"prefix": base / source.prefix.expanduser()}) for source in recipe.data.sources
    )
    changed: dict[str, object] = {"data": recipe.data.model_copy(update={"sources": sources})}
    if recipe.checkpoint.directory is not None:
        checkpoints = base / recipe.checkpoint.directory.expanduser()
        changed["checkpoint"] = recipe.checkpoint.model_copy(update={"directory": checkpoints})
    return recipe.model_copy(update=changed)


def _choose_queue(recipe: Recipe, profile: ClusterProfile, notes: list[str]) -> Queue:
    """The row that the recipe names, or the first production row that fits."""
    resources = recipe.resources
    nodes = resources.nodes + resources.spares
    if resources.queue is not None:
        rows = [row for row in profile.queues if row.name == resources.queue]
        if not rows:
            known = ", ".join(row.name for row in profile.queues)
            raise InputError(f"{profile.name} has no queue {resources.queue!r}", hint=f"its queues: {known}")
    else:
        rows = [row for row in profile.queues if row.purpose == "production"]
    reasons = []
    for row in rows:
        reason = _too_much(row, nodes, resources.walltime)
        if reason is None:
            notes += [
                f"{what} of queue {row.name} on {profile.name} is unknown and was not checked"
                for what, value in (("max_nodes", row.max_nodes), ("max_walltime", row.max_walltime))
                if value == "unknown"
            ]
            return row
        reasons.append(f"{row.name}: {reason}")
    raise InputError(
        f"no queue of {profile.name} takes {nodes} nodes for {slurm_time(resources.walltime)}: "
        + ("; ".join(reasons) or "it has no production queue"),
        hint="change resources.nodes, resources.walltime or resources.queue",
    )


def _too_much(row: Queue, nodes: int, walltime: int) -> str | None:
    if nodes < row.min_nodes:
        return f"{nodes} nodes, at least {row.min_nodes}"
    if isinstance(row.max_nodes, int) and nodes > row.max_nodes:
        return f"{nodes} nodes, at most {row.max_nodes}"
    if isinstance(row.max_walltime, int) and walltime > row.max_walltime:
        return f"{slurm_time(walltime)}, at most {slurm_time(row.max_walltime)}"
    return None


def _geometry(recipe: Recipe, profile: ClusterProfile, notes: list[str]) -> Geometry:
    training, resources = recipe.training, recipe.resources
    tasks = resources.tasks_per_node or profile.tasks.tasks_per_node
    world = resources.nodes * tasks
    length = recipe.data.sequence_length
    samples = sizing.batch_samples(training.global_batch.count, training.global_batch.unit, length)
    replicas, accumulation = sizing.choose_geometry(samples, training.micro_batch, world)
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


def _gpus(recipe: Recipe, profile: ClusterProfile) -> int:
    asked = recipe.resources.gpus_per_node
    if asked == "all":
        return profile.node.gpus
    if asked > profile.node.gpus:
        raise InputError(
            f"resources.gpus_per_node {asked}: a node of {profile.name} has {profile.node.gpus}",
            hint="ask for fewer, or `all`",
        )
    return asked


def _cpus(tasks_per_node: int, profile: ClusterProfile) -> int:
    cpus = profile.tasks.cpus_per_task
    if tasks_per_node * cpus > profile.node.cpus:
        raise InputError(
            f"{tasks_per_node} tasks x {cpus} CPUs are more than the {profile.node.cpus} CPUs of a node "
            f"of {profile.name}",
            hint="set cluster.tasks.cpus_per_task or resources.tasks_per_node",
        )
    return cpus


def _directives(
    recipe: Recipe, profile: ClusterProfile, queue: Queue, geometry: Geometry, cpus: int, gpus: int
) -> dict[str, str]:
    """Options for sbatch that do not depend on the run folder, in the order in which a reader looks for them."""
    account = profile.account
    if account.required and account.name is None:
        raise InputError(
            f"{profile.name} refuses jobs without an account",
            hint=f"--set cluster.account.name=NAME, or a profile of your own that `extends: {profile.name}`",
        )
    options: dict[str, str | None] = {
        "partition": queue.partition,
        "qos": queue.qos,
        "account": account.name,
        "nodes": str(geometry.nodes + geometry.spares),
        "ntasks-per-node": str(geometry.tasks_per_node),
        "cpus-per-task": str(cpus),
    }
    if gpus and profile.request.gpus == "gres":
        options["gres"] = f"gpu:{gpus}"
    elif gpus and profile.request.gpus == "gpus-per-node":
        options["gpus-per-node"] = str(gpus)
    if profile.request.memory != "omit":
        options["mem"] = profile.request.memory
    if profile.request.exclusive:
        options["exclusive"] = ""
    options |= {
        "time": slurm_time(recipe.resources.walltime),
        "signal": f"B:USR1@{profile.signals.lead}",
        "no-requeue": "",
        "no-kill": "",
        "open-mode": "append",
        "mail-type": profile.mail.type if profile.mail else None,
        "mail-user": profile.mail.user if profile.mail else None,
    }
    for option in profile.request.options:
        key, _, value = option.lstrip("-").partition("=")
        options[key] = value
    return {key: value for key, value in options.items() if value is not None}


def _estimate(recipe: Recipe, profile: ClusterProfile, geometry: Geometry) -> Estimate:
    shape = ModelShape(**recipe.model.model_dump())
    parameters = sizing.count_parameters(shape)
    seconds = recipe.resources.seconds_per_step
    jobs = None
    if seconds is not None:
        jobs = sizing.jobs_needed(geometry.total_steps, seconds, recipe.resources.walltime, profile.signals.lead)
    return Estimate(
        parameters=parameters,
        flops_per_token=sizing.flops_per_token(shape, recipe.data.sequence_length),
        checkpoint_bytes=sizing.checkpoint_bytes(parameters, recipe.training.precision),
        node_hours_per_job=(geometry.nodes + geometry.spares) * recipe.resources.walltime / 3600,
        jobs=jobs,
    )
