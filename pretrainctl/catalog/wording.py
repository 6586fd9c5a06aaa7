"""What pydantic finds wrong, in words of people who write YAML: lists and sections, not tuples and objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import ErrorDetails

__all__ = ["PATTERNS", "SHAPES", "WORDS", "what_is_wrong"]

SHAPES = {"model_type": "a section", "dict_type": "a section", "tuple_type": "a list", "list_type": "a list"}
"""What pydantic calls an object and an array."""

PATTERNS: dict[str | None, str] = {
    r"^/": "an absolute path, which begins with /,",
    r"^[0-9]+\.[0-9]+(\.[0-9]+)?$": "a version such as 0.16 or 0.16.4",
    r"^--?[A-Za-z]": "an option, which begins with - or --,",
    r"^(omit|[0-9]+[KMGT]?)$": "`omit`, or a number with K, M, G or T,",
    r"^[A-Za-z0-9.{}-]+$": "a host name of letters, digits, dots and dashes",
    r"^[A-Za-z0-9-]*$": "an ending of letters, digits and dashes",
    r"^[0-9]{4}-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?$": "a date, YYYY-MM or YYYY-MM-DD,",
}
"""What the patterns of the schema stand for."""


WORDS = {
    **{kind: f"{shape} is expected" for kind, shape in SHAPES.items()},
    "int_type": "a whole number is expected",
    "int_from_float": "a whole number is expected",
    "int_parsing_size": "a smaller number is expected",
    "float_type": "a number is expected",
    "finite_number": "a finite number is expected",
    "bool_type": "true or false is expected",
    "string_type": "text is expected",
    "path_type": "a path is expected",
    "literal_error": "{expected} is expected",
    "greater_than": "more than {gt} is expected",
    "greater_than_equal": "at least {ge} is expected",
    "less_than": "less than {lt} is expected",
    "less_than_equal": "at most {le} is expected",
    "string_too_short": "at least {count} expected",
    "too_short": "at least {count} expected",
    "too_long": "at most {count} expected",
    "string_pattern_mismatch": "{form} is expected",
}
"""By pydantic's type of an error. `missing`, `extra_forbidden` and `value_error` are told elsewhere: the schema words
the last one itself."""


def what_is_wrong(problem: ErrorDetails) -> str:
    """One problem in plain words, without its place and the value that was given."""
    words = WORDS.get(problem["type"])
    if words is None:
        return problem["msg"].removeprefix("Value error, ")
    context = {name: _whole(value) for name, value in problem.get("ctx", {}).items()}
    return words.format(**context, count=_count(context, problem["input"]), form=PATTERNS.get(context.get("pattern")))


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _count(context: Mapping[str, Any], value: Any) -> str:
    count = context.get("min_length", context.get("max_length"))
    one, several = ("character", "characters") if isinstance(value, str) else ("entry", "entries")
    return f"1 {one} is" if count == 1 else f"{count} {several} are"
