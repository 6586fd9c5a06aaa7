"""Explain a batch script and the srun of its attempt part by part, and compare those of two clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pretrainctl import catalog
from pretrainctl.catalog.reading import Document, Origin
from pretrainctl.runs import folder
from pretrainctl.schema import Plan
from pretrainctl.workflows.place import this_cluster
from pretrainctl.workflows.plan.make import make_plan, names_of, split_settings
from pretrainctl.workflows.render import render_bundle
from pretrainctl.workflows.training_step import shown_step

__all__ = ["Difference", "Line", "diff", "explain"]

_RULES = {
    "job-name": "computed: the run id, by which the jobs of a run wait for each other",
    "chdir": "computed: the run folder",
    "output": "computed: the run folder; the job id keeps logs apart",
    "no-requeue": "rule: the chained job goes on; both together would block each other",
    "no-kill": "rule: a dead node ends the training step, not the job",
    "open-mode": "rule: no log is ever overwritten",
}
_OURS = {
    "OMP_NUM_THREADS": "computed: CPUs of a rank",
    "PYTHONUNBUFFERED": "rule: what is printed is in the log at once",
    "WANDB_RUN_ID": "computed: the run id, the same in every attempt",
    "WANDB_RESUME": "rule: attempts join one tracked run",
    "DS_ACCELERATOR": "computed: no GPU is asked for",
    "WANDB_NAME": "computed: the name of the run",
    **dict.fromkeys(("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR"), "computed: the run folder"),
}
_TRACKING = {
    "WANDB_MODE": "wandb",
    "WANDB_PROJECT": "project",
    "WANDB_ENTITY": "entity",
    "WANDB_RUN_GROUP": "group",
}


@dataclass(frozen=True)
class Line:
    """A line of the batch script, or an option of the srun (`srun --nodes=32`), and where it comes from."""

    text: str
    origin: str


@dataclass(frozen=True)
class Difference:
    """What a directive, module, variable or srun option is on each of two clusters; empty where it is not there."""

    what: str
    first: str
    second: str


_SRUN = {
    "job-name": "computed: attempt and restart",
    "ntasks": "computed: nodes x tasks on each",
    "nodelist": "computed in the job: its nodes, the batch host left out where there is a spare",
    "distribution": "rule: ranks follow the order of the nodes",
    "overlap": "rule: the beats of the nodes run beside it, and a restart beside a step that dies",
    "kill-on-bad-exit": "rule: the first task that ends badly ends the step",
    "wait": "rule: tasks that outlive the first good end by so many seconds are killed",
    "export": "rule: tasks have the environment of the batch script",
    "label": "rule: each line of the log says which task wrote it",
}


class _Origins:
    """Where the values of one plan were written."""

    def __init__(self, plan: Plan, recipe: Document, profile: Document) -> None:
        self._plan, self._recipe, self._profile = plan, recipe, profile
        self._row = plan.profile.queues.index(plan.queue)

    def of(self, line: str) -> str:
        """The origin of a line of the script; empty for comments and what always stands there."""
        if line.startswith("#SBATCH --"):
            return self._directive(line.removeprefix("#SBATCH --").partition("=")[0])
        if line.startswith("export "):
            return self._variable(line.removeprefix("export ").partition("=")[0])
        if line.startswith("type module "):
            return "rule: cron and other shells without login have no `module`"
        if line == "module purge":
            return "rule: what the submitting shell has loaded does not count"
        if line.startswith("module load "):
            mine = line.removeprefix("module load ") in self._plan.profile.modules
            return self._from_profile("modules") if mine else self._from_profile("container", "modules")
        return "computed: the interpreter and the run folder" if line.startswith("exec ") else ""

    def of_step(self, argv: Sequence[str]) -> list[Line]:
        """Each part of the training srun with its origin."""
        *options, shell, script = argv[1:]
        own = len(options) - len(self._plan.profile.tasks.srun_options)
        lines = []
        for index, option in enumerate(options):
            name = option.lstrip("-").partition("=")[0]
            known = {
                "nodes": self._from_recipe("resources", "nodes"),
                "ntasks-per-node": self._tasks_per_node(),
                "cpus-per-task": self._from_profile("tasks", "cpus_per_task"),
                **_SRUN,
            }
            origin = known.get(name, "") if index < own else self._from_profile("tasks", "srun_options")
            lines.append(Line(f"srun {option}", origin))
        return [*lines, Line(f"srun {shell} {script}", "computed: the run folder")]

    def _tasks_per_node(self) -> str:
        tasks = (
            self._from_recipe("resources", "tasks_per_node")
            if self._plan.recipe.resources.tasks_per_node
            else self._from_profile("tasks", "tasks_per_node")
        )
        return f"{tasks}; {self._from_profile('tasks', 'launcher')}"

    def _directive(self, option: str) -> str:
        plan = self._plan
        named = plan.recipe.resources.queue is not None
        chosen = self._from_recipe("resources", "queue") if named else "rule: the first production row that fits"
        known = {
            "partition": f"{self._from_profile('queues', self._row, 'partition')}; {chosen}",
            "qos": f"{self._from_profile('queues', self._row, 'qos')}; {chosen}",
            "account": self._from_profile("account", "name"),
            "nodes": self._from_recipe("resources", "nodes")
            + (f" + {self._from_recipe('resources', 'spares')}" if plan.recipe.resources.spares else ""),
            "ntasks-per-node": self._tasks_per_node(),
            "cpus-per-task": self._from_profile("tasks", "cpus_per_task"),
            "gres": self._from_profile("request", "gpus"),
            "gpus-per-node": self._from_profile("request", "gpus"),
            "mem": self._from_profile("request", "memory"),
            "exclusive": self._from_profile("request", "exclusive"),
            "time": self._from_recipe("resources", "walltime"),
            "signal": self._from_profile("signals", "lead"),
            "mail-type": self._from_profile("mail"),
            "mail-user": self._from_profile("mail"),
            **_RULES,
        }
        given = {item.lstrip("-").partition("=")[0] for item in plan.profile.request.options}
        return self._from_profile("request", "options") if option in given else known.get(option, "")

    def _variable(self, name: str) -> str:
        plan = self._plan
        if name in plan.recipe.environment:
            theirs = plan.environment.get(name)
            instead = "" if theirs is None else f"; in place of {theirs.value}: {theirs.reason}"
            return self._from_recipe("environment", name) + instead
        for workload in reversed(plan.recipe.workloads):
            if name in plan.profile.workloads.get(workload, {}):
                return self._cited(name, self._from_profile("workloads", workload, name))
        if name in plan.profile.environment:
            return self._cited(name, self._from_profile("environment", name))
        if name in plan.environment:
            return f"rule: {plan.environment[name].reason}; {self._from_profile('internet', 'compute')}"
        if name in _OURS:
            return _OURS[name]
        return self._from_recipe("tracking", _TRACKING[name]) if name in _TRACKING else "computed"

    def _cited(self, name: str, origin: str) -> str:
        source = self._plan.environment[name].source
        return f"{origin} (from {source})" if source else origin

    def _from_profile(self, *key: str | int) -> str:
        return f"profile {_shown(self._profile.origin(key))}" if _written(self._profile, key) else _default(key)

    def _from_recipe(self, *key: str | int) -> str:
        return f"recipe {_shown(self._recipe.origin(key))}" if _written(self._recipe, key) else _default(key)


def _written(document: Document, key: Sequence[str | int]) -> bool:
    """Whether somebody wrote this value: what nobody wrote has no line of its own."""
    values: Any = document.values
    for part in key:
        known = values if isinstance(values, dict) else range(len(values)) if isinstance(values, list) else ()
        if part not in known:
            return False
        values = values[part]
    return True


def _default(key: Sequence[str | int]) -> str:
    return f"default: {'.'.join(map(str, key))}, which nobody wrote"


def _shown(origin: Origin) -> str:
    """An origin whose file opens from here."""
    return str(origin) if origin.line is None else f"{catalog.path_from_here(Path(origin.source))}:{origin.line}"


def explain(recipe: str, cluster: str | None, *, set_values: Sequence[str] = ()) -> list[Line]:
    """Each line of the batch script, then each option of the srun that the attempt starts the training by, with its
    origin: recipe or profile with file and line, a setting, or a rule."""
    cluster = cluster or this_cluster()
    plan = make_plan(recipe, cluster, set_values=set_values)
    for_recipe, for_cluster = split_settings(set_values)
    origins = _Origins(
        plan,
        catalog.recipe_document(recipe, for_recipe, clusters=names_of(cluster, plan.profile)),
        catalog.profile_document(cluster, for_cluster),
    )
    script, srun = _rendered(plan)
    lines = [Line(line, origins.of(line)) for line in script.splitlines() if line.strip()]
    return [*lines, *origins.of_step(srun)]


def diff(recipe: str, first: str, second: str, *, set_values: Sequence[str] = ()) -> list[Difference]:
    """What differs between the batch scripts and the training sruns of two clusters, in the order of the first."""
    one, other = (_parts(*_rendered(make_plan(recipe, cluster, set_values=set_values))) for cluster in (first, second))
    names = [*one, *(name for name in other if name not in one)]
    return [
        Difference(name, one.get(name, ""), other.get(name, "")) for name in names if one.get(name) != other.get(name)
    ]


def _rendered(plan: Plan) -> tuple[str, tuple[str, ...]]:
    """The batch script, and the argv of the training srun."""
    run_dir: Path = folder.roots()[0].absolute() / folder.check_name(plan.name)
    launch, _, bundle = render_bundle(plan, run_dir)
    return bundle.files["job.sbatch"], shown_step(launch, run_dir)


def _parts(script: str, srun: Sequence[str]) -> dict[str, str]:
    parts: dict[str, str] = {}
    for line in script.splitlines():
        if line.startswith("#SBATCH "):
            name, _, value = line.removeprefix("#SBATCH ").partition("=")
            parts[name] = value or "given"
        elif line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            parts[name] = value.partition("  # ")[0]
        elif line.startswith("module load "):
            parts["modules"] = f"{parts.get('modules', '')} {line.removeprefix('module load ')}".strip()
        elif line.startswith("exec "):
            parts["exec"] = line.removeprefix("exec ")
    for option in srun[1:-2]:
        name, _, value = option.partition("=")
        if name != "--nodelist":  # stand-ins
            parts[f"srun {name}"] = value or "given"
    return parts
