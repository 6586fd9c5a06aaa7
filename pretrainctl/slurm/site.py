"""What the machine says of itself: `scontrol show config` and `show partition`. Pure parsers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pretrainctl.errors import SlurmError
from pretrainctl.slurm.nodes import expand
from pretrainctl.units import Limit, parse_printed_duration

__all__ = ["Partition", "Preemption", "parse_config", "parse_partitions", "preemption", "read_seconds"]

_SETTING = re.compile(r"([A-Za-z_]+)\s+= (.*)")
_UNITS = {"sec": 1.0, "min": 60.0, "msec": 0.001, "usec": 1e-6, "hours": 3600.0}


@dataclass(frozen=True)
class Partition:
    """A partition as `scontrol show partition` tells it. Memory in MiB, None = no limit; times in seconds."""

    name: str
    state: str
    nodes: tuple[str, ...]
    min_nodes: int
    max_nodes: int | None
    max_time: float | Limit
    default_time: float | Limit
    grace: float
    gpus: Mapping[str, int]
    """By type; an untyped count only where no type is told."""
    qos: tuple[str, ...] | None
    """Allowed ones; None = all."""
    preempt_mode: tuple[str, ...]
    default_memory_per_node: int | None
    default_memory_per_cpu: int | None
    max_memory_per_node: int | None
    default: bool
    """Whether a job that names no partition comes here."""

    @property
    def takes_jobs(self) -> bool:
        """Whether new jobs can be submitted and will start: DOWN only queues them, DRAIN refuses them."""
        return self.state == "UP"


@dataclass(frozen=True)
class Preemption:
    """What happens to a preempted job: whether Slurm brings it back under its own id, and how many seconds its
    tasks have from the notice to SIGKILL. `known` is False where the answer lies in the QoS."""

    comes_back: bool
    seconds_to_save: float
    known: bool


def parse_config(text: str) -> dict[str, str]:
    """Settings of `scontrol show config`, values as printed."""
    found = {match[1]: match[2].strip() for line in text.splitlines() if (match := _SETTING.fullmatch(line.rstrip()))}
    if not found:
        raise SlurmError(f"scontrol show config said nothing that can be read: {text[:80]!r}")
    return found


def read_seconds(value: str) -> float | Limit:
    """Seconds of a setting: `30 sec`, `0 min`, `01:00:00`; Limit.UNKNOWN where it says something else."""
    number, _, unit = value.strip().partition(" ")
    if unit in _UNITS and re.fullmatch(r"[0-9.]+", number):
        return float(number) * _UNITS[unit]
    return parse_printed_duration(value)


def parse_partitions(text: str) -> dict[str, Partition]:
    """Partitions of `scontrol show partition`, by name, whether printed on one line each or on many."""
    parts = re.split(r"(?m)^\s*(?=PartitionName=)", text)
    return {
        partition.name: partition
        for partition in (_partition(part) for part in parts if part.startswith("PartitionName="))
    }


def _partition(text: str) -> Partition:
    fields: dict[str, str] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if equals:
            fields.setdefault(key, value)
    return Partition(
        name=fields["PartitionName"],
        state=fields.get("State", "UNKNOWN"),
        nodes=expand(fields.get("Nodes", "")),
        min_nodes=int(fields.get("MinNodes", "0")),
        max_nodes=_number(fields.get("MaxNodes", "UNLIMITED")),
        max_time=parse_printed_duration(fields.get("MaxTime", "")),
        default_time=parse_printed_duration(fields.get("DefaultTime", "NONE")),
        grace=float(_number(fields.get("GraceTime", "0")) or 0),  # a plain number of seconds
        gpus=_gpus(fields.get("TRES", "")),
        qos=None if fields.get("AllowQos", "ALL") == "ALL" else tuple(fields["AllowQos"].split(",")),
        preempt_mode=tuple(fields.get("PreemptMode", "OFF").split(",")),
        default_memory_per_node=_number(fields.get("DefMemPerNode", "UNLIMITED")),
        default_memory_per_cpu=_number(fields.get("DefMemPerCPU", "UNLIMITED")),
        max_memory_per_node=_number(fields.get("MaxMemPerNode", "UNLIMITED")),
        default=fields.get("Default", "NO") == "YES",
    )


def _seconds(value: float | Limit) -> float:
    return value if isinstance(value, float) else 0.0


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _gpus(tres: str) -> dict[str, int]:
    """Typed counts stand beside their sum: adding both would count each GPU twice."""
    counts = dict(re.findall(r"gres/gpu(?::([^=,]+))?=([0-9]+)", tres))
    typed = {name: int(count) for name, count in counts.items() if name}
    return typed or {name: int(count) for name, count in counts.items()}


def preemption(partition: Partition, config: Mapping[str, str]) -> Preemption:
    """What a preempted job of this partition can count on.

    With preempt/partition_prio the partition's own mode rules. With preempt/qos mode and grace may come from the
    QoS: until that is asked, nothing comes back and there is no grace.
    """
    kill_wait = _seconds(read_seconds(config.get("KillWait", "30 sec")))
    if config.get("PreemptType", "") == "preempt/qos":
        return Preemption(comes_back=False, seconds_to_save=0.0, known=False)
    return Preemption(
        comes_back="REQUEUE" in partition.preempt_mode, seconds_to_save=partition.grace + kill_wait, known=True
    )
