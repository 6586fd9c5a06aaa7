"""Render: plan -> launch -> the text of everything that is submitted. No machine is asked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pretrainctl import catalog, rendering
from pretrainctl.errors import InputError
from pretrainctl.frameworks import deepspeed
from pretrainctl.frameworks.contract import Framework, RunIdentity
from pretrainctl.records.launch import Bundle, Launch
from pretrainctl.records.run import run_id_for
from pretrainctl.records.training import TrainingSettings
from pretrainctl.runs import folder
from pretrainctl.schema import Plan
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.training_step import shown_step

__all__ = ["Rendered", "render_bundle", "render_recipe", "write_bundle"]

_FRAMEWORKS: dict[str, Framework] = {"deepspeed": deepspeed}


@dataclass(frozen=True)
class Rendered:
    """What a launch would submit, and the srun by which the job will start the training."""

    bundle: Bundle
    srun: tuple[str, ...]
    """Its argv, with stand-ins for the names of nodes."""


def render_bundle(
    plan: Plan,
    run_dir: Path,
    *,
    python: str = sys.executable,
    training_python: str | None = None,
    salt: str = "",
) -> tuple[Launch, TrainingSettings | None, Bundle]:
    """Launch record, trainer settings (None for a program of one's own) and the files of `bundle/`.

    `run_dir` is absolute. `python` runs pretrainctl in the job and, unless `training_python` is given, the
    training program; the profile's own interpreters win over both. `salt` makes the run id differ between
    runs of one name in one folder, such as the time of the launch. The same arguments give the same text.
    """
    pythons = plan.profile.python
    identity = RunIdentity(
        run_dir=run_dir,
        run_id=run_id_for(plan.name, f"{run_dir}\n{salt}"),
        python=str(pythons.control or python),
        training_python=str(pythons.training or training_python or python),
    )
    launch, settings, config = _FRAMEWORKS[plan.recipe.framework].launch(plan, identity)
    return launch, settings, rendering.render(plan, launch, settings, config, run_dir, catalog.template_dir())


def render_recipe(
    recipe: str, cluster: str | None, *, set_values: Sequence[str] = (), name: str | None = None
) -> Rendered:
    """What a launch of this recipe from this folder would submit; the run folder is only named, not made."""
    plan = make_plan(recipe, cluster, set_values=set_values, name=name)
    run_dir = folder.roots()[0].absolute() / folder.check_name(plan.name)
    launch, _, bundle = render_bundle(plan, run_dir)
    return Rendered(bundle, shown_step(launch, run_dir))


def write_bundle(bundle: Bundle, output: Path) -> tuple[Path, ...]:
    """Write the files of a bundle into a folder that is new or empty."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output} is not an empty folder", hint="name a new one; nothing was written")
    output.mkdir(parents=True, exist_ok=True)
    paths = tuple(output / name for name in bundle.files)
    for path in paths:
        text = bundle.files[path.name]
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            path.chmod(0o755)
    return paths
