"""What the nodes say of the paths that the training needs: which node does not see what the others do. Pure.

What exists somewhere exists: where at least as many nodes see a path as do not, those that do not are unfit. What
nobody sees, or only a minority, is no node's fault that could be told.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from pretrainctl.records.nodes import PathAnswer

__all__ = ["in_order", "is_blind", "judge_paths"]

_FEW = 10
"""One node, or one of so many, may get no answer by its own fault: more of them wait for the same server."""


def in_order(paths: Sequence[str]) -> tuple[str, ...]:
    """Each once, one of each folder first: they tell of all mounts, should there be no time for the others."""
    folders: dict[PurePath, list[str]] = {}
    for path in dict.fromkeys(paths):
        folders.setdefault(PurePath(path).parent, []).append(path)
    return (*(found[0] for found in folders.values()), *(path for found in folders.values() for path in found[1:]))


def is_blind(node: str, number: int, answers: Mapping[str, PathAnswer]) -> bool:
    """Whether a node does not see the path of this number, and another does."""
    if node not in answers or number not in _numbers(answers[node].absent):
        return False
    return any(number not in _numbers(f"{answer.absent},{answer.unknown}") for answer in answers.values())


def judge_paths(
    paths: Sequence[str], answers: Mapping[str, PathAnswer], *, others: int = 0
) -> tuple[dict[str, str], list[str]]:
    """Why nodes are unfit, by node, and what is noted; `answers` are by node, `others` gave none."""
    absent = {node: _numbers(answer.absent) for node, answer in answers.items()}
    unknown = {node: _numbers(answer.unknown) - absent[node] for node, answer in answers.items()}
    lacking: dict[str, list[int]] = {}
    seen: dict[int, int] = {}
    unseen: dict[tuple[int, int], list[int]] = {}
    for number in sorted(set().union(*absent.values())):
        without = [node for node in answers if number in absent[node]]
        seen[number] = sum(number not in absent[node] and number not in unknown[node] for node in answers)
        if seen[number] >= len(without):
            for node in without:
                lacking.setdefault(node, []).append(number)
        else:
            unseen.setdefault((seen[number], seen[number] + len(without)), []).append(number)
    unfit = {
        node: f"{_named(paths, numbers)} not seen there, and on {_count(seen[numbers[0]], 'other node')}"
        for node, numbers in lacking.items()
    }
    notes = [
        f"{_named(paths, numbers)} seen on {some or 'none'} of the {told} nodes that tell, "
        + ("too few to blame the others" if some else "so it is not the nodes")
        for (some, told), numbers in unseen.items()
    ]
    stuck = {node: answer.stuck for node, answer in answers.items() if answer.stuck >= 0 and node not in unfit}
    hung = {
        node: f"no answer to a look at {paths[number]}"
        for node, number in stuck.items()
        if any(number not in absent[other] and number not in unknown[other] for other in answers)
    }
    if len(stuck) <= max(1, (len(answers) + others) // _FEW):
        unfit |= hung
        stuck = {node: number for node, number in stuck.items() if node not in hung}
    if stuck:
        (node, number), count = next(iter(stuck.items())), len(stuck)
        notes.append(
            f"no answer to a look at {paths[number]} on {node}" + (f" and {count - 1} more" if count > 1 else "")
        )
    return unfit, notes


def _numbers(ranges: str) -> set[int]:
    """Those of `0-3,7`."""
    ends = [part.partition("-") for part in ranges.split(",") if part]
    return set(itertools.chain.from_iterable(range(int(first), int(last or first) + 1) for first, _, last in ends))


def _named(paths: Sequence[str], numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - 1} more are" if len(numbers) > 1 else " is"
    return f"{paths[numbers[0]]}{more}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
