"""Values of environment variables, which are text: a number there means what was typed."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML

__all__ = ["typed_value", "variable_text"]


def variable_text(value: Any, place: tuple[str | int, ...]) -> Any:
    """A value of a file; the text of a number where `place` is that of an environment variable's value."""
    if not _is_variable(place) or isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    written = io.StringIO()
    YAML().dump(value, written)  # as it was written: 9e-4 and 010, which ruamel keeps beside the number
    return written.getvalue().splitlines()[0]


def typed_value(value: Any, text: str, place: tuple[str | int, ...]) -> Any:
    """The same for a value of a setting, of which the `text` is known: `true` is text there too."""
    return text.strip() if _is_variable(place) and isinstance(value, (bool, int, float)) else value


def _is_variable(place: tuple[str | int, ...]) -> bool:
    """`environment.NAME` of recipes, `environment.NAME.value` and `workloads.KIND.NAME.value` of profiles."""
    if place[-1:] == ("value",):
        return place[-3:-2] == ("environment",) or (len(place) == 4 and place[0] == "workloads")
    return place[-2:-1] == ("environment",)
