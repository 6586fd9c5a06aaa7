"""Which lines of an end say something about one node, for those who look after it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pretrainctl.recovery.facts import SURVIVED
from pretrainctl.recovery.log_lines import split
from pretrainctl.recovery.log_verdict import CONSEQUENCE
from pretrainctl.recovery.signatures.lookup import Lookup, shape_of

__all__ = ["about_node"]

_OURS = re.compile(r"(?:first bad task: rank \d+ on|node) ([\w.-]+)[:,] ")
"""Facts of a diagnosis that are about a node."""
_MARKS = (CONSEQUENCE.strip(), "(a consequence):", SURVIVED.strip())
"""How the evidence of a diagnosis marks what is no cause; the second is that of older records."""


def about_node(node: str, lines: Iterable[str]) -> tuple[str, ...]:
    """The lines without those that are consequences of something else, as of our own kill, were survived, or name
    another node."""
    lookup = Lookup()
    return tuple(line for line in lines if not any(mark in line for mark in _MARKS) and _may_be_of(node, line, lookup))


def _may_be_of(node: str, line: str, lookup: Lookup) -> bool:
    ours = _OURS.match(line)
    if ours is not None:
        return ours[1] == node
    found = lookup.find(line, shape_of(line), stepped=False)
    if found is None:
        return True
    match = found.pattern.search(line)
    named = (match.groupdict().get("node") if match is not None else None) or split(line).node or node
    alike = "[" in named or "," in named or named.partition(".")[0] == node.partition(".")[0]
    return found.weight != "echo" and alike
