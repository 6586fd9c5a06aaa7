"""What sinfo says of nodes: states with their one-letter suffixes, and GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pretrainctl.errors import SlurmError

__all__ = ["SINFO_FORMAT", "NodeCondition", "NodeState", "parse_gres", "parse_sinfo", "read_node_state"]

SINFO_FORMAT = "%P|%N|%t|%G|%E"


class NodeCondition(Enum):
    """What a node state means for whoever wants the node, or has a job on it."""

    FREE = "free"
    BUSY = "busy"
    ENDING = "ending"
    PROMISED = "promised"
    """Kept by backfill for another job."""
    RESERVED = "reserved"
    MAINTENANCE = "maintenance"
    POWERED_DOWN = "powered_down"
    REBOOTING = "rebooting"
    DRAINING = "draining"
    """Takes no new jobs, and still runs the one it has."""
    DRAINED = "drained"
    DOWN = "down"
    NOT_RESPONDING = "not_responding"
    UNKNOWN = "unknown"

    @property
    def broken(self) -> bool:
        """Out of service now, also for the job that it has."""
        return self in (NodeCondition.DRAINED, NodeCondition.DOWN, NodeCondition.NOT_RESPONDING)


# Compact and long spellings; sinfo cuts them to the field's width only where one is asked for.
_STATES = {
    **dict.fromkeys(("idle",), NodeCondition.FREE),
    **dict.fromkeys(("mix", "mixed", "alloc", "allocated"), NodeCondition.BUSY),
    **dict.fromkeys(("comp", "completing"), NodeCondition.ENDING),
    **dict.fromkeys(("plnd", "planned"), NodeCondition.PROMISED),
    **dict.fromkeys(("resv", "reserved"), NodeCondition.RESERVED),
    **dict.fromkeys(("maint",), NodeCondition.MAINTENANCE),
    **dict.fromkeys(("pow_dn", "powered_down", "powering_down", "pow_up", "powering_up"), NodeCondition.POWERED_DOWN),
    **dict.fromkeys(("boot", "reboot", "reboot_issued", "reboot_requested"), NodeCondition.REBOOTING),
    **dict.fromkeys(("drng", "draining", "failg", "failing"), NodeCondition.DRAINING),
    **dict.fromkeys(("drain", "drained", "fail"), NodeCondition.DRAINED),
    **dict.fromkeys(("down", "inval"), NodeCondition.DOWN),
}
_SUFFIXES = {
    "*": NodeCondition.NOT_RESPONDING,
    "-": NodeCondition.PROMISED,
    "$": NodeCondition.MAINTENANCE,
    "@": NodeCondition.REBOOTING,
    "^": NodeCondition.REBOOTING,
    **dict.fromkeys("~#%!", NodeCondition.POWERED_DOWN),
}


@dataclass(frozen=True)
class NodeState:
    """A node as sinfo shows it; `partitions` are those that hold it, `gpus` the GPUs by type, `reason` is why it is out
    of service, empty for none."""

    name: str
    text: str
    condition: NodeCondition
    partitions: tuple[str, ...]
    gpus: Mapping[str, int]
    reason: str = ""


def read_node_state(text: str) -> NodeCondition:
    """Read `idle`, `idle*`, `mix-` ...; the state as a whole, never its beginning. Never raises."""
    shown = text.strip().lower()
    suffix = _SUFFIXES.get(shown[-1:])
    state = _STATES.get(shown[:-1] if suffix else shown.removesuffix("+"), NodeCondition.UNKNOWN)
    if suffix is None or state.broken or state is NodeCondition.UNKNOWN:
        return state
    return suffix


def parse_sinfo(text: str) -> dict[str, NodeState]:
    """Nodes by name from `sinfo --noheader --Node --format=SINFO_FORMAT`, each once."""
    nodes: dict[str, NodeState] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        fields = line.split("|", SINFO_FORMAT.count("|"))  # the reason, free text, is last
        if len(fields) != SINFO_FORMAT.count("|") + 1:
            raise SlurmError(f"sinfo printed a line that cannot be read: {line[:200]!r}", stdout=text)
        partition, name, state, gres, reason = fields
        before = nodes[name].partitions if name in nodes else ()
        nodes[name] = NodeState(
            name=name,
            text=state,
            condition=read_node_state(state),
            partitions=(*before, partition.removesuffix("*")),
            gpus=parse_gres(gres),
            reason="" if reason.strip() == "none" else reason.strip(),
        )
    return nodes


_GPU = re.compile(r"(?:gres[/:])?gpu(?::(?P<type>[^:(),]+?))?:(?P<count>[0-9]+)(?:\([^)]*\))?(?=,|$)")


def parse_gres(text: str) -> dict[str, int]:
    """GPUs by type (`` = no type given) of `gpu:h100:4(S:0-1),gpu:block:1`; none where there are none."""
    gpus: dict[str, int] = {}
    for match in _GPU.finditer(text.strip()):
        kind = match["type"] or ""
        gpus[kind] = gpus.get(kind, 0) + int(match["count"])
    return gpus
