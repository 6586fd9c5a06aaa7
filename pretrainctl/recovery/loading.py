"""Whether a checkpoint that looks whole could not be loaded: only what proves it counts. Pure.

The reference trainer's own line is a proof, and so is an error of the program that ended two starts in a row while
they loaded the same tag. A node that is lost, a kill, memory that runs out and a file system that does not read say
nothing about the bytes of a checkpoint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pretrainctl.records.run import Diagnosis
from pretrainctl.recovery.policies import FailureClass

__all__ = ["FailedLoad", "blame_tag", "find_failed_load"]

_REFUSED = re.compile(
    r"rank \d+: error: (?P<line>.*?\b(?P<tag>global_step\d+) "
    r"(?:cannot be loaded: |holds the (?:weights|optimizer) of step ).*)"
)
"""What the reference trainer says; see `trainer.checkpoint`."""
_OF_THE_PROGRAM = {FailureClass.CHECKPOINT_INCOMPLETE.value, FailureClass.APPLICATION_ERROR.value}
_PASSING = re.compile(r"MemoryError|[Oo]ut of memory|alloc|\[Errno (?!2\])|file read failed|[Tt]imed? ?out")


@dataclass(frozen=True)
class FailedLoad:
    """A start that ended while it loaded `tag`; `line` says how, and `proven` that this start alone proves it."""

    tag: str
    line: str
    proven: bool


def find_failed_load(diagnosis: Diagnosis, tag: str | None, *, phase: str, stepped: bool) -> FailedLoad | None:
    """How the start that this diagnosis is of failed to load `tag`, None where that is not so, or may be otherwise.

    `phase` is the last one that the program reported, empty for a program that reports nothing; `stepped`: it did a
    step. Lines that the program prints about a torn or missing shard tell of the load themselves.
    """
    if not tag or stepped or diagnosis.failure_class not in _OF_THE_PROGRAM:
        return None
    own = _REFUSED.search(diagnosis.message)
    torn = diagnosis.failure_class == FailureClass.CHECKPOINT_INCOMPLETE.value
    if torn and own is not None and own["tag"] == tag:
        return FailedLoad(tag, own["line"], proven=True)
    loading = phase == "load" or (torn and not phase)
    if not loading or diagnosis.confidence == "low" or _PASSING.search(diagnosis.message):
        return None
    return FailedLoad(tag, diagnosis.message, proven=False)


def blame_tag(diagnosis: Diagnosis, failed: FailedLoad) -> Diagnosis:
    """The diagnosis of a start that is the second in a row which could not load the same tag."""
    if diagnosis.failure_class == FailureClass.CHECKPOINT_INCOMPLETE.value:
        return diagnosis
    return replace(
        diagnosis,
        failure_class=FailureClass.CHECKPOINT_INCOMPLETE.value,
        message=f"{failed.tag} could not be loaded, twice: {diagnosis.message}",
        lasting=False,
        hint="",
    )
