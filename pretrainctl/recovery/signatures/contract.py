"""The shape of an entry in the table of signatures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = ["CUDA_SAYS", "Confidence", "Signature", "Weight", "echo", "root"]

Weight = Literal["root", "symptom", "error", "echo"]
Confidence = Literal["high", "medium", "low"]
CUDA_SAYS = (
    r"(?:(?:CUDA|HIP) (?:runtime |driver )?[Ee]rror: |(?:Cuda|HIP) failure (?:\d+ )?'|Triton Error \[\w+\]: |"
    r"\b(?:CUDA_ERROR|cudaError|hipError)\w+: |cudaGetDeviceCount\(\).* Error \d+: )"
)
"""What stands before the text of an error of CUDA or HIP: in PyTorch, NCCL, RCCL, Triton, XLA, CuPy and others."""


@dataclass(frozen=True, eq=False)
class Signature:
    """A pattern searched in lines that hold the text `clue`, the class it means, and the line for people.

    Groups `node` and `rank` of the pattern name the culprit. `source`: where the wording was read. `start_only`: it
    counts only before the first step (later the same words mean something else). `lasting`: it stays so until a
    person acts, whatever the class's own policy is. `at_least`: lines that it takes. `hint`: what to do, where that
    is more than the class's own. `survivable`: a script often goes on after it, so any error or symptom explains more.
    `if_alone`: the class where one node of several says so, which is a fault of that node.
    A clue is plain words: whole logs are searched for the clues before anything else.
    """

    clue: str
    pattern: re.Pattern[str]
    failure_class: str
    meaning: str
    source: str
    weight: Weight = "root"
    confidence: Confidence = "high"
    start_only: bool = False
    lasting: bool = False
    at_least: int = 1
    hint: str = ""
    survivable: bool = False
    if_alone: str = ""


def root(  # noqa: PLR0913 - a row of the table
    clue: str,
    pattern: str,
    failure_class: str,
    meaning: str,
    source: str,
    *,
    weight: Weight = "root",
    confidence: Confidence = "high",
    start_only: bool = False,
    lasting: bool = False,
    at_least: int = 1,
    hint: str = "",
    survivable: bool = False,
    if_alone: str = "",
) -> Signature:
    """An entry that may tell the cause; `pattern` is a regular expression."""
    return Signature(
        clue,
        re.compile(pattern),
        failure_class,
        meaning,
        source,
        weight,
        confidence,
        start_only,
        lasting,
        at_least,
        hint,
        survivable,
        if_alone,
    )


def echo(clue: str, pattern: str, source: str) -> Signature:
    """An entry for what is never the cause."""
    return Signature(clue, re.compile(pattern), "unknown", "a consequence of another failure", source, "echo", "low")
