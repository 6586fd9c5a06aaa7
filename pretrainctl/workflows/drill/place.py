"""Where the drill is held: a sandbox of its own, or the user's cluster; and the tiny recipe that it trains there."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pretrainctl import process
from pretrainctl.errors import CommandError
from pretrainctl.runs.folder import RUNS_VARIABLE
from pretrainctl.sandbox import Sandbox
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.reach import find_slurm_conf
from pretrainctl.workflows.render import render_bundle

__all__ = ["EVERY", "STEPS", "STRIKE_AT", "Place", "Site", "at_cluster", "at_sandbox", "find_site"]

STEPS = 60
"""Optimizer steps of each run."""
EVERY = 10
"""Steps between two checkpoints."""
STRIKE_AT = 13
"""The step after which most faults come: past a checkpoint, and not at the next."""

_TINY = (
    *("model.layers=2", "model.hidden=64", "model.heads=2", "model.kv_heads=1", "model.ffn=128", "model.context=64"),
    *("data.sequence_length=64", "training.schedule.warmup_steps=4"),
    *(f"checkpoint.every_steps={EVERY}", "checkpoint.keep=0"),
)
_DIGEST = "PRETRAINCTL_WEIGHTS_DIGEST"
"""Asks the trainer for the digest of its last weights; the house does not import the trainer that reads it."""
_CLUSTER_PACE = 1.0
"""Seconds that a step takes longer on a cluster, where a command to a node takes as long as many tiny steps."""


@dataclass(frozen=True)
class Place:
    """`folder` holds data and runs; `environment` is that of every command. `pace`: seconds a step takes longer."""

    folder: Path
    cluster: str
    environment: Mapping[str, str]
    sandbox: Sandbox | None = None
    pace: float = 0.0

    def run_dir(self, name: str) -> Path:
        """Where the run of a fault lies: alone, since runs of one folder learn from each other which nodes are bad."""
        return self.folder / "runs" / name / name

    @property
    def exact(self) -> bool:
        """Whether the same training ends with the same weights to the last bit: on CPU in fp32."""
        return self.sandbox is not None

    def settings(self, sets: Sequence[str]) -> list[str]:
        """The settings of the tiny recipe, `sets` over them."""
        batch, micro = (8, 4) if self.sandbox is not None else (32, 1)
        return [
            *_TINY,
            f"data.sources=[{{prefix: {json.dumps(str(self.folder / 'data' / 'drill'))}}}]",
            f"training.global_batch={batch} samples",
            f"training.micro_batch={micro}",
            f"training.tokens={STEPS * batch * 64}",
            "resources.walltime=00:15:00",
            *sets,
        ]

    def program(self, name: str, sets: Sequence[str], arguments: Sequence[str]) -> str:
        """The setting that puts the drill's program in the trainer's place; the trainer's settings are written aside,
        since a recipe with a program has none."""
        plan = make_plan("quickstart", self.cluster, set_values=self.settings(sets), name=name)
        bundle = render_bundle(plan, self.run_dir(name))[2]
        file = self.settings_aside(name)
        file.parent.mkdir(exist_ok=True)
        file.write_text(bundle.files["training.json"], encoding="utf-8")
        argv = ["{python}", "-m", "pretrainctl.workflows.drill.program", *arguments, str(file)]
        return f"program={json.dumps({'argv': argv, 'checkpoint': {'directory': '{run_dir}/checkpoints'}})}"

    def settings_aside(self, name: str) -> Path:
        """The file from which the drill's program has the trainer's settings."""
        return self.folder / "programs" / f"{name}.json"

    def pretrainctl(
        self, *words: str, check: bool = True, variables: Mapping[str, str] | None = None
    ) -> process.Completed:
        """Run a command of pretrainctl, as a user does; `variables` are laid over the environment."""
        return self.python("-m", "pretrainctl", *words, check=check, variables=variables)

    def python(self, *words: str, check: bool = True, variables: Mapping[str, str] | None = None) -> process.Completed:
        """Run this Python; with `check`, CommandError with the last words of what failed."""
        done = process.run(
            [sys.executable, *words],
            timeout=300.0,
            env={**self.environment, **(variables or {})},
            cwd=self.folder,
            check=False,
        )
        if check and done.status != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing was said").splitlines()
            raise CommandError(
                f"`{' '.join(words[1:4])}` failed: {next((line for line in said if 'error' in line), said[-1])}",
                hint=f"run it by hand in {self.folder}",
                status=done.status,
                stdout=done.stdout,
                stderr=done.stderr,
            )
        return done

    def slurm(self, *argv: str) -> str:
        """Run one of Slurm's commands; CommandError where it fails."""
        return process.run(argv, timeout=60.0, env=self.environment).stdout


def at_sandbox(folder: Path, sandbox: Sandbox) -> Place:
    """On a sandbox that is up; the data are made."""
    place = Place(folder, "sandbox", _environment(folder, sandbox.environment()), sandbox)
    _make_data(place)
    return place


@dataclass(frozen=True)
class Site:
    """A user's cluster: how its profile is named from any folder, and SLURM_CONF there, empty for the host's own."""

    cluster: str
    slurm_conf: str


def find_site(cluster: str) -> Site:
    """The cluster of a profile; InputError where there is none, or the tiny recipe cannot be planned there."""
    if "/" in cluster or cluster.endswith(".yaml"):
        cluster = str(Path(cluster).absolute())  # the commands are given elsewhere
    return Site(cluster, find_slurm_conf(make_plan("quickstart", cluster, set_values=[]).profile))


def at_cluster(folder: Path, site: Site) -> Place:
    """On a user's cluster, from its login node; `folder` must be seen by the nodes. The data are made."""
    environment = dict(os.environ) | ({"SLURM_CONF": site.slurm_conf} if site.slurm_conf else {})
    place = Place(folder, site.cluster, _environment(folder, environment), pace=_CLUSTER_PACE)
    _make_data(place)
    return place


def _environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    return {**environment, RUNS_VARIABLE: str(folder / "runs"), _DIGEST: "1"}


def _make_data(place: Place) -> None:
    source = Path(sysconfig.get_paths()["stdlib"]) / "email"
    place.python(
        *("-m", "pretrainctl.trainer.tokenize", "--input", str(source), "--suffix", ".py"),
        *("--output", str(place.folder / "data" / "drill")),
    )
