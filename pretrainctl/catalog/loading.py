"""From YAML to checked recipes and profiles; what does not fit is one line with file and line number."""

from __future__ import annotations

import contextlib
import difflib
import json
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pretrainctl.catalog.account import give_account
from pretrainctl.catalog.attribution import attribute
from pretrainctl.catalog.files import Kind, find, names, search_path
from pretrainctl.catalog.reading import (
    Document,
    Key,
    files_behind,
    join,
    override,
    read_chain,
    read_document,
    sections,
)
from pretrainctl.catalog.wording import SHAPES, shown_value, what_else, what_is_wrong, written_part
from pretrainctl.errors import InputError
from pretrainctl.schema import ClusterProfile, Recipe

__all__ = [
    "describe",
    "lineage",
    "load_profile",
    "load_recipe",
    "own_files",
    "profile_document",
    "recipe_document",
]

_WHOLE_PROFILE = (
    "say `extends: NAME` to take over another profile, or begin with the least whole one, in cluster_profiles/README.md"
)
_DEEPEST = 4
"""Sections inside sections in which a key is looked for."""

M = TypeVar("M", bound=BaseModel)


def load_recipe(name: str, settings: Sequence[str] = (), *, clusters: Sequence[str] = ()) -> Recipe:
    """The recipe of that name or path as it is on a cluster, with `key=value` settings.

    `clusters` are the names that the cluster's profile goes by (`lineage`): what the recipe says for them under
    `clusters:` is laid over the rest. InputError says what does not fit, in the sections of other clusters too.
    """
    recipe, _ = _checked(Recipe, lambda some: recipe_document(name, some, clusters=clusters), settings)
    _check_sections(name, clusters)
    return recipe


def load_profile(name: str, settings: Sequence[str] = ()) -> ClusterProfile:
    """The cluster profile of that name or path, with `key=value` settings applied.

    Where the site wants an account, the variable PRETRAINCTL_ACCOUNT gives it, over the profile's own. Errors name a
    setting with the `cluster.` that people type in front. Its sections know which values are not of their provenance.
    """
    profile, document = _checked(ClusterProfile, lambda some: profile_document(name, some), settings)
    attribute(profile, document)
    return profile


def lineage(name: str) -> tuple[str, ...]:
    """The names that a profile goes by, the nearest first: its own, its file's, and those of all that it extends."""
    found: list[str] = []
    for file, document in read_chain("cluster_profiles", find("cluster_profiles", name)):
        found += [said for said in (document.values.get("name"), file.stem) if isinstance(said, str)]
    return tuple(dict.fromkeys(found))


def recipe_document(name: str, settings: Sequence[str] = (), *, clusters: Sequence[str] = ()) -> Document:
    """The values behind `load_recipe`, not yet checked, each with its origin."""
    document = read_document("recipes", find("recipes", name), clusters=clusters)
    override(document, settings)
    return document


def profile_document(name: str, settings: Sequence[str] = ()) -> Document:
    """The values behind `load_profile`, not yet checked, each with its origin."""
    document = read_document("cluster_profiles", find("cluster_profiles", name))
    give_account(document)
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


def _check_sections(name: str, clusters: Sequence[str]) -> None:
    """InputError for a section under `clusters:` that is no profile's, or holds what no recipe can."""
    chain = read_chain("recipes", find("recipes", name))
    for cluster, section in sections(chain):
        if cluster in clusters:
            continue
        known = {*names("cluster_profiles"), *clusters}
        if cluster not in known:
            known |= _declared_names()
        if cluster not in known:
            near = difflib.get_close_matches(cluster, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
            raise InputError(
                f"{section.origin(())}: clusters: there is no cluster profile {cluster!r} for which this could count",
                hint=hint,
            )
        document = join("recipes", chain, (cluster,))
        try:
            _validate(Recipe, document)
        except ValidationError as error:
            problems = [one for one in error.errors(include_url=False) if _lies_in(section, one)]
            if problems:
                raise _explain(document, Recipe, problems, set()) from error


def _declared_names() -> set[str]:
    """Names that profiles go by without being found by them."""
    found: set[str] = set()
    for name in names("cluster_profiles"):
        with contextlib.suppress(InputError):  # a broken one has none
            found.update(lineage(name))
    return found


def _lies_in(section: Document, problem: ErrorDetails) -> bool:
    """Whether it is a value of this section that is wrong, and not what it makes of the rest."""
    written = written_part(section.values, problem["loc"])
    told = problem["type"] in ("extra_forbidden", "missing") or not isinstance(problem["input"], dict)
    return told and bool(written) and written in section.origins


def _checked(model: type[M], build: Callable[[Sequence[str]], Document], settings: Sequence[str]) -> tuple[M, Document]:
    document = build(settings)
    try:
        return _validate(model, document), document
    except ValidationError as error:
        blamed = _settings_to_blame(model, build, settings, error)
        raise _explain(document, model, error.errors(include_url=False), blamed) from error


def _validate(model: type[M], document: Document) -> M:
    # JSON mode: lists become tuples and text becomes paths, yet "2" is no number and 1 no truth value.
    return model.model_validate_json(json.dumps(document.values))


def _settings_to_blame(
    model: type[M], build: Callable[[Sequence[str]], Document], settings: Sequence[str], error: ValidationError
) -> set[str]:
    """The settings without which a section would fit, or fit less badly; others may stand in it too."""
    problem, blamed = _first(error.errors(include_url=False)), set()
    for index, setting in enumerate(settings):
        with contextlib.suppress(InputError):
            try:
                _validate(model, build([*settings[:index], *settings[index + 1 :]]))
            except ValidationError as without:
                other = _first(without.errors(include_url=False))
                if other["loc"] != problem["loc"] or other["msg"] == problem["msg"]:
                    continue
            blamed.add(f"--set {'cluster.' if model is ClusterProfile else ''}{setting}")
    return blamed


def _first(problems: Sequence[ErrorDetails]) -> ErrorDetails:
    """The problem to tell. A key that is misspelt is missing too: the misspelling says more."""
    return next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])


def _explain(
    document: Document, model: type[BaseModel], problems: Sequence[ErrorDetails], settings_to_blame: set[str]
) -> InputError:
    first = _first(problems)
    written = written_part(document.values, first["loc"])
    place: Key = (*written, first["loc"][-1]) if first["type"] == "missing" else written
    whole_section = first["type"] == "value_error" and isinstance(first["input"], dict)
    origin = document.newest(written, settings_to_blame) if whole_section else document.origin(written)
    more = what_else(document, problems, [first])
    dotted = ".".join(str(part) for part in written)
    if first["type"] == "extra_forbidden":
        known = _known_keys(model, place[:-1])
        # A whole path is said as it would be typed.
        typed = "cluster." if origin.source.startswith("--set cluster.") else ""
        near = [f"{typed}{name}" if "." in name else name for name in _nearest(model, place, known)]
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known keys: {', '.join(known)}"
        section = ".".join(str(part) for part in place[:-1]) or "the top"
        return InputError(f"{origin}: unknown key {str(place[-1])!r} in {section}{more}", hint=hint)
    if first["type"] == "missing":
        missing = [one for one in problems if one["type"] == "missing"]
        named = [".".join(map(str, (*written_part(document.values, one["loc"]), one["loc"][-1]))) for one in missing]
        what = f"the key {named[0]} is" if len(named) == 1 else f"the keys {', '.join(named)} are"
        more = what_else(document, problems, missing)
        whole = model is ClusterProfile and sum("." not in name for name in named) > 1
        hint = _WHOLE_PROFILE if whole else _meaning(model, place)
        return InputError(f"{origin}: {what} missing{more}", hint=hint)
    expected = SHAPES.get(first["type"])
    if expected is not None and dotted:
        hint = _form(model, written, first["input"], expected) or _meaning(model, place)
        return InputError(
            f"{origin}: {dotted}: {expected} is expected, not {shown_value(first['input'])}{more}", hint=hint
        )
    message = what_is_wrong(first)
    got = "" if first["type"] == "value_error" or not dotted else f", not {shown_value(first['input'])}"
    what = f"{dotted}: " if dotted else ""
    return InputError(f"{origin}: {what}{message}{got}{more}", hint=_meaning(model, place))


def _form(model: type[BaseModel], place: Key, value: Any, expected: str) -> str:
    """How a single value would be written where a section or a list is expected."""
    if not isinstance(value, (str, int, float)) or not place:
        return ""
    section = _model_at(model, (*place, 0) if expected == "a list" else place)
    if section is None:
        return f"write {place[-1]}: [{value}]" if expected == "a list" else ""
    needed = [name for name, field in section.model_fields.items() if field.is_required()]
    key = "name" if "name" in section.model_fields else needed[0] if needed and expected == "a list" else None
    written = f"{{{key}: {value}}}" if expected == "a section" else f"[{{{key}: {value}, ...}}]"
    return (
        f"write {place[-1]}: {written}" if key else f"{_meaning(model, place)} Keys: {', '.join(section.model_fields)}"
    )


def _model_at(model: type[BaseModel], place: Key) -> type[BaseModel] | None:
    """The section that stands at a place, if a section stands there."""
    kind: Any = model
    for part in place:
        kind = _unwrap(kind)
        if typing.get_origin(kind) in (dict, tuple):
            kind = typing.get_args(kind)[-1 if typing.get_origin(kind) is dict else 0]
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and part in kind.model_fields:
            kind = kind.model_fields[str(part)].annotation
        elif not isinstance(part, int):  # one section, or several of them
            return None
    kind = _unwrap(kind)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _unwrap(annotation: Any) -> Any:
    """`X` out of `X | None` and `Annotated[X, ...]`; of several, the section."""
    while typing.get_origin(annotation) in (types.UnionType, typing.Union, typing.Annotated):
        choices = typing.get_args(annotation)
        if typing.get_origin(annotation) is typing.Annotated:
            choices = choices[:1]
        sections = [one for one in map(_unwrap, choices) if isinstance(one, type) and issubclass(one, BaseModel)]
        annotation = (*sections, choices[0])[0]
    return annotation


def _nearest(model: type[BaseModel], place: Key, known: Sequence[str]) -> list[str]:
    """Keys like the last of `place`: of its own section, else of any other, those by their whole path."""
    word = str(place[-1])
    elsewhere = [path for path in _paths(model) if path[-1] == word]
    beside = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if not elsewhere:
        names = {path[-1] for path in _paths(model)}
        close = difflib.get_close_matches(word, sorted(names), n=1, cutoff=0.8)
        elsewhere = [path for path in _paths(model) if path[-1] in close and path[-1] not in beside]
        if beside and (not close or _likeness(word, beside[0]) >= _likeness(word, close[0])):
            return beside
    shortest = min(map(len, elsewhere), default=0)
    return [".".join(path) for path in elsewhere if len(path) == shortest][:3] or beside


def _likeness(word: str, other: str) -> float:
    return difflib.SequenceMatcher(None, word, other).ratio()


def _paths(model: type[BaseModel], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of a model and of the sections in it; what lies in lists and mappings has no path."""
    for name, field in model.model_fields.items():
        yield (*place, name)
        kind = _unwrap(field.annotation)
        if isinstance(kind, type) and issubclass(kind, BaseModel) and len(place) < _DEEPEST:
            yield from _paths(kind, (*place, name))


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
            return f"{place[length - 1]}: {' '.join(field.description.split())}"
    return ""
