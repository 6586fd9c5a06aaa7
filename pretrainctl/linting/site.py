"""What the profile of a cluster knows that a script does not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction

from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Hit, Rule, source
from pretrainctl.schema import ClusterProfile, Queue
from pretrainctl.units import parse_size, show_size, slurm_time

__all__ = ["RULES"]

_DEFAULT_QOS = "normal"
"""The QoS that Slurm makes by itself, and gives to jobs that name none. Source: sacctmgr(1)."""


def _value(batch: Batch, name: str) -> str | None:
    return batch.options[name].value if name in batch.options else None


def _last_line(batch: Batch) -> int:
    """Where a directive could be added."""
    return max((directive.line for directive in batch.script.header.directives), default=1)


def _rows(batch: Batch, profile: ClusterProfile) -> tuple[Queue, ...]:
    """The queues that the script may mean: without a QoS those that have none, where there are any."""
    partition, qos = _value(batch, "partition"), _value(batch, "qos")
    rows = tuple(row for row in profile.queues if partition is None or row.partition in (None, *partition.split(",")))
    if qos is None:
        return tuple(row for row in rows if row.qos is None) or rows
    return tuple(row for row in rows if qos == (row.qos or _DEFAULT_QOS))


def _yours(profile: ClusterProfile, rows: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """Those that your allocation may use, as far as the profile says what you have."""
    return tuple(row for row in rows if not profile.families or row.family in (None, *profile.families))


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
    rows = _yours(profile, _rows(batch, profile)) if profile else ()
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
    if qos and any(row.qos is None for row in profile.queues):
        qos.add(_DEFAULT_QOS)
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


def _queue_of_others(batch: Batch) -> Iterator[Hit]:
    """A queue for other allocations than yours. Source: the profile's queues and families."""
    profile = batch.profile
    rows = _rows(batch, profile) if profile else ()
    given = batch.options.get("qos") or batch.options.get("partition")
    if profile is None or given is None or not rows or _yours(profile, rows):
        return
    families, may = ", ".join(sorted({str(row.family) for row in rows})), _yours(profile, profile.queues)
    yield (
        given.line,
        (
            f"queue {', '.join(row.name for row in rows)} is for allocations of family {families}, and the profile's "
            f"families are {', '.join(profile.families)} ({source(profile, rows[0])})"
        ),
        f"take one of yours: {', '.join(row.name for row in may) or 'none is known'}",
    )


def _over_limit(batch: Batch) -> Iterator[Hit]:
    """More nodes or time than any queue takes that the script may mean. Source: the profile's queues."""
    profile = batch.profile
    rows = _rows(batch, profile) if profile else ()
    if profile is None or not rows:
        return
    reasons = [(row, _too_much(batch, profile, row)) for row in rows]
    if all(reason for _, reason in reasons):
        said = [f"queue {row.name} {' and '.join(reason.values())} ({source(profile, row)})" for row, reason in reasons]
        option = next(name for name in next(iter(reasons[-1][1])).split("|") if name in batch.options)
        yield batch.options[option].line, "; ".join(said), "ask for less, or for another queue"


def _too_much(batch: Batch, profile: ClusterProfile, row: Queue) -> dict[str, str]:
    """By the options that may say it, what the row does not take."""
    node, given, seconds = profile.node, batch.allocation.nodes, batch.seconds
    fewest = batch.allocation.fewest_nodes(node.threads or node.cpus, node.gpus)
    found = {}
    if given is not None and given[1] < row.min_nodes:
        found["nodes|ntasks"] = f"takes at least {row.min_nodes} nodes, not {given[1]}"
    if fewest is not None and isinstance(row.max_nodes, int) and fewest > row.max_nodes:
        found["nodes|ntasks|gpus|gpus-per-task"] = f"takes at most {row.max_nodes} nodes, not {fewest}"
    if seconds is not None and isinstance(row.max_walltime, int) and seconds > row.max_walltime:
        asked = "a job without a limit" if seconds == math.inf else slurm_time(seconds)
        found["time"] = f"takes at most {slurm_time(row.max_walltime)}, not {asked}"
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
    cpus, tasks, there = batch.allocation.cpus_per_node, batch.tasks_per_node or 1, profile.node
    if cpus is not None and cpus > (there.threads or there.cpus):
        by_gpu = "cpus-per-gpu" in batch.options and "cpus-per-task" not in batch.options
        share = "cpus-per-gpu" if by_gpu else "cpus-per-task"
        times = (batch.gpus or 1) if by_gpu else tasks
        yield (
            _line(batch, share, "ntasks-per-node", "ntasks"),
            (
                f"{times} {'GPUs' if by_gpu else 'tasks'} x {cpus // times} CPUs are more than the "
                f"{there.threads or there.cpus} CPUs of a node ({source(profile, there)})"
            ),
            f"#SBATCH --{share}={max(1, there.cpus // times)}",
        )
    asked = batch.allocation.gpu_option
    if asked and batch.gpus is not None and batch.gpus > there.gpus:
        yield (
            batch.options[asked].line,
            f"{batch.gpus} GPUs are more than the {there.gpus} of a node ({source(profile, there)})",
            f"ask for {there.gpus} at most",
        )
    memory, most = _memory_of_a_node(batch, cpus or 1), _memory_there(profile)
    if memory is not None and most is not None and memory[1] > most:
        name, wanted = memory
        yield (
            batch.options[name].line,
            (
                f"--{name}={batch.options[name].value} is {show_size(wanted)} a node, more than the {show_size(most)} "
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


def _line(batch: Batch, *names: str) -> int:
    """Where the first of these options stands that is given."""
    return next((batch.options[name].line for name in names if name in batch.options), 1)


def _threads_meant(batch: Batch) -> bool:
    """Whether the script itself says that it counts hardware threads."""
    return (batch.number("threads-per-core") or 1) > 1 or "multithread" in (_value(batch, "hint") or "").split(",")


def _cores_or_threads(batch: Batch) -> Iterator[Hit]:
    """More CPUs than a node has cores, no more than it has threads, where sources disagree which Slurm counts.

    Source: the profile's node.threads.
    """
    profile, cpus = batch.profile, batch.allocation.cpus_per_node
    node = profile.node if profile else None
    if profile is None or node is None or node.threads is None or _threads_meant(batch):
        return
    ratio, asked = profile.request.cpus_per_gpu, batch.allocation.cpus_per_gpu
    many = cpus is not None and node.cpus < cpus <= node.threads
    share = ratio is not None and asked == Fraction(ratio * node.threads, node.cpus)
    if share or (many and (ratio is None or asked is None)):
        what = f"{cpus} CPUs a node" if many else f"{asked} CPUs a GPU"
        yield (
            _line(batch, "cpus-per-task", "cpus-per-gpu", "ntasks-per-node", "ntasks", "gres"),
            (
                f"{what}: right only where Slurm counts the {node.threads} threads of a node, not its {node.cpus} "
                f"cores, and sources disagree ({source(profile, node)})"
            ),
            "see CPUTot in `scontrol show node`; --threads-per-core=2 says that threads are meant",
        )


def _cpus_per_gpu(batch: Batch) -> Iterator[Hit]:
    """Sites that give CPUs by the GPU: another ratio is refused, or waits for ever. Source: the profile's request.

    Whole nodes bring their CPUs, so with --exclusive fewer are not judged: published scripts ask so.
    """
    profile, job = batch.profile, batch.allocation
    ratio = profile.request.cpus_per_gpu if profile else None
    if profile is None or ratio is None or not job.gpu_option or (job.gpus_per_node or 0) > profile.node.gpus:
        return
    asked, most, node = job.cpus_per_gpu, job.most_cpus_per_gpu, profile.node
    if asked is None and most is not None and most < ratio:
        asked = most  # on more nodes it is less still
    if asked is None or ("exclusive" in job.options and asked < ratio):
        return
    if asked in (ratio, Fraction(ratio * (node.threads or node.cpus), node.cpus)):
        return
    by_gpu = "cpus-per-gpu" in job.options and "cpus-per-task" not in job.options
    fix = Fraction(ratio) if by_gpu else ratio * (job.cpus_per_task or 1) / asked
    option = "cpus-per-gpu" if by_gpu else "cpus-per-task"
    yield (
        _line(batch, option, "gres", "gpus-per-node", "gpus", "gpus-per-task"),
        (
            f"{_plain(asked)} {'CPU' if asked == 1 else 'CPUs'} beside each GPU: {profile.name} wants {ratio} "
            f"({source(profile, profile.request)})"
        ),
        f"#SBATCH --{option}={fix}" if fix.denominator == 1 else f"ask for {ratio} CPUs with each GPU",
    )


def _plain(number: Fraction) -> str:
    return str(number) if number.denominator == 1 else f"{float(number):.3g}"


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
    Rule("queue-of-others", "error", _queue_of_others),
    Rule("over-limit", "error", _over_limit),
    Rule("memory-not-here", "warning", _memory_not_here),
    Rule("too-large-for-a-node", "error", _too_large_for_a_node),
    Rule("cores-or-threads", "warning", _cores_or_threads),
    Rule("cpus-per-gpu", "error", _cpus_per_gpu),
    Rule("launcher-not-here", "error", _launcher_not_here),
)
"""What the site refuses."""
