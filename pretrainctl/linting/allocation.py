"""What a script asks of Slurm in numbers, as far as its options alone decide: nodes, tasks, CPUs, GPUs.

Source of how they work together: sbatch(1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

__all__ = ["Allocation", "node_counts"]

_DIGITS = r"\d{1,12}"
"""More are no number of anything that Slurm has."""
_SUFFIX = {"": 1, "k": 1 << 10, "m": 1 << 20}


def node_counts(value: str) -> tuple[int, int] | None:
    """Fewest and most nodes of a `--nodes` value (`4`, `2-8`, `1k`, `64,128`, `1-15:4`); None where it is none."""
    found = []
    for part in value.lower().split(","):
        match = re.fullmatch(rf"({_DIGITS})([km]?)(?:-({_DIGITS})([km]?)(?::\d+)?)?", part.strip())
        if match is None:
            return None
        low = int(match[1]) * _SUFFIX[match[2]]
        found += [low, int(match[3]) * _SUFFIX[match[4]] if match[3] else low]
    return min(found), max(found)


@dataclass(frozen=True)
class Allocation:
    """The numbers of a job; None where the script does not say, or Slurm decides."""

    options: Mapping[str, str]
    """Options of the script by their long names."""

    def number(self, name: str) -> int | None:
        """The value of an option as a whole number; None where it is not one."""
        value = self.options.get(name, "")
        return int(value) if re.fullmatch(_DIGITS, value) else None

    @cached_property
    def nodes(self) -> tuple[int, int] | None:
        """Fewest and most nodes."""
        if "nodes" in self.options:
            return node_counts(self.options["nodes"])
        tasks, each = self.number("ntasks"), self.number("ntasks-per-node")
        if tasks and each:
            return -(-tasks // each), -(-tasks // each)
        return (1, 1) if tasks == 1 else None

    @cached_property
    def exact_nodes(self) -> int | None:
        """Nodes, where only one number of them will do."""
        return self.nodes[0] if self.nodes and self.nodes[0] == self.nodes[1] else None

    @cached_property
    def tasks(self) -> int | None:
        """Tasks of the job."""
        if "ntasks" in self.options:
            return self.number("ntasks")
        each, nodes = self.number("ntasks-per-node"), self.exact_nodes
        gpus, of_task, of_gpu = self.gpus, self._gpus("gpus-per-task"), self.number("ntasks-per-gpu")
        if each is not None:
            return each * nodes if nodes else None
        if of_gpu is not None:
            return of_gpu * gpus if gpus is not None else None
        if of_task is not None:
            return gpus // of_task if gpus is not None and of_task else None
        return None if self._tasks_of_threads else nodes

    @cached_property
    def _tasks_of_threads(self) -> bool:
        """Whether options of sockets, cores and threads may decide how many tasks there are."""
        shape = {"threads-per-core", "extra-node-info", "ntasks-per-core", "ntasks-per-socket"}
        return not {"ntasks", "ntasks-per-node"} & self.options.keys() and bool(shape & self.options.keys())

    @cached_property
    def tasks_per_node(self) -> int | None:
        """Tasks of the node that has most."""
        each, nodes, tasks = self.number("ntasks-per-node"), self.exact_nodes, self.tasks
        if tasks and nodes:
            return -(-tasks // nodes)
        if each is None and self.number("ntasks-per-gpu") is not None and self.gpus_per_node is not None:
            return int(self.options["ntasks-per-gpu"]) * self.gpus_per_node
        return each if "ntasks" not in self.options else None

    @cached_property
    def gpus(self) -> int | None:
        """GPUs of the job."""
        total = self._gpus("gpus")
        if total is not None:
            return total
        each, of_task = self._each_node(), self._gpus("gpus-per-task")
        if each is not None:
            return each * self.exact_nodes if self.exact_nodes else None
        tasks = self.number("ntasks")
        return of_task * tasks if of_task is not None and tasks is not None else None

    @cached_property
    def gpus_per_node(self) -> int | None:
        """GPUs of the node that has most."""
        each, of_task = self._each_node(), self._gpus("gpus-per-task")
        if each is not None:
            return each
        if self.gpus is not None and self.exact_nodes:
            return -(-self.gpus // self.exact_nodes)
        return of_task * (self.number("ntasks-per-node") or 1) if of_task is not None else None

    @cached_property
    def gpu_option(self) -> str | None:
        """The option that asks for GPUs."""
        names = ("gpus-per-node", "gres", "gpus", "gpus-per-task", "gpus-per-socket")
        return next((name for name in names if name in self.options and self._gpus(name) != 0), None)

    @cached_property
    def cpus_per_task(self) -> int | None:
        """CPUs of a task: 1 where the script says nothing of CPUs, None where it says it otherwise."""
        if "cpus-per-task" in self.options:
            return self.number("cpus-per-task")
        return None if {"cpus-per-gpu", "mincpus", "overcommit"} & self.options.keys() else 1

    @cached_property
    def cpus_per_node(self) -> int | None:
        """CPUs of the node that has most, at least."""
        of_gpu, gpus = self.number("cpus-per-gpu"), self.gpus_per_node
        if of_gpu is not None and "cpus-per-task" not in self.options:
            return of_gpu * gpus if gpus is not None else of_gpu
        cpus = self.cpus_per_task
        return None if cpus is None or "overcommit" in self.options else cpus * (self.tasks_per_node or 1)

    @cached_property
    def cpus_per_gpu(self) -> Fraction | None:
        """CPUs beside each GPU; None where the number of nodes, which Slurm chooses, decides it."""
        cpus, of_task, of_gpu = self.cpus_per_task, self._gpus("gpus-per-task"), self.number("ntasks-per-gpu")
        if "cpus-per-gpu" in self.options and "cpus-per-task" not in self.options:
            given = self.number("cpus-per-gpu")
            return Fraction(given) if given else None
        if cpus is None or "overcommit" in self.options:
            return None
        if of_task:
            return Fraction(cpus, of_task)
        if of_gpu:
            return Fraction(cpus * of_gpu)
        if self.tasks is not None and self.gpus:
            return Fraction(cpus * self.tasks, self.gpus)
        return None

    @cached_property
    def most_cpus_per_gpu(self) -> Fraction | None:
        """CPUs beside each GPU where all tasks come on one node, which they need not; fewer on more nodes."""
        tasks = self.number("ntasks") if "ntasks" in self.options else self.number("ntasks-per-node") or 1
        each, cpus = self._each_node(), self.cpus_per_task
        known = each and cpus and tasks and "overcommit" not in self.options and not self._tasks_of_threads
        return Fraction(cpus * tasks, each) if known and each and cpus and tasks else None

    def fewest_nodes(self, cpus: int, gpus: int) -> int | None:
        """Nodes that the job needs at least, where a node has so many CPUs and GPUs; None where it does not say."""
        if self.nodes:
            return self.nodes[0]
        tasks, wanted = self.tasks, self.gpus
        room = cpus // (self.cpus_per_task or 1)
        by_cpus = -(-tasks // room) if tasks and room and "overcommit" not in self.options else None
        by_gpus = -(-wanted // gpus) if wanted and gpus else None
        return max((each for each in (by_cpus, by_gpus) if each), default=None)

    def _each_node(self) -> int | None:
        given = self._gpus("gpus-per-node")
        return self._gpus("gres") if given is None else given

    def _gpus(self, name: str) -> int | None:
        """GPUs that an option asks for, of all types: `4`, `a100:4`, in `--gres` `gpu`, `gpu:a100:4` among others."""
        if name not in self.options:
            return None
        total, found = 0, False
        for part in re.sub(r"\([^)]*\)", "", self.options[name]).split(","):
            kind = re.fullmatch(r"(?:gres[:/])?gpu(?:[:=](.*))?", part) if name == "gres" else None
            if name == "gres" and kind is None:
                continue
            match = re.fullmatch(rf"(?:[^:=]*[:=])?({_DIGITS})|[A-Za-z_][^:=]*", (kind[1] or "1") if kind else part)
            if match is None or (match[1] is None and name != "gres"):
                return None
            total, found = total + int(match[1] or 1), True
        return total if found else None
