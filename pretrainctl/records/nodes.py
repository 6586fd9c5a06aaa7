"""Nodes: what the quick test of each said, and the entries of a cluster's node exclusion list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["ExclusionEntry", "NodeAnswer", "NodeTest", "PathAnswer"]


@dataclass(frozen=True)
class PathAnswer:
    """Which of the test's `paths` one node sees: ranges of their numbers, from 0, such as `0-3,7`.

    `absent` ones are not seen there, of `unknown` ones nothing is known, where a number is in both it is absent.
    `stuck` is one at which the look did not come back, -1 for none.
    """

    absent: str = ""
    unknown: str = ""
    stuck: int = -1


@dataclass(frozen=True)
class NodeAnswer:
    """What the test said on one node, as `health.probe` prints it.

    `failed` and `passed` are checks by name; of a failed one, why. `figures` are seconds of matmuls and what else was
    measured. A check that is in none of both could not be made there. `paths` is None where none were looked for.
    """

    node: str
    time: float
    failed: Mapping[str, str]
    passed: tuple[str, ...]
    figures: Mapping[str, float]
    notes: tuple[str, ...] = ()
    paths: PathAnswer | None = None


@dataclass(frozen=True)
class NodeTest:
    """`node-test/result.json` of an attempt: its nodes before it trained.

    `unfit` and `slow` say why by node, `notes` what was found and is laid on no node, `seconds` how long it took.
    `paths` are those that each was asked for.
    """

    nodes: tuple[str, ...]
    answers: tuple[NodeAnswer, ...]
    unfit: Mapping[str, str]
    slow: Mapping[str, str]
    notes: tuple[str, ...]
    seconds: float
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExclusionEntry:
    """One file of a node exclusion list, never edited.

    `cluster` and `slurm_cluster` are the profile's and Slurm's own name of the cluster; a list goes by Slurm's.
    `cause` is a class of `recovery`, `node_test`, or `person`; `reason` one line, `evidence` more of them. Times are
    epoch seconds.
    A `forgive` names the files that do not count any more.
    """

    kind: Literal["exclude", "forgive"]
    cluster: str
    slurm_cluster: str
    node: str
    cause: str
    reason: str
    user: str
    time: float
    expires: float = 0.0
    confidence: Literal["high", "medium", "low"] = "high"
    run: str = ""
    attempt: int = 0
    job_id: int = 0
    evidence: tuple[str, ...] = ()
    forgives: tuple[str, ...] = field(default=())
