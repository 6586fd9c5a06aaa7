"""Node lists as Slurm writes them, and the address at which the ranks meet."""

from __future__ import annotations

import itertools
import math
import re
import socket
from collections.abc import Callable, Iterator, Sequence

from pretrainctl.errors import InputError
from pretrainctl.records.launch import AddressRule

__all__ = ["expand", "fold", "master_address", "master_port", "resolve"]

_NO_NODES = ("", "none", "none assigned", "(null)", "n/a")
_PART = re.compile(r"(?:\[[^\[\]]*\]?|[^,\s\[])+")
"""What stands between commas and blanks, but for those inside brackets."""
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,15})")
_MOST_HOSTS = 65536
"""Of one list: several times what the largest cluster has."""
_LONGEST_NAME = 255
"""Characters of a host; a name in the DNS has no more."""
_LONG_NUMBER = re.compile(r"[0-9]{19}")
"""Slurm keeps the number of a name in 64 bits, and makes n18446744073709551615 of one with a greater number (seen with
22.05)."""


def expand(text: str) -> tuple[str, ...]:
    """The hosts of a list like `as01r1b[01-03,07],lrdn0041`, in order, repeats and leading zeros kept.

    The leftmost bracket varies slowest, as in `scontrol show hostnames`. `None assigned` and `(null)` are no
    hosts. A list that cannot be read is an InputError, and so is one of too many hosts, or of impossible names.
    """
    if text.strip().lower() in _NO_NODES:
        return ()
    hosts: list[str] = []
    for part in _PART.findall(text):
        hosts += _expand_one(part, text)
        if len(hosts) > _MOST_HOSTS:
            raise _too_many(text)
    return tuple(hosts)


def _expand_one(part: str, text: str) -> Iterator[str]:
    pieces = re.split(r"\[([^\[\]]*)\]", part)
    if any("[" in piece or "]" in piece for piece in pieces):
        raise _unreadable(text)
    # Pieces alternate: text, inside of a bracket, text, ... A host is one choice of each.
    choices = [_expand_ranges(piece, text) if index % 2 else [piece] for index, piece in enumerate(pieces)]
    if math.prod(len(choice) for choice in choices) > _MOST_HOSTS:
        raise _too_many(text)
    for chosen in itertools.product(*choices):
        name = "".join(chosen)
        if len(name) > _LONGEST_NAME or _LONG_NUMBER.search(name):
            raise InputError(
                f"{_cut(name)!r} is no name of a node: at most {_LONGEST_NAME} characters, and 18 digits in a row",
                hint="write the list as node[01-03],other7",
            )
        yield name


def _expand_ranges(inside: str, text: str) -> list[str]:
    found: list[str] = []
    for item in inside.split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            raise _unreadable(text)
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise _unreadable(text)
        if len(found) + int(last) - int(first) >= _MOST_HOSTS:
            raise _too_many(text)
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found


def _unreadable(text: str) -> InputError:
    return InputError(f"{_cut(text)!r} is not a node list", hint="write it as node[01-03],other7")


def _too_many(text: str) -> InputError:
    return InputError(
        f"{_cut(text)!r} names more than {_MOST_HOSTS} nodes, and no cluster has so many",
        hint="name them in several commands",
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def fold(names: Sequence[str]) -> str:
    """The shortest list that `expand` turns back into exactly `names`, in a form that Slurm accepts.

    Names are bracketed at the end only: Slurm 22.05 refuses text after a bracket (`node[01-03]-ib`).
    """
    parts: list[str] = []
    numbered = [(name, _NUMBERED.fullmatch(name)) for name in names]
    for prefix, group in itertools.groupby(numbered, key=lambda pair: pair[1][1] if pair[1] else None):
        members = list(group)
        numbers = [match[2] for _, match in members if match]
        if prefix is None or len(members) == 1:
            parts.extend(name for name, _ in members)
        else:
            parts.append(f"{prefix}[{','.join(_fold_numbers(numbers))}]")
    return ",".join(parts)


def _fold_numbers(numbers: Sequence[str]) -> Iterator[str]:
    first = last = numbers[0]
    for number in numbers[1:]:
        if number == str(int(last) + 1).zfill(len(first)):
            last = number
            continue
        yield first if first == last else f"{first}-{last}"
        first = last = number
    yield first if first == last else f"{first}-{last}"


def resolve(name: str) -> str | None:
    """The first IPv4 address of a name on this host; None where it has none."""
    try:
        found = socket.getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(found[0][4][0]).strip() if found else None


def master_address(
    first_host: str,
    rule: AddressRule,
    *,
    nodes: int | None = None,
    resolve: Callable[[str], str | None] = resolve,
) -> str:
    """MASTER_ADDR for the first active node, by the profile's rule; the suffix goes before the first dot.

    `nodes` is the number of active nodes where it is known. What cannot be resolved here, on the batch host, is
    passed over; the plain name is the last resort.
    """
    if rule.kind == "localhost":
        return "localhost"
    if rule.one_node_local and nodes == 1:
        return "127.0.0.1"
    host, dot, domain = first_host.strip().partition(".")
    for pattern in rule.names:
        name = pattern.replace("{host}", host)
        if resolve(name) is not None:
            return name
    name = f"{host}{rule.suffix}{dot}{domain}"
    return (resolve(name) or name) if rule.kind == "ipv4" else name


def master_port(rule: AddressRule, job_id: int, restart: int) -> int:
    """MASTER_PORT: another one for each restart, because the last one's port may still be held."""
    return rule.port_base + (job_id * 16 + restart) % rule.port_span
