"""What follows from the site: variables of the training tasks, and where files must not lie."""

from __future__ import annotations

import re
from pathlib import Path

from pretrainctl.errors import InputError
from pretrainctl.schema import ClusterProfile, Recipe, Variable
from pretrainctl.schema.cluster import Pythons
from pretrainctl.schema.site import Tier

__all__ = ["check_storage", "site_environment", "tier_of"]

_OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")


def site_environment(recipe: Recipe, profile: ClusterProfile, notes: list[str]) -> dict[str, Variable]:
    """Offline flags, the profile's variables and those of the recipe's workloads, the last wins."""
    compute = profile.internet.compute
    source = profile.source_of(profile.internet, "compute")
    if compute != "yes" and recipe.tracking.wandb == "online":
        raise InputError(
            f"tracking.wandb online: compute nodes of {profile.name} have no internet"
            + (" as far as is known" if compute == "unknown" else "")
            + f" ({source})",
            hint="use tracking.wandb=offline, and upload the run folder's wandb/ from where there is a network",
        )
    variables: dict[str, Variable] = {}
    if compute != "yes":
        variables = {name: Variable(value="1", reason="compute nodes have no internet") for name in _OFFLINE}
        if compute == "unknown":
            notes.append(f"whether compute nodes of {profile.name} have internet is unknown: all is kept offline")
    variables |= profile.environment
    for workload in recipe.workloads:
        if workload in profile.workloads:
            variables |= profile.workloads[workload]
        else:
            known = ", ".join(profile.workloads) or "none"
            notes.append(f"{profile.name} has no variables of its own for the workload {workload} (it has: {known})")
    image = profile.container.image if profile.container else None
    if image is not None:
        arch = profile.node.arch
        notes.append(
            f"{image} must hold the training environment with pretrainctl"
            + (f", made for {arch}" if arch != "unknown" else "")
        )
    elif profile.internet.login == "no":
        notes.append(
            f"nodes of {profile.name} reach no package index: the training environment comes from outside, as "
            "cluster.container.image or cluster.python.training"
        )
    if profile.python_module is None and (profile.internet.login == "no" or profile.python != Pythons()):
        notes.append(
            f"no module that a job on {profile.name} loads brings Python: where the virtual environment of pretrainctl "
            "or of the training was made with one, such as python/3.11.5-gcc, name it in cluster.modules"
        )
    return variables


def check_storage(recipe: Recipe, profile: ClusterProfile, runs: Path, notes: list[str]) -> None:
    """Refuse checkpoints and data where they do not outlive the job, and say where old files are removed.

    `runs` is the folder that takes new runs.
    """
    named: list[tuple[str, Path]] = [("data.sources", source.prefix) for source in recipe.data.sources]
    if recipe.checkpoint.directory is not None:
        named.append(("checkpoint.directory", recipe.checkpoint.directory))
    elif recipe.program is None:
        named.append(("the run folder, with its checkpoints, in", runs.absolute()))
    seen: set[str] = set()
    for key, path in named:
        tier = tier_of(path, profile)
        if tier is None:
            continue
        source = profile.source_of(tier)
        if tier.lasts == "job":
            raise InputError(
                f"{key} {path}: {tier.name} of {profile.name} is erased when the job ends ({source})",
                hint="name a folder that all nodes see and that lasts",
            )
        note = _age_note(tier)
        if note and (said := f"{key} {path} lies on {tier.name} of {profile.name}, {note} ({source})") not in seen:
            seen.add(said)
            notes.append(said)


def tier_of(path: Path, profile: ClusterProfile) -> Tier | None:
    """The space of the site in which a path lies; None where it is in none that has a known path."""
    for tier in profile.storage:
        pattern = re.escape(tier.path.rstrip("/")).replace(r"\*", "[^/]+") if tier.path else None
        if pattern is not None and re.match(rf"{pattern}(/|$)", str(path)):
            return tier
    return None


def _age_note(tier: Tier) -> str | None:
    if isinstance(tier.purge_days, int):
        return f"where files older than {tier.purge_days} days are removed"
    if tier.lasts in ("purged", "unknown"):
        return "where old files may be removed, at an age that is unknown"
    return None
