"""Waiting: why a job that is queued cannot start, where Slurm's own reason does not tell."""

from __future__ import annotations

from collections.abc import Callable

from pretrainctl.errors import MissingError, SlurmError
from pretrainctl.records.job import Job
from pretrainctl.records.launch import Launch
from pretrainctl.slurm.avoidance import in_service
from pretrainctl.slurm.client import Slurm

__all__ = ["tell_too_few"]


def tell_too_few(name: str, launch: Launch, job: Job, slurm: Callable[[], Slurm]) -> str:
    """That the partitions of a job which waits have fewer nodes in service than it needs, and whether it could start
    without its spares; empty where there are enough, or Slurm does not say. `slurm` is asked for nodes only."""
    if not job.is_waiting or not job.partition or job.reason == "Dependency":
        return ""
    try:
        states, _ = slurm().partition_nodes(job.partition)
    except (SlurmError, MissingError):
        return ""
    there = max(len(in_service(states, partition)) for partition in job.partition.split(","))
    nodes, spares = launch.srun.nodes, launch.spares
    if there >= nodes + spares:
        return ""
    of = f" ({nodes}, and {spares} spare{'s' * (spares > 1)})" if spares else ""
    said = f"job {job.job_id} needs {nodes + spares} nodes{of}, and {there} of {job.partition} are in service"
    if spares and there >= nodes:
        said += (
            f": `pretrainctl stop --save {name}`, then `pretrainctl resume {name} --set "
            f"resources.spares={there - nodes}` lets it start"
        )
    return said
