"""What is asked of Slurm: GPUs, CPUs and the sbatch options, in the form that the site wants."""

from __future__ import annotations

import os

from pretrainctl import catalog
from pretrainctl.errors import InputError
from pretrainctl.schema import ClusterProfile, Estimate, Geometry, Queue, Recipe
from pretrainctl.units import show_estimate, slurm_time

__all__ = ["check_account", "count_cpus", "count_gpus", "directives", "warn_of_idle_gpus", "warn_of_other_account"]


def check_account(profile: ClusterProfile) -> None:
    """Refuse a site that wants an account and is given none: the first thing that a profile of one's own says."""
    account = profile.account
    if not account.required or account.name is not None:
        return
    families = sorted({row.family for row in profile.queues if row.family is not None})
    too = f"; there also say `families: [NAME]`, your kind of allocation, of {', '.join(families)}" if families else ""
    raise InputError(
        f"{profile.name} refuses jobs without an account ({profile.source_of(account, 'required')})",
        hint=f"give it by --set cluster.account.name=NAME, by the variable {catalog.ACCOUNT_VARIABLE}, or as "
        f"`account: {{name: NAME}}` in a profile of your own that `extends: {profile.name}`"
        + ("" if profile.families else too),
    )


def warn_of_other_account(cluster: str, profile: ClusterProfile, warnings: list[str]) -> None:
    """Say where a variable of the shell charges another account than the one that the profile names."""
    given = os.environ.get(catalog.ACCOUNT_VARIABLE)
    if not given or profile.account.name != given:  # none, or a setting goes before it
        return
    own = catalog.replaced_account(cluster)
    if own:
        warnings.append(f"the account {given} of the variable {catalog.ACCOUNT_VARIABLE} replaces {own}")


def count_gpus(recipe: Recipe, profile: ClusterProfile, ranks_per_node: int) -> int:
    """GPUs of each node; each rank needs one of its own."""
    asked, there = recipe.resources.gpus_per_node, profile.node.gpus
    source = profile.source_of(profile.node, "gpus")
    gpus = there if asked == "all" else asked
    if gpus > there:
        raise InputError(
            f"resources.gpus_per_node {gpus}: a node of {profile.name} has {there} ({source})",
            hint="ask for fewer, or `all`",
        )
    if gpus and ranks_per_node > gpus:
        raise InputError(
            f"{ranks_per_node} ranks on each node and {gpus} GPUs: each rank needs one (a node of {profile.name} has "
            f"{there}, {source})",
            hint="set resources.tasks_per_node or resources.gpus_per_node",
        )
    return gpus


def count_cpus(profile: ClusterProfile, ranks_per_node: int, gpus: int) -> int:
    """CPUs of each rank, as the node has them and as the site's rule of CPUs a GPU wants them."""
    cpus = profile.tasks.cpus_per_task
    if ranks_per_node * cpus > profile.node.cpus:
        raise InputError(
            f"{ranks_per_node} tasks x {cpus} CPUs are more than the {profile.node.cpus} CPUs of a node "
            f"of {profile.name} ({profile.source_of(profile.node, 'cpus')})",
            hint="set cluster.tasks.cpus_per_task or resources.tasks_per_node",
        )
    rule, rule_source = profile.request.cpus_per_gpu, profile.source_of(profile.request, "cpus_per_gpu")
    if rule is not None and ranks_per_node * cpus != rule * gpus:
        raise InputError(
            f"{profile.name} wants {rule} CPUs with each GPU: {ranks_per_node} tasks x {cpus} CPUs are "
            f"{ranks_per_node * cpus}, and {gpus} GPUs need {rule * gpus} ({rule_source})",
            hint="set resources.gpus_per_node, resources.tasks_per_node or cluster.tasks.cpus_per_task",
        )
    return cpus


def warn_of_idle_gpus(
    profile: ClusterProfile, geometry: Geometry, gpus: int, costs: Estimate, warnings: list[str]
) -> None:
    """Say what is asked for and used by no rank: each rank takes one GPU, and an exclusive node is charged whole."""
    taken = profile.node.gpus if profile.request.exclusive else gpus
    used = min(gpus, geometry.tasks_per_node)
    if taken <= used:
        return
    hours = f"{costs.node_hours_per_job:.2f} node-hours a job"
    if costs.node_hours is not None:
        hours = f"{show_estimate(costs.node_hours)} node-hours to the target"
    warnings.append(
        f"{taken - used} of the {taken} GPUs of each node are used by no rank, which is {taken - used}/{taken} of "
        f"{hours}: each rank takes one; set resources.tasks_per_node={taken}"
        + (f" and resources.gpus_per_node={taken}" if gpus < taken else "")
    )


def warn_of_idle_nodes(geometry: Geometry, costs: Estimate, warnings: list[str]) -> None:
    """Say what spares cost that are more than the nodes that train: no fault of one night takes as many."""
    if geometry.spares > geometry.nodes:
        nodes = geometry.nodes + geometry.spares
        warnings.append(
            f"each job asks for {nodes} nodes, of which {geometry.nodes} train and {geometry.spares} are spare "
            f"(resources.spares): {geometry.spares}/{nodes} of {costs.node_hours_per_job:.2f} node-hours a job"
        )


def directives(
    recipe: Recipe, profile: ClusterProfile, queue: Queue, geometry: Geometry, cpus: int, gpus: int
) -> dict[str, str]:
    """Options for sbatch that do not depend on the run folder, in the order in which a reader looks for them."""
    a_task = 1 if profile.tasks.launcher == "direct" else geometry.tasks_per_node
    options: dict[str, str | None] = {
        "partition": queue.partition,
        "qos": queue.qos,
        "account": profile.account.name,
        "nodes": str(geometry.nodes + geometry.spares),
        "ntasks-per-node": str(geometry.tasks_per_node // a_task),
        "cpus-per-task": str(cpus * a_task),
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
        key, _, value = option.removeprefix("--").partition("=")
        options[key] = f"{options[key]},{value}" if key == "gres" and key in options else value
    return {key: value for key, value in options.items() if value is not None}
