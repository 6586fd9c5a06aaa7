"""What the profile of a cluster knows that a script does not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Hit, Rule, source
from pretrainctl.schema import ClusterProfile, Queue
from pretrainctl.units import parse_size, show_size, slurm_time

__all__ = ["RULES"]


def _value(batch: Batch, name: str) -> str | None:
    return batch.options[name].value if name in batch.options else None


def _last_line(batch: Batch) -> int:
    """Where a directive could be added."""
    return max((directive.line for directive in batch.script.directives), default=1)


def _rows(batch: Batch, profile: ClusterProfile) -> tuple[Queue, ...]:
    """The queues that the script may mean: without a QoS those that have none, where there are any."""
    partition, qos = _value(batch, "partition"), _value(batch, "qos")
    rows = tuple(row for row in profile.queues if partition is None or row.partition in (None, *partition.split(",")))
    if qos is None:
        return tuple(row for row in rows if row.qos is None) or rows
    return tuple(row for row in rows if row.qos == qos)


def _missing_account(batch: Batch) -> Iterator[Hit]:
    """The site refuses jobs without an account. Source: the profile's account rule."""
    profile = batch.profile
    if profile and profile.account.required and "account" not in batch.options:
        name = profile.account.name or "NAME"
        yield (
            _last_line(batch),
            f"{profile.name} refuses jobs without an account ({source(profile, profile.account)})",
            f"#SBATCH --account={name}",
        )


def _missing_partition(batch: Batch) -> Iterator[Hit]:
    """A job without `--partition` goes to the default one, which may have no GPUs. Source: default_partition there."""
    profile = batch.profile
    if profile is None or profile.default_partition == "unknown" or "partition" in batch.options:
        return
    rows = tuple(row for row in _rows(batch, profile) if row.partition is not None)
    if rows and profile.default_partition not in {row.partition for row in rows}:
        yield (
            _last_line(batch),
            (
                f"no --partition: the job goes to {profile.default_partition}, the default of {profile.name}, where "
                f"no queue for training is ({source(profile)})"
            ),
            f"#SBATCH --partition={rows[0].partition}",
        )


def _missing_qos(batch: Batch) -> Iterator[Hit]:
    """Every queue of the site has a QoS, so one must be given. Source: the profile's queues."""
    profile = batch.profile
    rows = _rows(batch, profile) if profile else ()
    if profile and rows and "qos" not in batch.options and all(row.qos for row in rows):
        known = ", ".join(dict.fromkeys(str(row.qos) for row in rows))
        yield (
            _last_line(batch),
            f"no --qos, and each queue of {profile.name} that fits has one: {known} ({source(profile, rows[0])})",
            f"#SBATCH --qos={rows[0].qos}",
        )


def _unknown_queue(batch: Batch) -> Iterator[Hit]:
    """A partition or QoS that no queue of the profile has, or not together. Source: the profile's queues."""
    profile = batch.profile
    if profile is None:
        return
    partitions = {row.partition for row in profile.queues if row.partition}
    qos = {row.qos for row in profile.queues if row.qos}
    for name, known in (("partition", partitions), ("qos", qos)):
        given = batch.options.get(name)
        if given and known and not known & set(given.value.split(",")):
            other = "qos" if name == "partition" and given.value in qos else "partition"
            swapped = given.value in (qos if name == "partition" else partitions)
            yield (
                given.line,
                (
                    f"{profile.name} has no {name} {given.value!r} that the profile knows, only "
                    f"{', '.join(sorted(known))} ({source(profile, profile.queues[0])}); its limits were not checked"
                ),
                f"#SBATCH --{other}={given.value}" if swapped else f"#SBATCH --{name}={min(known)}",
            )

    if not _rows(batch, profile) and _known(batch, "partition", partitions) and _known(batch, "qos", qos):
        yield (
            batch.options["qos"].line,
            (
                f"no queue of {profile.name} has partition {_value(batch, 'partition')} and QoS {_value(batch, 'qos')} "
                f"({source(profile, profile.queues[0])}); its limits were not checked"
            ),
            "take partition and QoS of one queue",
        )


def _known(batch: Batch, name: str, known: set[str]) -> bool:
    return bool(known & set((_value(batch, name) or "").split(",")))


def _over_limit(batch: Batch) -> Iterator[Hit]:
    """More nodes or time than any queue takes that the script may mean. Source: the profile's queues."""
    profile = batch.profile
    rows = _rows(batch, profile) if profile else ()
    if profile is None or not rows:
        return
    reasons = [(row, _too_much(batch, row)) for row in rows]
    if all(reason for _, reason in reasons):
        said = [f"queue {row.name} {' and '.join(reason.values())} ({source(profile, row)})" for row, reason in reasons]
        yield batch.options[next(iter(reasons[-1][1]))].line, "; ".join(said), "ask for less, or for another queue"


def _too_much(batch: Batch, row: Queue) -> dict[str, str]:
    """By option, what the row does not take."""
    nodes, seconds = batch.number("nodes"), batch.seconds
    found = {}
    if nodes is not None and nodes < row.min_nodes:
        found["nodes"] = f"takes at least {row.min_nodes} nodes, not {nodes}"
    if nodes is not None and isinstance(row.max_nodes, int) and nodes > row.max_nodes:
        found["nodes"] = f"takes at most {row.max_nodes} nodes, not {nodes}"
    if seconds is not None and isinstance(row.max_walltime, int) and seconds > row.max_walltime:
        found["time"] = f"takes at most {slurm_time(row.max_walltime)}, not {slurm_time(seconds)}"
    return found


def _memory_not_here(batch: Batch) -> Iterator[Hit]:
    """Sites that give whole nodes, or count no memory, want no memory option. Source: the profile's request.memory."""
    profile = batch.profile
    if profile is None or profile.request.memory != "omit":
        return
    for name in ("mem", "mem-per-cpu", "mem-per-gpu"):
        if name in batch.options:
            yield (
                batch.options[name].line,
                f"{profile.name} wants no --{name} ({source(profile, profile.request)})",
                "drop the line",
            )


def _too_large_for_a_node(batch: Batch) -> Iterator[Hit]:
    """More CPUs, GPUs or memory than a node has: Slurm refuses, or never starts it. Source: the profile's node."""
    profile = batch.profile
    if profile is None:
        return
    tasks, cpus = batch.tasks_per_node or 1, batch.number("cpus-per-task") or 1
    given = batch.options.get("cpus-per-task") or batch.options.get("ntasks-per-node")
    if given and tasks * cpus > profile.node.cpus:
        yield (
            given.line,
            (
                f"{tasks} tasks x {cpus} CPUs are more than the {profile.node.cpus} CPUs of a node "
                f"({source(profile, profile.node)})"
            ),
            f"#SBATCH --cpus-per-task={max(1, profile.node.cpus // tasks)}",
        )
    asked = batch.options.get("gpus-per-node") or batch.options.get("gres")
    if asked and batch.gpus is not None and batch.gpus > profile.node.gpus:
        yield (
            asked.line,
            f"{batch.gpus} GPUs are more than the {profile.node.gpus} of a node ({source(profile, profile.node)})",
            f"ask for {profile.node.gpus} at most",
        )
    memory, there = _memory_of_a_node(batch, tasks * cpus), _memory_there(profile)
    if memory is not None and there is not None and memory[1] > there:
        name, wanted = memory
        yield (
            batch.options[name].line,
            (
                f"--{name}={batch.options[name].value} is {show_size(wanted)} a node, more than the {show_size(there)} "
                f"that a job can have there ({source(profile, profile.node)})"
            ),
            "drop the line" if profile.request.memory == "omit" else f"#SBATCH --mem={profile.request.memory}",
        )


def _memory_of_a_node(batch: Batch, cpus: int) -> tuple[str, int] | None:
    """The memory option of the script, and the bytes of each node that it asks for. Plain numbers are MiB."""
    for name, times in (("mem", 1), ("mem-per-cpu", cpus), ("mem-per-gpu", batch.gpus or 1)):
        given = batch.options.get(name)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", given.value, re.IGNORECASE) if given else None
        if match:
            return name, times * parse_size(match[1] + (match[2] or "M"))
    return None


def _memory_there(profile: ClusterProfile) -> int | None:
    """What Slurm counts; where that is unknown the node's own, unless the site counts none."""
    node = profile.node
    counts = profile.request.memory != "omit"
    known = node.memory if node.slurm_memory == "unknown" and counts else node.slurm_memory
    return None if known == "unknown" else known


def _cpus_per_gpu(batch: Batch) -> Iterator[Hit]:
    """Sites that give CPUs by the GPU: another ratio is refused, or waits for ever. Source: the profile's request."""
    profile, cpus = batch.profile, batch.number("cpus-per-task")
    ratio = profile.request.cpus_per_gpu if profile else None
    if profile is None or ratio is None or cpus is None or not batch.gpus:
        return
    asked, due = (batch.tasks_per_node or 1) * cpus, ratio * batch.gpus
    if asked != due:
        yield (
            batch.options["cpus-per-task"].line,
            (
                f"{asked} CPUs beside {batch.gpus} GPUs: {profile.name} wants {ratio} a GPU "
                f"({source(profile, profile.request)})"
            ),
            f"#SBATCH --cpus-per-task={due // (batch.tasks_per_node or 1)}",
        )


def _launcher_not_here(batch: Batch) -> Iterator[Hit]:
    """Where srun alone starts tasks, mpirun starts none, or all on one node. Source: the profile's tasks.mpiexec."""
    profile = batch.profile
    if profile is None or profile.tasks.mpiexec != "no":
        return
    inside = {launch.command for launch in batch.launches}
    for command, words in batch.programs:
        name = words[0].rsplit("/", 1)[-1]
        if name in ("mpirun", "mpiexec", "orterun") and command not in inside:
            yield (
                command.line,
                f"{name} starts no tasks on {profile.name} ({source(profile, profile.tasks)})",
                f"srun, with --ntasks and --cpus-per-task, in place of {name}",
            )


RULES = (
    Rule("missing-account", "error", _missing_account),
    Rule("missing-partition", "error", _missing_partition),
    Rule("missing-qos", "error", _missing_qos),
    Rule("unknown-queue", "warning", _unknown_queue),
    Rule("over-limit", "error", _over_limit),
    Rule("memory-not-here", "warning", _memory_not_here),
    Rule("too-large-for-a-node", "error", _too_large_for_a_node),
    Rule("cpus-per-gpu", "error", _cpus_per_gpu),
    Rule("launcher-not-here", "error", _launcher_not_here),
)
"""What the site refuses."""
