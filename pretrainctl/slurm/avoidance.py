"""Which nodes a job can be kept off, so that enough others are left to it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from pretrainctl.slurm.nodes import expand
from pretrainctl.slurm.sinfo import NodeCondition, NodeState

__all__ = ["avoidance", "choose", "in_service"]

_LEAVING = {NodeCondition.DRAINING, NodeCondition.UNKNOWN}


def avoidance(
    job: Mapping[str, str],
    states: Iterable[NodeState],
    nodes: Sequence[str],
    *,
    ours: Collection[str] = (),
    held: bool = False,
) -> tuple[str, ...]:
    """The nodes that a pending job is to avoid from now on: what it avoids already, and as many of `nodes` as it can
    do without, the first ones first.

    `job` is an entry of `scontrol show job`, `states` are the nodes of its partitions. What it avoids already and is
    among `ours` gives way to those of `nodes` that stand before it, and goes where it is none of them: what a person
    set stays. Where Slurm has `held` the job for its nodes, that too is kept only as far as enough others are left,
    before all of `nodes`.
    """
    avoided = expand(job.get("ExcNodeList", ""))
    needed = int(re.sub(r"\D.*", "", job.get("NumNodes", "")) or 1)  # `4`, or `4-4` while it is pending
    by_person = tuple(node for node in avoided if node not in ours)
    base, wanted = ((), (*by_person, *nodes)) if held else (by_person, nodes)
    return (*base, *choose(states, job["Partition"], needed, base, wanted))


def in_service(states: Iterable[NodeState], partition: str) -> set[str]:
    """The nodes of a partition that take jobs, now or when they are free."""
    usable = (node for node in states if not node.condition.broken and node.condition not in _LEAVING)
    return {node.name for node in usable if partition in node.partitions}


def choose(
    states: Iterable[NodeState], partitions: str, needed: int, avoided: Sequence[str], nodes: Sequence[str]
) -> tuple[str, ...]:
    """Those of `nodes` that a job of `needed` nodes in `partitions` (`a,b`) can avoid besides `avoided`, in order.

    Where fewer nodes than it needs would be left in service, a node is not avoided: Slurm holds such a job with
    BadConstraints (seen with 23.11), and does not release it when nodes come back. A node that is not there is none
    to avoid: sbatch refuses the job for its name.
    """
    there = tuple(states)
    pools = [in_service(there, partition) for partition in partitions.split(",")]
    known = {node.name for node in there}
    more: list[str] = []
    for node in dict.fromkeys(nodes):
        rest = {*avoided, *more, node}
        if node in known and node not in avoided and any(len(pool - rest) >= needed for pool in pools):
            more.append(node)
    return tuple(more)
