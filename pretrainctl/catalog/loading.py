"""From YAML to checked recipes and profiles; what does not fit is one line with file and line number."""

from __future__ import annotations

import difflib
import json
import os
import re
import socket
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pretrainctl.catalog.files import Kind, find, names, search_path
from pretrainctl.catalog.reading import Document, Key, Origin, files_behind, override, read_document
from pretrainctl.errors import InputError
from pretrainctl.schema import ClusterProfile, Recipe

__all__ = [
    "ACCOUNT_VARIABLE",
    "describe",
    "here",
    "load_profile",
    "load_recipe",
    "own_files",
    "profile_document",
    "recipe_document",
]

ACCOUNT_VARIABLE = "PRETRAINCTL_ACCOUNT"
"""Environment variable with the account that jobs are charged to."""

M = TypeVar("M", bound=BaseModel)


def load_recipe(name: str, settings: Sequence[str] = (), *, cluster: str | None = None) -> Recipe:
    """The recipe of that name or path as it is on `cluster` (the name in a profile), with `key=value` settings.

    What its section `clusters:` says for that name is laid over the rest. InputError says what does not fit.
    """
    return _checked(Recipe, recipe_document(name, settings, cluster=cluster))


def load_profile(name: str, settings: Sequence[str] = ()) -> ClusterProfile:
    """The cluster profile of that name or path, with `key=value` settings applied.

    Where the site wants an account, the variable PRETRAINCTL_ACCOUNT gives it, over the profile's own. Errors name a
    setting with the `cluster.` that people type in front.
    """
    return _checked(ClusterProfile, profile_document(name, settings))


def recipe_document(name: str, settings: Sequence[str] = (), *, cluster: str | None = None) -> Document:
    """The values behind `load_recipe`, not yet checked, each with its origin."""
    document = read_document("recipes", find("recipes", name), cluster=cluster)
    override(document, settings)
    return document


def profile_document(name: str, settings: Sequence[str] = ()) -> Document:
    """The values behind `load_profile`, not yet checked, each with its origin."""
    document = read_document("cluster_profiles", find("cluster_profiles", name))
    account = document.values.get("account")
    given = os.environ.get(ACCOUNT_VARIABLE)
    if given and isinstance(account, dict) and account.get("required") is True:
        account["name"] = given
        document.origins["account", "name"] = Origin(f"${ACCOUNT_VARIABLE}")
    override(document, settings, prefix="cluster.")
    return document


def own_files(kind: Kind, name: str) -> tuple[Path, ...]:
    """The files behind a recipe or profile that are not shipped, the nearest first."""
    shipped = search_path(kind)[-1].resolve()
    return tuple(path for path in files_behind(kind, find(kind, name)) if path.resolve().parent != shipped)


def describe(kind: Kind) -> tuple[tuple[str, str, Path], ...]:
    """Name, description and file of each known recipe or profile; a broken one says so in its description."""
    rows = []
    for name in names(kind):
        path = find(kind, name)
        try:
            values = read_document(kind, path).values
        except InputError as error:
            rows.append((name, f"(broken: {error})", path))
            continue
        rows.append((name, str(values.get("description", "")).strip(), path))
    return tuple(rows)


def here(host: str | None = None) -> str | None:
    """The profile whose login or compute host patterns match this host's full name; None where none does."""
    full = host or socket.getfqdn()
    for name in names("cluster_profiles"):
        hosts = load_profile(name).hosts
        if any(re.fullmatch(pattern, full) for pattern in (*hosts.login, *hosts.compute)):
            return name
    return None


def _checked(model: type[M], document: Document) -> M:
    try:
        # JSON mode: lists become tuples and text becomes paths, yet "2" is no number and 1 no truth value.
        return model.model_validate_json(json.dumps(document.values))
    except ValidationError as error:
        raise _explain(document, model, error) from error


def _explain(document: Document, model: type[BaseModel], error: ValidationError) -> InputError:
    problems = error.errors(include_url=False)
    # A key that is misspelt is missing too: the misspelling says more.
    first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    place: Key = first["loc"]
    written = _written(document.values, place)
    whole_section = first["type"] == "value_error" and isinstance(first["input"], dict)
    origin = document.newest(written) if whole_section else document.origin(written)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    dotted = ".".join(str(part) for part in written)
    if first["type"] == "extra_forbidden":
        known = _known_keys(model, place[:-1])
        near = difflib.get_close_matches(str(place[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        section = ".".join(str(part) for part in place[:-1]) or "the top"
        return InputError(f"{origin}: unknown key {str(place[-1])!r} in {section}{more}", hint=hint)
    if first["type"] == "missing":
        missing = [".".join(map(str, one["loc"])) for one in problems if one["type"] == "missing"]
        what = f"the key {missing[0]} is" if len(missing) == 1 else f"the keys {', '.join(missing)} are"
        others = len(problems) - len(missing)
        more = f" (and {others} other problems)" if others else ""
        return InputError(f"{origin}: {what} missing{more}", hint=_meaning(model, place))
    message = first["msg"].removeprefix("Value error, ")
    got = "" if first["type"] == "value_error" or not dotted else f", not {_short(first['input'])}"
    what = f"{dotted}: " if dotted else ""
    return InputError(f"{origin}: {what}{message}{got}{more}", hint=_meaning(model, place))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _written(values: Any, place: Key) -> Key:
    """The part of pydantic's location that exists in what was written (it adds names of union members)."""
    found: list[str | int] = []
    for part in place:
        known = values if isinstance(values, dict) else range(len(values)) if isinstance(values, list) else ()
        if part not in known:
            break
        values = values[part]
        found.append(part)
    return tuple(found)


def _model_at(model: type[BaseModel], place: Key) -> type[BaseModel] | None:
    """The section that stands at a place, if a section stands there."""
    kind: Any = model
    for part in place:
        kind = _unwrap(kind)
        if typing.get_origin(kind) in (dict, tuple):
            kind = typing.get_args(kind)[-1 if typing.get_origin(kind) is dict else 0]
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and part in kind.model_fields:
            kind = kind.model_fields[str(part)].annotation
        else:
            return None
    kind = _unwrap(kind)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _unwrap(annotation: Any) -> Any:
    """`X` out of `X | None` and `Annotated[X, ...]`."""
    while typing.get_origin(annotation) in (types.UnionType, typing.Union, typing.Annotated):
        annotation = typing.get_args(annotation)[0]
    return annotation


def _known_keys(model: type[BaseModel], place: Key) -> tuple[str, ...]:
    section = _model_at(model, place)
    keys = tuple(section.model_fields) if section else ()
    return (*keys, "extends", *(("clusters",) if model is Recipe else ())) if not place else keys


def _meaning(model: type[BaseModel], place: Key) -> str:
    """The docstring of the field at a place, as a hint."""
    for length in range(len(place), 0, -1):
        section = _model_at(model, place[: length - 1])
        field = section.model_fields.get(str(place[length - 1])) if section else None
        if field is not None and field.description:
            return f"{place[length - 1]}: {field.description}"
    return ""
