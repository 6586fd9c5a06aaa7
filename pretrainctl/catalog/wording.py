"""What pydantic finds wrong, in words of people who write YAML: lists and sections, not tuples and objects."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from pretrainctl.catalog.reading import Document, Key

__all__ = ["PATTERNS", "SHAPES", "WORDS", "shown_value", "what_else", "what_is_wrong", "written_part"]

_MOST_TOLD = 6
"""Further problems that are told; who has more has taken another kind of file."""

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


def what_else(document: Document, problems: Sequence[ErrorDetails], told: Sequence[ErrorDetails]) -> str:
    """The problems besides those that are `told`, each with where it was written, a few of them, what is missing last.

    Left out is what only follows from another one: an element that does not fit is missing in its list, a key that is
    misspelt in its section, and a value of several kinds fits none of them.
    """
    here = document.origin(written_part(document.values, told[0]["loc"])).source
    places = {_place(document, one) for one in told}
    said: list[str] = []
    for one in sorted(problems, key=lambda one: one["type"] == "missing"):
        place = _place(document, one)
        if place in places or _follows(one, problems):
            continue
        places.add(place)
        origin = document.origin(written_part(document.values, one["loc"]))
        where = f"line {origin.line}" if origin.source == here and origin.line is not None else str(origin)
        said.append(f"{where}: {_brief(document, one)}")
    left = f"; and {len(said) - _MOST_TOLD} more" if len(said) > _MOST_TOLD else ""
    return f"; also {'; '.join(said[:_MOST_TOLD])}{left}" if said else ""


def written_part(values: Any, place: Key) -> Key:
    """The part of pydantic's location that exists in what was written (it adds names of union members)."""
    found: list[str | int] = []
    for part in place:
        known = values if isinstance(values, dict) else range(len(values)) if isinstance(values, list) else ()
        if part in known:
            values = values[part]
            found.append(part)
    return tuple(found)


def shown_value(value: Any) -> str:
    """A value that was given, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _place(document: Document, problem: ErrorDetails) -> Key:
    """Where a problem lies, as it is written."""
    place = written_part(document.values, problem["loc"])
    return (*place, problem["loc"][-1]) if problem["type"] == "missing" else place


def _follows(problem: ErrorDetails, problems: Sequence[ErrorDetails]) -> bool:
    place = problem["loc"]
    if problem["type"] == "too_short":
        return any(len(one["loc"]) > len(place) and one["loc"][: len(place)] == place for one in problems)
    if problem["type"] != "missing":
        return False
    unknown = [
        str(one["loc"][-1]) for one in problems if one["type"] == "extra_forbidden" and one["loc"][:-1] == place[:-1]
    ]
    return bool(difflib.get_close_matches(str(place[-1]), unknown, n=1, cutoff=0.5))


def _brief(document: Document, problem: ErrorDetails) -> str:
    place = _place(document, problem)
    dotted = ".".join(map(str, place))
    if problem["type"] == "extra_forbidden":
        return f"unknown key {str(place[-1])!r} in {'.'.join(map(str, place[:-1])) or 'the top'}"
    if problem["type"] == "missing":
        return f"the key {dotted} is missing"
    got = "" if problem["type"] == "value_error" else f", not {shown_value(problem['input'])}"
    return f"{dotted}: {what_is_wrong(problem)}{got}" if dotted else f"{what_is_wrong(problem)}"
