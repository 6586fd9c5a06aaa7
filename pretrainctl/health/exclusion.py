"""What the entries of a list say together: which nodes jobs keep off now, in which order, and for how long. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pretrainctl.records.nodes import ExclusionEntry

__all__ = ["LONGEST_REASON", "PERSON", "ListedNode", "forgiven", "lifetime", "listed", "scrub", "to_avoid"]

PERSON = "person"
"""The cause of an entry that somebody wrote by hand."""

_DAY = 86400.0
_LIFETIMES = {"gpu_hardware": 7 * _DAY}
"""Seconds by cause: a GPU is not well again by itself; a node that died was mostly booted again within a day."""
_LIFETIME = _DAY
_LONGEST = 30 * _DAY
_MEMORY = 30 * _DAY
"""Seconds within which entries of a node add up."""
_CERTAINTY = {"high": 2, "medium": 1, "low": 0}
_LINE = 300
LONGEST_REASON = 500
"""Characters of the reason of an entry."""


@dataclass(frozen=True)
class ListedNode:
    """A node of a list with the entries that count, oldest first; `names` are their files."""

    node: str
    entries: tuple[ExclusionEntry, ...]
    names: tuple[str, ...]

    @property
    def newest(self) -> ExclusionEntry:
        """The entry that is shown: of those that hold longest, the newest."""
        return max(self.entries, key=lambda entry: (entry.expires, entry.time))

    @property
    def expires(self) -> float:
        """Until when jobs keep off it, epoch seconds."""
        return max(entry.expires for entry in self.entries)

    @property
    def count(self) -> int:
        """How often something was found of it."""
        return len(self.entries)

    @property
    def by_person(self) -> bool:
        """Whether somebody wrote an entry by hand that holds as long as any."""
        return any(entry.cause == PERSON and entry.expires == self.expires for entry in self.entries)


def listed(entries: Mapping[str, ExclusionEntry]) -> dict[str, ListedNode]:
    """The nodes of a list by name, in their order, less what was forgiven.

    A `forgive` names the files that do not count any more: no clock of another host decides.
    """
    forgiven = {name for entry in entries.values() if entry.kind == "forgive" for name in entry.forgives}
    counted = sorted(
        ((name, entry) for name, entry in entries.items() if entry.kind == "exclude" and name not in forgiven),
        key=lambda item: (item[1].node, item[1].time),
    )
    found: dict[str, list[tuple[str, ExclusionEntry]]] = {}
    for name, entry in counted:
        found.setdefault(entry.node, []).append((name, entry))
    return {
        node: ListedNode(node, tuple(entry for _, entry in items), tuple(name for name, _ in items))
        for node, items in found.items()
    }


def forgiven(entries: Mapping[str, ExclusionEntry]) -> dict[str, ListedNode]:
    """What was found of nodes and counts no more, since somebody forgave it, by node in their order.

    The `forgive` entries themselves are among the entries.
    """
    names = {name for entry in entries.values() if entry.kind == "forgive" for name in entry.forgives}
    past = sorted(
        ((name, entry) for name, entry in entries.items() if entry.kind == "forgive" or name in names),
        key=lambda item: (item[1].node, item[1].time),
    )
    nodes = dict.fromkeys(entry.node for _, entry in past)
    return {
        node: ListedNode(
            node,
            tuple(entry for _, entry in past if entry.node == node),
            tuple(name for name, entry in past if entry.node == node),
        )
        for node in nodes
    }


def to_avoid(nodes: Mapping[str, ListedNode], now: float) -> tuple[ListedNode, ...]:
    """The nodes that jobs keep off at `now`, those first that are given up last: a person's wish, then what is most
    certain, then what is newest."""

    def rank(node: ListedNode) -> tuple[bool, int, int, float]:
        newest = node.newest
        return (node.by_person, _CERTAINTY[newest.confidence], node.count, newest.time)

    return tuple(sorted((node for node in nodes.values() if node.expires > now), key=rank, reverse=True))


def lifetime(cause: str, before: ListedNode | None, now: float) -> float:
    """Seconds that jobs keep off a node of which `cause` was found: twice as long each time it comes again."""
    recent = [entry for entry in before.entries if now - entry.time < _MEMORY] if before else []
    return min(_LIFETIMES.get(cause, _LIFETIME) * 2.0 ** min(len(recent), 10), _LONGEST)


_NAMED = re.compile(
    r"(?i)\b([\w-]*(?:token|secret|passw(?:or)?d|credential|api[_-]?key|access[_-]?key|authorization))"
    r"(\"?\s*[=:]\s*\"?)(?:bearer\s+)?[^\s\"',;]+"
)
_BEARER = re.compile(r"(?i)\b(bearer\s+)\S+")
_IN_ADDRESS = re.compile(r"(://)[^/\s@]+@")
_KEY = re.compile(r"(?<![\w+/])(?=[A-Za-z0-9_+]*[0-9])(?=[A-Za-z0-9_+]*[A-Za-z])[A-Za-z0-9_+]{32,}={0,2}(?![\w+])")


def scrub(lines: Sequence[str], longest: int = _LINE) -> tuple[str, ...]:
    """Lines of a log as others may read them: what looks like a password or a key is taken out, those longer
    than `longest` characters are cut.

    The UUID of a GPU, which a help desk needs, stays.
    """
    found = []
    for line in lines:
        text = "".join(character if character.isprintable() else " " for character in line).strip()
        text = _NAMED.sub(r"\1\2[removed]", _IN_ADDRESS.sub(r"\1[removed]@", text))
        text = _KEY.sub("[removed]", _BEARER.sub(r"\1[removed]", text))
        found.append(text if len(text) <= longest else f"{text[: longest - 1]}…")
    return tuple(found)
