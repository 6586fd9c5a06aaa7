"""The queues of a cluster: whether one takes the job, and which."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Hit, Rule, source
from pretrainctl.schema import ClusterProfile, Queue
from pretrainctl.units import slurm_time

__all__ = ["RULES"]

_DEFAULT_QOS = "normal"
"""The QoS that Slurm makes by itself, and gives to jobs that name none. Source: sacctmgr(1)."""


def _rows(batch: Batch, profile: ClusterProfile) -> tuple[Queue, ...]:
    """The queues that the script may mean: without a QoS those that have none, where there are any."""
    partition, qos = batch.value("partition"), batch.value("qos")
    rows = tuple(row for row in profile.queues if partition is None or row.partition in (None, *partition.split(",")))
    if qos is None:
        return tuple(row for row in rows if row.qos is None) or rows
    return tuple(row for row in rows if qos == (row.qos or _DEFAULT_QOS))


def _yours(profile: ClusterProfile, rows: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """Those that your allocation may use, as far as the profile says what you have."""
    return tuple(row for row in rows if not profile.families or row.family in (None, *profile.families))


def _missing_partition(batch: Batch) -> Iterator[Hit]:
    """A job without `--partition` goes to the default one, which may have no GPUs. Source: default_partition there."""
    profile = batch.profile
    if profile is None or profile.default_partition == "unknown" or "partition" in batch.options:
        return
    rows = tuple(row for row in _rows(batch, profile) if row.partition is not None)
    if rows and profile.default_partition not in {row.partition for row in rows}:
        yield (
            batch.last_line,
            (
                f"no --partition: the job goes to {profile.default_partition}, the default of {profile.name}, where "
                f"no queue for training is ({source(profile, None, 'default_partition')})"
            ),
            f"#SBATCH --partition={rows[0].partition}",
        )


def _gpus_from_default(batch: Batch) -> bool:
    """Whether the job asks for GPUs, by name, from the default partition, where no queue of the profile is."""
    profile, job = batch.profile, batch.allocation
    known = {row.partition for row in profile.queues if row.partition} if profile else set()
    default = profile.default_partition if profile and profile.default_partition not in known else None
    return bool(known and default and batch.value("partition") == default and (job.gpus or job.gpus_per_node))


def _partition_without_gpus(batch: Batch) -> Iterator[Hit]:
    """GPUs from the partition that jobs without one get, where no queue for training is. Source: default_partition."""
    profile, asked = batch.profile, batch.allocation.gpu_option
    if profile is None or asked is None or not _gpus_from_default(batch):
        return
    row = next(row for row in (*_yours(profile, profile.queues), *profile.queues) if row.partition)
    yield (
        batch.options["partition"].line,
        (
            f"--{asked}={batch.value(asked)} from {profile.default_partition}, the default of {profile.name}, where no "
            f"queue for training is ({source(profile, None, 'default_partition')})"
        ),
        f"#SBATCH --partition={row.partition}",
    )


def _missing_qos(batch: Batch) -> Iterator[Hit]:
    """Every queue of the site has a QoS, so one must be given. Source: the profile's queues."""
    profile = batch.profile
    rows = _yours(profile, _rows(batch, profile)) if profile else ()
    if profile and rows and "qos" not in batch.options and all(row.qos for row in rows):
        known = ", ".join(dict.fromkeys(str(row.qos) for row in rows))
        yield (
            batch.last_line,
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
        if name == "partition" and _gpus_from_default(batch):
            continue  # an error of its own
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
                f"no queue of {profile.name} has partition {batch.value('partition')} and QoS {batch.value('qos')} "
                f"({source(profile, profile.queues[0])}); its limits were not checked"
            ),
            "take partition and QoS of one queue",
        )


def _known(batch: Batch, name: str, known: set[str]) -> bool:
    return bool(known & set((batch.value(name) or "").split(",")))


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
    """Nodes or time that no queue takes that the script may mean. Source: the profile's queues."""
    profile = batch.profile
    rows = _rows(batch, profile) if profile else ()
    if profile is None or not rows:
        return
    excesses = [(row, _excesses(batch, profile, row)) for row in rows]
    if all(found for _, found in excesses):
        said = [
            f"queue {row.name} {' and '.join(each.reason for each in found)} ({source(profile, row)})"
            for row, found in excesses
        ]
        row, least = min(excesses, key=lambda each: len(each[1]))
        option = next(name for name in least[0].options if name in batch.options)
        ask = "ask for " + " and ".join(each.ask for each in least)
        if len(rows) > 1:
            ask += f" in queue {row.name}"
        yield batch.options[option].line, "; ".join(said), f"{ask}{_another_queue(batch, profile, rows)}"


@dataclass(frozen=True)
class _Excess:
    """What a queue does not take."""

    options: tuple[str, ...]
    """Those that may say it."""
    reason: str
    ask: str
    """What it takes."""


def _excesses(batch: Batch, profile: ClusterProfile, row: Queue) -> list[_Excess]:
    """What of the job the row does not take, as far as its limits are known."""
    node, given, seconds = profile.node, batch.allocation.nodes, batch.seconds
    fewest = batch.allocation.fewest_nodes(node.threads or node.cpus, node.gpus)
    found = []
    if given is not None and given[1] < row.min_nodes:
        reason = f"takes at least {row.min_nodes} nodes, not {given[1]}"
        found.append(_Excess(("nodes", "ntasks"), reason, f"{row.min_nodes} nodes or more"))
    if fewest is not None and isinstance(row.max_nodes, int) and fewest > row.max_nodes:
        options = ("nodes", "ntasks", "gpus", "gpus-per-task")
        reason = f"takes at most {row.max_nodes} nodes, not {fewest}"
        found.append(_Excess(options, reason, f"{row.max_nodes} nodes at most"))
    if seconds is not None and isinstance(row.max_walltime, int) and seconds > row.max_walltime:
        asked = "a job without a limit" if seconds == math.inf else slurm_time(seconds)
        reason = f"takes at most {slurm_time(row.max_walltime)}, not {asked}"
        found.append(_Excess(("time",), reason, f"{slurm_time(row.max_walltime)} at most"))
    return found


def _another_queue(batch: Batch, profile: ClusterProfile, rows: tuple[Queue, ...]) -> str:
    """The queue that takes the job as it is, and the options that name it; those whose limits are known first."""
    fits = [row for row in _yours(profile, profile.queues) if row not in rows and not _excesses(batch, profile, row)]
    if not fits:
        return ""
    row = min(fits, key=lambda row: (row.purpose == "debug", "unknown" in (row.max_nodes, row.max_walltime)))
    known = row.partition in (None, *(batch.value("partition") or "").split(","))
    words = [] if known else [f"--partition={row.partition}"]
    words += [f"--qos={row.qos}"] if row.qos else ["no --qos"] if "qos" in batch.options else []
    return f"; or take queue {row.name}, which takes it as it is: {' and '.join(words)}"


RULES = (
    Rule("missing-partition", "error", _missing_partition),
    Rule("partition-without-gpus", "error", _partition_without_gpus),
    Rule("missing-qos", "error", _missing_qos),
    Rule("unknown-queue", "warning", _unknown_queue),
    Rule("queue-of-others", "error", _queue_of_others),
    Rule("over-limit", "error", _over_limit),
)
"""What no queue takes."""
