"""Text to what ruamel makes of it; what is none, or is nested deeper than anything here, is a YAMLError."""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

__all__ = ["YAMLError", "load", "problem"]

_DEEPEST = 25
"""Sections inside each other, beyond what a recipe or profile may hold."""
_MAY_BE_DEEP = re.compile(rf"(?m)^ {{{_DEEPEST},}}\S|(?:[-?:]\s+){{{_DEEPEST},}}")
"""Indentation, or entries in entries on one line, without which only brackets nest so deeply."""


def load(text: str) -> Any:
    """The first document of a text."""
    try:
        if _may_be_deep(text):
            _refuse_deep(text)
        return YAML().load(text)
    except YAMLError:
        raise
    except Exception as error:
        # ruamel lets errors of every kind out when a tag, a date or a number is none (`!!float x`, `2026-13-45`).
        raise YAMLError(f"{type(error).__name__}: {error}") from error


def problem(error: YAMLError) -> str:
    """What is wrong, in one line."""
    text = (error.problem if isinstance(error, MarkedYAMLError) else None) or str(error)
    return " ".join(str(text).split())


def _may_be_deep(text: str) -> bool:
    """Whether it must be looked at closely, which takes half as long as reading it."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest > _DEEPEST or _MAY_BE_DEEP.search(text) is not None


def _refuse_deep(text: str) -> None:
    """YAMLError at the first section too many: ruamel's time grows with the square of the depth, and its stack ends."""
    depth = 0
    for event in YAML().parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > _DEEPEST:
            raise MarkedYAMLError(problem=f"nested more than {_DEEPEST} sections deep", problem_mark=event.start_mark)
