"""Folders that only one node sees, or that hold less than the checkpoints of a run."""

from __future__ import annotations

import os
from pathlib import Path

from pretrainctl.errors import InputError
from pretrainctl.schema import ClusterProfile, Recipe
from pretrainctl.units import show_size
from pretrainctl.workflows.plan.site import tier_of

__all__ = ["check_local_folders", "warn_of_full_storage"]

_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - told apart, not used
_LOCAL_SOURCE = "Filesystem Hierarchy Standard 3.0, 2015-06"
"""Of one machine, and temporary: sections 3.15 and 3.18, 5.15."""


def check_local_folders(recipe: Recipe, profile: ClusterProfile, runs: Path, base: Path, warnings: list[str]) -> None:
    """Refuse checkpoints in a temporary folder, which each node has for itself; warn of data and runs there.

    What a profile lists under `storage` is judged by that instead, and a cluster that is one machine not at all. Nor is
    what lies below `base` or the current folder, where the command is given: a plan can be made on any machine.
    """
    if profile.rendezvous.address == "localhost":
        return
    named = [("the run folder in", runs.absolute()), *(("data.sources", each.prefix) for each in recipe.data.sources)]
    if recipe.program is not None and recipe.program.checkpoint.directory.startswith("/"):
        directory = os.path.normpath(recipe.program.checkpoint.directory).replace("//", "/")
        named.append(("program.checkpoint.directory", Path(directory)))
    elif recipe.program is None and recipe.checkpoint.directory is not None:
        named.append(("checkpoint.directory", recipe.checkpoint.directory))
    for key, path in named:
        beside = path.is_relative_to(base) or path.is_relative_to(Path.cwd())
        folder = None if beside or tier_of(path, profile) else _local(path)
        if folder is None:
            continue
        says = f"{key} {path}: {folder} is each node's own, and temporary ({_LOCAL_SOURCE})"
        if key.endswith("checkpoint.directory"):
            raise InputError(says, hint="name a folder that all nodes see and that lasts")
        warnings.append(f"{says}: compute nodes of {profile.name} will not find it")


def _local(path: Path) -> str | None:
    own = os.environ.get("TMPDIR", "")
    folders = (*_LOCAL, os.path.normpath(own)) if own.startswith("/") and own.strip("/") else _LOCAL
    return next((folder for folder in folders if path.is_relative_to(folder)), None)


def warn_of_full_storage(
    recipe: Recipe, profile: ClusterProfile, runs: Path, steps: int, size: int, warnings: list[str]
) -> None:
    """Compare the checkpoints that are kept, of `size` bytes each, with what the space under them holds."""
    if recipe.program is not None:
        return
    policy = recipe.checkpoint
    folder = policy.directory or runs.absolute()
    tier = tier_of(folder, profile)
    if tier is None or tier.size == "unknown":
        return
    saves = -(-steps // policy.every_steps)
    # An old one goes when the next is complete.
    there = min(saves, policy.keep + 1) if policy.keep else saves
    if there * size > tier.size:
        warnings.append(
            f"{there} checkpoints of {show_size(size)} lie in {folder} at a time, {show_size(there * size)}, and "
            f"{tier.name} of {profile.name} holds {show_size(tier.size)} ({tier.quota}; {profile.source_of(tier)}): "
            "set checkpoint.directory or checkpoint.keep"
        )
