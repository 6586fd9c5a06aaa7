"""From names to a plan: read, choose, work out, check."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pretrainctl import catalog
from pretrainctl.errors import InputError
from pretrainctl.frameworks import checkpoint_gate, deepspeed
from pretrainctl.recovery.policies import check_policies
from pretrainctl.runs.folder import check_name, roots
from pretrainctl.schema import ClusterProfile, Plan, Recipe
from pretrainctl.units import show_duration
from pretrainctl.workflows.place import this_cluster
from pretrainctl.workflows.plan.environment import check_recipe_environment
from pretrainctl.workflows.plan.estimate import estimate
from pretrainctl.workflows.plan.geometry import geometry
from pretrainctl.workflows.plan.queues import check_chain, choose_queue
from pretrainctl.workflows.plan.resources import (
    check_account,
    count_cpus,
    count_gpus,
    directives,
    warn_of_idle_gpus,
    warn_of_idle_nodes,
    warn_of_other_account,
)
from pretrainctl.workflows.plan.site import check_storage, site_environment
from pretrainctl.workflows.plan.storage import check_local_folders, warn_of_full_storage

__all__ = ["list_catalog", "make_plan", "names_of", "split_settings"]


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
    InputError says what cannot be, with the numbers and where the limit comes from; CheckpointError, that the
    checkpoint folder which the recipe names holds checkpoints of another layout.
    """
    base = directory or Path.cwd()
    for_recipe, for_cluster = split_settings(set_values)
    if name is not None:
        for_recipe.append(f"name={json.dumps(name)}")
    if mail_type is not None:
        for_cluster.append("mail=" + json.dumps({"type": mail_type, "user": mail_user}))
    cluster = cluster or this_cluster()
    where = catalog.load_profile(cluster, for_cluster)
    what = _absolute(catalog.load_recipe(recipe, for_recipe, clusters=names_of(cluster, where)), base)
    check_name(what.name)
    check_policies(what.recovery.policies)
    notes = list(where.caveats)
    warnings: list[str] = []
    check_account(where)
    warn_of_other_account(cluster, where, warnings)
    queue = choose_queue(what, where, notes)
    ranks = geometry(what, where, notes)
    gpus = count_gpus(what, where, ranks.tasks_per_node)
    cpus = count_cpus(where, ranks.tasks_per_node, gpus)
    if what.resources.walltime <= where.signals.lead:
        raise InputError(
            f"the walltime {show_duration(what.resources.walltime)} is not longer than the signal lead time "
            f"{show_duration(where.signals.lead)} of {where.name}",
            hint="ask for a longer resources.walltime",
        )
    check_chain(what, where, queue, notes, warnings)
    check_storage(what, where, roots()[0], notes)
    check_local_folders(what, where, roots()[0], base, warnings)
    variables = site_environment(what, where, notes)
    check_recipe_environment(what, where, variables, notes)
    costs = estimate(what, where, ranks, gpus, notes, warnings)
    warn_of_idle_gpus(where, ranks, gpus, costs, warnings)
    warn_of_idle_nodes(ranks, costs, warnings)
    warn_of_full_storage(what, where, roots()[0], ranks.total_steps, costs.checkpoint_bytes, warnings)
    if what.checkpoint.every_steps > ranks.total_steps:
        notes.append(
            f"checkpoint.every_steps {what.checkpoint.every_steps} is beyond the last of {ranks.total_steps} steps: "
            "nothing is saved before it, except where a time limit or a stop asks for it"
        )
    _note_short_chain(what, where, costs.jobs, notes)
    plan = Plan(
        name=what.name,
        recipe=what,
        profile=where,
        queue=queue,
        geometry=ranks,
        cpus_per_task=cpus,
        gpus_per_node=gpus,
        environment=variables,
        directives=directives(what, where, queue, ranks, cpus, gpus),
        estimate=costs,
        notes=tuple(notes),
        warnings=tuple(warnings),
        blocked=_blocked(what),
    )
    deepspeed.configuration(plan)
    _refuse_other_layout(plan)
    return plan


def split_settings(set_values: Sequence[str]) -> tuple[list[str], list[str]]:
    """`key=value` settings of the recipe, and those of the profile without their `cluster.` in front."""
    for_cluster = [value.removeprefix("cluster.") for value in set_values if value.startswith("cluster.")]
    return [value for value in set_values if not value.startswith("cluster.")], for_cluster


def names_of(cluster: str, profile: ClusterProfile) -> tuple[str, ...]:
    """The names for which a recipe may hold a section that counts on this cluster, the nearest first."""
    return (profile.name, *catalog.lineage(cluster))


def list_catalog(kind: Literal["recipes", "cluster_profiles"]) -> tuple[tuple[str, str, Path], ...]:
    """Name, description and file of each recipe or profile that is known here."""
    return catalog.describe(kind)


def _absolute(recipe: Recipe, base: Path) -> Recipe:
    sources = tuple(
        source.model_copy(update={"prefix": _path("data.sources", source.prefix, base)})
        for source in recipe.data.sources
    )
    changed: dict[str, object] = {"data": recipe.data.model_copy(update={"sources": sources})}
    if recipe.checkpoint.directory is not None:
        checkpoints = _path("checkpoint.directory", recipe.checkpoint.directory, base)
        changed["checkpoint"] = recipe.checkpoint.model_copy(update={"directory": checkpoints})
    if recipe.program is not None:
        key, own = "program.checkpoint.directory", recipe.program.checkpoint
        _refuse_variable(key, own.directory)
        if own.directory.startswith("~"):
            moved = own.model_copy(update={"directory": str(_path(key, Path(own.directory), base))})
            changed["program"] = recipe.program.model_copy(update={"checkpoint": moved})
    return recipe.model_copy(update=changed)


def _path(key: str, path: Path, base: Path) -> Path:
    # A prefix without a slash is the name of a file, which may look like one.
    if key != "data.sources" or len(path.parts) > 1:
        _refuse_variable(key, str(path))
    # Without `..` and doubled slashes: the tiers of a site are told by their paths.
    return Path(os.path.normpath(base / catalog.expand_home(path)).replace("//", "/"))


def _refuse_variable(key: str, path: str) -> None:
    if re.search(r"(^|/)\$(\w+|\{\w+\})(/|$)", path):
        raise InputError(
            f"{key}: {path!r} names a variable, and paths are taken as they are written",
            hint="write the path that the variable stands for there",
        )


def _note_short_chain(recipe: Recipe, profile: ClusterProfile, needed: int | None, notes: list[str]) -> None:
    """Say where the jobs that a launch queues do not reach the target."""
    chain = recipe.chain.at(profile.chain)
    queued = chain.jobs
    if chain.strategy != "prequeued" or (needed is not None and needed <= queued):
        return
    jobs = "1 job is" if queued == 1 else f"{queued} jobs are"
    reach = "may not reach the target" if needed is None else f"about {needed} are needed to reach the target"
    short = f"{jobs} queued at launch, and {reach}: "
    if chain.sbatch_inside == "unknown":  # then another note says how many are queued
        short = f"these jobs {reach}" if needed is None else f"about {needed} jobs are needed to reach the target"
        short += ": where sbatch does not work there, "
    notes.append(f"{short}give `pretrainctl reconcile` on a login node now and then, as in cron, which tops them up")


def _blocked(recipe: Recipe) -> str | None:
    """Why the reference trainer cannot train this."""
    if recipe.model.experts is None or recipe.program is not None:
        return None
    return (
        f"render and launch refuse {recipe.name}: it is a mixture of {recipe.model.experts.count} experts, and the "
        "reference trainer trains dense models only"
    )


def _refuse_other_layout(plan: Plan) -> None:
    """A folder of checkpoints that the recipe names must hold none of another world size, stage or precision.

    A ZeRO checkpoint can be loaded only by as many ranks as saved it: found here, it costs no time in the queue.
    """
    recipe = plan.recipe
    named = recipe.program.checkpoint.directory if recipe.program else recipe.checkpoint.directory
    if named is None or "{run_dir}" in str(named) or not Path(named).is_dir():
        return
    checkpoint_gate.refuse_other_layout(Path(named), deepspeed.checkpoint_layout(plan, Path(named)))
