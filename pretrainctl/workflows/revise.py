"""Revise: plan a run anew between two of its jobs, with another recipe or other values."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pretrainctl.errors import InputError
from pretrainctl.records import codec
from pretrainctl.records.launch import Launch
from pretrainctl.records.lineage import Planned
from pretrainctl.runs.folder import RunFolder
from pretrainctl.schema import Plan
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle
from pretrainctl.workflows.unheard import refuse_unchanged, refuse_unheard, refuse_unheard_recipe

__all__ = ["Revision", "install", "revise", "tell_kept"]


@dataclass(frozen=True)
class Revision:
    """What the bundle would be, and what it would be made of; nothing is written yet. `kept`: earlier settings that
    stay over another recipe."""

    launch: Launch
    files: Mapping[str, str]
    planned: Planned
    kept: tuple[str, ...] = ()


def revise(run: RunFolder, set_values: Sequence[str], recipe: Path | None) -> Revision:
    """Plan the run anew: its own recipe, or the one in `recipe`, with `key=value` settings over it, on its own cluster.

    Settings of the launch, and of each `resume` since, stay over another recipe where none of the new ones is for the
    same key.

    InputError where that cannot be planned, changes nothing that the job gets, or would change what a run keeps: its
    name, its cluster, its checkpoint directory, its framework. The name of another recipe is that recipe's own.
    """
    before, old = run.planned(), run.launch()
    stay = _settings_that_stay(before.settings, set_values)
    kept = tuple(one for one in stay if not _key(one).startswith("cluster.")) if recipe is not None else ()
    render = partial(
        render_bundle,
        run_dir=run.launched_as(),
        python=old.python,
        training_python=_training_python(old),
        salt=str(run.record.created),
    )
    with tempfile.TemporaryDirectory(prefix="pretrainctl-") as folder:
        written = Path(folder) / "recipe.yaml", Path(folder) / "profile.yaml"
        for path, values in zip(written, (before.recipe, before.profile), strict=True):
            path.write_text(json.dumps(values), encoding="utf-8")

        def make(settings: Sequence[str]) -> Plan:
            chosen = str(recipe.absolute() if recipe is not None else written[0])
            return make_plan(chosen, str(written[1]), set_values=[*kept, *settings], name=run.record.name)

        try:
            plan = make(set_values)
        except InputError as error:
            if kept:
                error.hint = f"{error.hint}; {tell_kept(kept)}".lstrip("; ")
            raise
        refuse_unheard(plan, set_values, make, lambda some: render(some)[2].files)
        if recipe is not None:
            refuse_unheard_recipe(plan, before.recipe, set_values, make, lambda some: render(some)[2].files)
    launch, _, bundle = render(plan)
    names = [one.partition("=")[2].strip().strip("\"'") for one in set_values if _key(one) == "name"]
    for what, was, now in (
        ("name", run.record.name, names[-1] if names else run.record.name),
        ("cluster.name", run.record.cluster, plan.profile.name),
        ("run id", old.run_id, launch.run_id),
        ("job name", old.job_name, launch.job_name),
        ("checkpoint.directory", old.checkpoint.directory, launch.checkpoint.directory),
        ("framework", old.framework, launch.framework),
    ):
        if was != now:
            raise InputError(
                f"{what} of a run stays as it was launched: {was}, not {now}",
                hint="launch a new run, with `--set checkpoint.adopt=true` to go on from these checkpoints",
            )
    planned = _planned(plan, (*stay, *set_values))
    # Both: an interruption may have left the bundle new and the plan old.
    if recipe is None and (planned.recipe, planned.profile) == (before.recipe, before.profile):
        refuse_unchanged(set_values, _files_in(run.bundle), bundle.files)
    return Revision(launch, bundle.files, planned, kept)


def tell_kept(kept: Sequence[str]) -> str:
    """What is said of earlier settings that stay over another recipe."""
    return f"settings given before stay, until `--set` names the same key: {', '.join(kept)}"


def _settings_that_stay(before: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """Those of the settings `before` whose key, or a section that it lies in, is not set `now`."""
    keys = {_key(one) for one in now}
    parts = ((one, _key(one).split(".")) for one in before)
    return tuple(one for one, path in parts if not any(".".join(path[:end]) in keys for end in range(1, len(path) + 1)))


def _key(setting: str) -> str:
    return setting.partition("=")[0].strip()


def _files_in(bundle: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in bundle.iterdir() if path.is_file()}


def install(run: RunFolder, revision: Revision) -> None:
    """Make the revision the run's; the bundle before it is kept in `bundles/`. No job of the run may be queued.

    Each file is replaced in one rename. What an interruption leaves half done shows as a change at the next start.
    """
    kept = run.path / "bundles"
    kept.mkdir(exist_ok=True)
    number = 1 + max((int(path.name) for path in kept.iterdir() if path.name.isdigit()), default=0)
    shutil.copytree(run.bundle, kept / f"{number:04d}")
    for name, text in revision.files.items():
        aside = run.bundle / f".{name}.{os.urandom(8).hex()}"
        aside.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            aside.chmod(0o755)
        aside.replace(run.bundle / name)
    for name in {path.name for path in run.bundle.iterdir()} - set(revision.files):
        (run.bundle / name).unlink()
    codec.write(run.path / "plan.json", revision.planned)


def _training_python(launch: Launch) -> str | None:
    """The interpreter of the ranks where the launch chose it: inside an image it is the profile's to name."""
    begins = Path(launch.program[0]).name.startswith("python") and not launch.container
    return launch.program[0] if begins else None


def _planned(plan: Plan, settings: tuple[str, ...]) -> Planned:
    return Planned(
        recipe=plan.recipe.model_dump(mode="json"),
        profile=plan.profile.model_dump(mode="json"),
        plan=plan.model_dump(mode="json", exclude={"recipe", "profile"}),
        settings=settings,
    )
