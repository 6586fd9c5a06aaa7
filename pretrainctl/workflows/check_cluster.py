"""Check a cluster: where its profile and the Slurm of this machine say different things. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pretrainctl import catalog
from pretrainctl.schema import ClusterProfile, Queue
from pretrainctl.slurm.client import Slurm
from pretrainctl.slurm.site import Partition, preemption
from pretrainctl.units import show_duration
from pretrainctl.workflows.reach import find_slurm_conf, slurm_at

__all__ = ["Finding", "check_cluster"]


@dataclass(frozen=True)
class Finding:
    """One value of a profile beside what the machine says."""

    place: str
    profile: str
    machine: str
    refused: bool = False
    """Whether jobs as the profile has them would be refused here."""


def check_cluster(cluster: str, slurm: Slurm | None = None) -> list[Finding]:
    """What differs, what the profile does not know and the machine says, and what preemption means here.

    Limits of a QoS are not in it: they may be narrower than those of its partition. MissingError where the
    sandbox is meant, and not up.
    """
    profile = catalog.load_profile(cluster)
    config, partitions = (slurm or slurm_at(find_slurm_conf(profile))).site()
    default = next((partition.name for partition in partitions.values() if partition.default), None)
    findings: list[Finding] = []
    if default not in (None, profile.default_partition):
        findings.append(Finding("default partition", profile.default_partition, str(default)))
    seen: set[str] = set()
    for row in profile.queues:
        partition = partitions.get(row.partition) if row.partition is not None else None
        if row.partition is None:
            continue
        if partition is None:
            known = ", ".join(partitions) or "none"
            findings.append(
                Finding(f"queue {row.name}: partition", row.partition, f"not there; there are: {known}", refused=True)
            )
            continue
        findings += _limits(row, partition)
        if partition.name not in seen:
            seen.add(partition.name)
            findings += _partition(profile, partition, config)
    return findings


def _limits(row: Queue, partition: Partition) -> Iterator[Finding]:
    if partition.qos is not None and row.qos is not None and row.qos not in partition.qos:
        yield Finding(
            f"queue {row.name}: qos",
            row.qos,
            f"partition {partition.name} allows {', '.join(partition.qos)}",
            refused=True,
        )
    nodes = len(partition.nodes) if partition.max_nodes is None else partition.max_nodes
    if isinstance(row.max_nodes, int) and row.max_nodes > nodes:
        yield Finding(f"queue {row.name}: max_nodes", str(row.max_nodes), f"at most {nodes}")
    if row.max_nodes == "unknown":
        yield Finding(f"queue {row.name}: max_nodes", "unknown", f"at most {nodes}")
    if isinstance(partition.max_time, float):
        longest = show_duration(partition.max_time)
        if isinstance(row.max_walltime, int) and row.max_walltime > partition.max_time:
            yield Finding(f"queue {row.name}: max_walltime", show_duration(row.max_walltime), f"at most {longest}")
        if row.max_walltime in ("unknown", None):
            yield Finding(f"queue {row.name}: max_walltime", row.max_walltime or "no limit", f"at most {longest}")


def _partition(profile: ClusterProfile, partition: Partition, config: Mapping[str, str]) -> Iterator[Finding]:
    place = f"partition {partition.name}"
    if not partition.takes_jobs:
        yield Finding(f"{place}: state", "UP", partition.state)
    gpus = sum(partition.gpus.values())
    if partition.nodes and gpus != profile.node.gpus * len(partition.nodes):
        yield Finding(
            f"{place}: GPUs",
            f"{profile.node.gpus} a node",
            f"{gpus} on {len(partition.nodes)} nodes ({partition.gpus})",
        )
    if config.get("PreemptMode", "OFF") == "OFF" or partition.preempt_mode == ("OFF",):
        return
    found = preemption(partition, config)
    if not found.known:
        says = "the QoS decides: see `sacctmgr show qos`; count on no grace"
    else:
        says = (
            f"{show_duration(found.seconds_to_save)} to save, then "
            + ("Slurm requeues the job" if found.comes_back else "the job is gone")
            + " (jobs of a run are --no-requeue: the chained job goes on)"
        )
    yield Finding(f"{place}: preemption", "", says)
