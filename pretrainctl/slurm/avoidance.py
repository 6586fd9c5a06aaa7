"""Which nodes a pending job can be kept off, so that enough others are left to it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pretrainctl.slurm.nodes import expand
from pretrainctl.slurm.sinfo import NodeCondition, NodeState

__all__ = ["avoidance"]

_LEAVING = {NodeCondition.DRAINING, NodeCondition.UNKNOWN}


def avoidance(
    job: Mapping[str, str], states: Iterable[NodeState], nodes: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The nodes that a job avoids already, and those of `nodes` that it can avoid besides, the first ones first.

    `job` is an entry of `scontrol show job`, `states` are the nodes of its partitions. Where fewer nodes than it needs
    would be left in service, a node is not avoided: Slurm holds such a job with BadConstraints (seen with 23.11), and
    does not release it when nodes come back.
    """
    avoided = expand(job.get("ExcNodeList", ""))
    needed = int(re.sub(r"\D.*", "", job.get("NumNodes", "")) or 1)  # `4`, or `4-4` while it is pending
    usable = [node for node in states if not node.condition.broken and node.condition not in _LEAVING]
    pools = [
        {node.name for node in usable if partition in node.partitions} for partition in job["Partition"].split(",")
    ]
    more: list[str] = []
    for node in dict.fromkeys(nodes):
        rest = {*avoided, *more, node}
        if node not in avoided and any(len(pool - rest) >= needed for pool in pools):
            more.append(node)
    return avoided, tuple(more)
