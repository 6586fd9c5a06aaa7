"""Numbers that must agree: nodes, ranks and GPUs of the job, and what launchers and tasks are told of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pretrainctl.linting.allocation import Allocation
from pretrainctl.linting.batch import Batch, Launch
from pretrainctl.linting.findings import Hit, Rule, source
from pretrainctl.linting.launching import launches_per_node, option
from pretrainctl.linting.programs import launcher, python_script
from pretrainctl.linting.script import Command
from pretrainctl.linting.variables import settings

__all__ = ["RULES"]

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_NUMBER = re.compile(r"\d{1,9}")


@dataclass(frozen=True)
class _Start:
    """A training, as it is started on each of its nodes."""

    command: Command
    launch: Launch | None
    name: str
    """Its launcher; empty where tasks are the ranks."""
    arguments: tuple[str, ...]
    """The launcher's arguments."""
    each: int | None
    """Tasks on a node."""
    nodes: int | None

    def number(self, *names: str) -> int | None:
        """An option of the launcher's as a whole number, None where it is not one."""
        value = option(self.arguments, *names) or ""
        return int(value) if _NUMBER.fullmatch(value) else None

    @property
    def ranks(self) -> int | None:
        """Ranks on a node, as far as the script says."""
        if self.name == "torchrun":
            return self.number("nproc_per_node")
        if self.name == "deepspeed":
            return self.number("num_gpus")
        if self.name == "accelerate":
            total, machines = self.number("num_processes"), self.number("num_machines") or 1
            return total // machines if total and machines else None
        return self.each if not self.name else None


def _starts(batch: Batch) -> Iterator[_Start]:
    seen = set()
    for launch in batch.launches:
        seen.add(launch.command)
        if {"nodelist", "relative", "het-group", "multi-prog"} & launch.options.keys() or launch.opaque:
            continue
        for words in launch.tasks:
            found = launcher(words)
            if found or python_script(words):
                name, arguments = found or ("", ())
                yield _Start(
                    launch.command, launch, name, arguments, launches_per_node(batch, launch), _nodes(batch, launch)
                )
    for command, words in batch.programs:
        found = launcher(words)
        if command not in seen and found and not command.place.substitution:
            yield _Start(command, None, *found, 1, batch.allocation.exact_nodes)


def _nodes(batch: Batch, launch: Launch) -> int | None:
    given = launch.options.get("nodes")
    if given is not None:
        return int(given) if _NUMBER.fullmatch(given) else None
    if launch.options.get("ntasks") == "1":
        return 1
    return None if "ntasks" in launch.options else batch.allocation.exact_nodes


def _node_count_differs(batch: Batch) -> Iterator[Hit]:
    """A rendezvous waits for the nodes that it was told of. Source: torch/distributed/run.py, `--nnodes`.

    `--nnodes=LOW:HIGH` takes any number from LOW on.
    """
    for start in _starts(batch):
        if start.launch is None or start.nodes is None:
            continue
        shown = {"torchrun": "nnodes", "accelerate": "num_machines"}.get(start.name)
        told = option(start.arguments, shown) if shown else None
        match = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", told or "")
        if match is None or match[0] in ("1", "1:1"):
            continue
        low, high = int(match[1]), int(match[2] or match[1])
        if low > start.nodes or high < start.nodes:
            more = "it waits for the others in vain" if low > start.nodes else "the others are turned away"
            yield (
                start.command.line,
                f"--{shown}={told}, and srun starts {start.name} on {start.nodes} nodes: {more}",
                f"--{shown}=$SLURM_NNODES",
            )


def _gpus(batch: Batch, start: _Start) -> tuple[int, str] | None:
    """GPUs of a node, and where that is said; of a site only where a launcher starts a rank a GPU."""
    own = {
        name: value
        for name, value in (start.launch.options if start.launch else {}).items()
        if "gpu" in name or name == "gres"
    }
    if "gpus-per-task" in own or "ntasks-per-gpu" in own:
        return None
    asked = Allocation({**batch.allocation.options, **own}).gpus_per_node
    if asked is not None:
        return asked, f"the job asks for {asked} GPUs a node"
    profile = batch.profile
    if profile and profile.node.gpus > 0 and start.name:
        return (
            profile.node.gpus,
            f"{profile.name} has {profile.node.gpus} GPUs a node ({source(profile, profile.node)})",
        )
    return None


def _more_ranks_than_gpus(batch: Batch) -> Iterator[Hit]:
    """Each rank has a GPU of its own: NCCL refuses two on one, "Duplicate GPU detected". Source: NCCL's own words."""
    for start in _starts(batch):
        found, ranks = _gpus(batch, start), start.ranks
        if found and ranks and ranks > found[0] > 0 and not _on_cpus(start):
            yield (
                start.command.line,
                f"{ranks} ranks a node, and {found[1]}: a rank without its own ends with 'invalid device ordinal'",
                f"{found[0]} ranks a node",
            )


def _on_cpus(start: _Start) -> bool:
    words = " ".join(word for words in (start.launch.tasks if start.launch else (start.arguments,)) for word in words)
    return bool(re.search(r"(?i)\b(gloo|cpu|preproc\w*|tokeni[sz]e\w*|prepare\w*)\b", words))


def _world_size_differs(batch: Batch) -> Iterator[Hit]:
    """A rendezvous of env:// waits for WORLD_SIZE ranks. Source: torch.distributed, its variables.

    Torchrun sets it itself; a program may start more ranks than it is given tasks, where there is one task a node.
    """
    for start in _starts(batch):
        if start.name or start.launch is None or not start.each or not start.nodes:
            continue
        total = start.launch.options.get("ntasks") or ""
        tasks = int(total) if _NUMBER.fullmatch(total) else start.each * start.nodes
        for each in settings(batch, "WORLD_SIZE"):
            if each.command not in (None, start.command) or not each.sure or not _NUMBER.fullmatch(each.value):
                continue
            told = int(each.value)
            if told < tasks or (told > tasks and start.each > 1):
                what = "they wait for each other in vain" if told > tasks else "the others are turned away"
                yield (
                    each.line,
                    f"WORLD_SIZE={told}, and line {start.command.line} starts {tasks} ranks: {what}",
                    "WORLD_SIZE=$SLURM_NTASKS",
                )


def _too_few_visible(batch: Batch) -> Iterator[Hit]:
    """The ranks of a node see only the GPUs that are listed. Source: CUDA programming guide, CUDA_VISIBLE_DEVICES."""
    for start in _starts(batch):
        ranks = start.ranks
        known = [
            each
            for each in settings(batch, *_VISIBLE)
            if each.command == start.command or (each.command is None and each.line <= start.command.line)
        ]
        last = known[-1] if known else None
        if last is None or not last.sure or ranks is None or not re.fullmatch(r"\d+(,\d+)*", last.value):
            continue
        seen = last.value.count(",") + 1
        if ranks > seen:
            yield (
                last.line,
                f"{last.name}={last.value} shows {seen} GPU{'s' * (seen > 1)} to the {ranks} ranks of each node",
                "drop it: Slurm sets it for the GPUs of the job",
            )


RULES = (
    Rule("node-count-differs", "error", _node_count_differs),
    Rule("more-ranks-than-gpus", "warning", _more_ranks_than_gpus),
    Rule("world-size-differs", "error", _world_size_differs),
    Rule("too-few-visible", "error", _too_few_visible),
)
"""How many of each there are."""
