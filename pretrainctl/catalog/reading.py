"""YAML 1.2 as plain values, each with the place it came from; `extends:` and `--set` on top."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar

from pretrainctl.catalog.files import Kind, find
from pretrainctl.catalog.variables import typed_value, variable_text
from pretrainctl.catalog.yaml_text import YAMLError, load, problem
from pretrainctl.errors import InputError

__all__ = ["Document", "Key", "Origin", "files_behind", "join", "override", "read_chain", "read_document", "sections"]

Key = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the top."""


_DEEPEST = 20
_LARGEST = 10**30
_LONGEST_POSITION = 9
_LARGEST_FILE = 256 * 1024
"""Bytes; the largest shipped file has 8 thousand, and YAML is read at about 50 kB a second."""
_MOST_VALUES = 10_000
"""Values of one file, those counted again that an alias repeats: nine lines of aliases can stand for 10**9."""
_LONGEST_TEXT = 16_384
"""Characters of one value or key, which an alias may repeat too."""


@dataclass(frozen=True)
class Origin:
    """Who wrote a value: a file and its line (from 1), or `--set` with what was typed."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclass
class Document:
    """Plain values of one recipe or profile, and the origin of each."""

    values: dict[str, Any]
    origins: dict[Key, Origin] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    """Files that it was joined from, by the sources of their origins, the nearest first."""

    def origin(self, key: Key) -> Origin:
        """The origin of a value, or of the nearest section around it."""
        while key not in self.origins and key:
            key = key[:-1]
        return self.origins[key]

    def newest(self, key: Key, settings_to_blame: Collection[str]) -> Origin:
        """Who wrote last inside a section: one of these settings (`--set ...`), else the file that was asked for, else
        whoever wrote it."""
        inside = [origin for known, origin in self.origins.items() if known[: len(key)] == key]
        settings = [origin for origin in inside if origin.source in settings_to_blame]
        asked_for = [origin for origin in inside if origin.source == self.origins[()].source]
        return (settings or asked_for[:1] or [self.origin(key)])[-1]


def read_document(kind: Kind, path: Path, *, clusters: Sequence[str] = ()) -> Document:
    """Read a file and all that it extends; InputError names file and line. `clusters` are as for `join`."""
    return join(kind, read_chain(kind, path), clusters)


def join(kind: Kind, chain: Sequence[tuple[Path, Document]], clusters: Sequence[str] = ()) -> Document:
    """The files of a chain laid over each other, the nearest last.

    `clusters` are the names that a profile goes by, the nearest first. What a recipe says under `clusters:` for one of
    them is laid over that file, the nearest name last, and under those that extend it: what somebody writes wins over
    all that they build on.
    """
    documents = [copy.deepcopy(document) for _, document in chain]
    if kind == "recipes":
        for document in documents:
            _choose_cluster(document, clusters)
    merged = documents.pop()
    while documents:
        _merge(merged, documents.pop())
    merged.files = tuple(str(path) for path, _ in chain)
    return merged


def sections(chain: Sequence[tuple[Path, Document]]) -> list[tuple[str, Document]]:
    """What the files of a recipe hold under `clusters:`, by the name of a profile; origins are inside the section."""
    return [
        (name, Document(values, _within(document, ("clusters", name))))
        for _, document in chain
        for name, values in _sections(document).items()
    ]


def files_behind(kind: Kind, path: Path) -> tuple[Path, ...]:
    """A file and all that it extends, the nearest first; InputError names file and line."""
    return tuple(file for file, _ in read_chain(kind, path))


def read_chain(kind: Kind, path: Path) -> list[tuple[Path, Document]]:
    """A file and all that it extends, the nearest first, each as it was written but for its `extends:`."""
    chain: list[tuple[Path, Document]] = []
    seen: set[Path] = set()
    current: Path | None = path
    while current is not None:
        if current.resolve() in seen:
            raise InputError(f"{current} extends itself", hint="break the circle of `extends:`")
        seen.add(current.resolve())
        document = _read_file(current)
        base = document.values.pop("extends", None)
        if base is not None and not isinstance(base, str):
            raise InputError(f"{document.origin(('extends',))}: `extends` is one name or path, not {base!r}")
        chain.append((current, document))
        try:
            current = None if base is None else find(kind, base, beside=current)
        except InputError as error:
            raise InputError(f"{document.origin(('extends',))}: extends: {error}", hint=error.hint) from error
    return chain


def _sections(document: Document) -> dict[str, dict[str, Any]]:
    found = document.values.get("clusters") or {}
    if not isinstance(found, dict) or not all(isinstance(section, dict) for section in found.values()):
        raise InputError(
            f"{document.origin(('clusters',))}: clusters: must hold one section of keys by name of a profile",
            hint="clusters: {leonardo: {resources: {nodes: 64}}}",
        )
    for name, section in found.items():
        for key in ("extends", "clusters"):
            if key in section:
                raise InputError(
                    f"{document.origin(('clusters', name, key))}: `{key}:` stands at the top of a file, not in the "
                    f"section of {name}",
                    hint="the section of a profile counts for all that extend it",
                )
    return found


def _within(document: Document, place: Key) -> dict[Key, Origin]:
    return {key[len(place) :]: known for key, known in document.origins.items() if key[: len(place)] == place}


def _choose_cluster(document: Document, clusters: Sequence[str]) -> None:
    """Lay the sections of `clusters:` that bear these names over the rest, the first last; take `clusters:` away."""
    found = _sections(document)
    chosen = [Document(found[name], _within(document, ("clusters", name))) for name in clusters if name in found]
    document.values.pop("clusters", None)
    for key in [key for key in document.origins if key[:1] == ("clusters",)]:
        del document.origins[key]
    for section in reversed(chosen):
        # The recipe stays the file that was asked for.
        section.origins[()] = document.origins[()]
        _merge(document, section)


def override(document: Document, settings: Sequence[str], *, prefix: str = "") -> None:
    """Apply `key.subkey=value` settings in order; the value is read as YAML and replaces what was there.

    `prefix` is what was typed in front of each, and is not part of its key.
    """
    for setting in settings:
        name, equals, text = setting.partition("=")
        typed = f"{prefix}{setting}"
        keys = name.strip().split(".")
        if not equals or not all(keys):
            raise InputError(f"--set {typed}: not of the form key.subkey=value")
        if keys[0] in ("extends", "clusters"):
            raise InputError(
                f"--set {typed}: `{keys[0]}:` is read from files only",
                hint="write it in a file of your own",
            )
        place: Key = tuple(int(key) if _is_position(key) else key for key in keys)
        try:
            value = _plain(typed_value(load(text), text, place), Origin(f"--set {typed}"), place, {})
        except YAMLError as error:
            raise InputError(f"--set {typed}: the value is not YAML ({problem(error)})") from error
        target: Any = document.values
        for depth, key in enumerate(keys[:-1], start=1):
            target = _enter(target, key, keys[:depth], typed)
            document.origins.setdefault(place[:depth], Origin(f"--set {typed}"))
        last = keys[-1]
        for known in [known for known in document.origins if known[: len(place)] == place]:
            del document.origins[known]
        document.origins[place] = Origin(f"--set {typed}")
        if isinstance(target, list):
            target[_position(target, last, keys, typed)] = value
        else:
            target[last] = value


def _enter(target: Any, key: str, path: list[str], setting: str) -> Any:
    if isinstance(target, list):
        entered = target[_position(target, key, path, setting)]
    else:
        entered = target.get(key)
        if entered is None:
            entered = target[key] = {}
    if not isinstance(entered, (dict, list)):
        raise InputError(f"--set {setting}: {'.'.join(path)} is {entered!r}, which has no keys")
    return entered


def _is_position(key: str) -> bool:
    # `isdigit` alone is true of `\u00b2` too, and `int` reads no more than 4300 digits.
    return key.isascii() and key.isdigit() and len(key) <= _LONGEST_POSITION


def _position(target: list[Any], key: str, path: list[str], setting: str) -> int:
    if not _is_position(key) or int(key) >= len(target):
        raise InputError(
            f"--set {setting}: {'.'.join(path[:-1]) or 'the top'} is a list of {len(target)}",
            hint="say its position from 0, or set the whole list: key='[a, b]'",
        )
    return int(key)


def _read_file(path: Path) -> Document:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise InputError(
                f"{path} is larger than {_LARGEST_FILE} bytes, the most that is read as a recipe or profile",
                hint="is it the right file?",
            )
        loaded = load(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason})") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise InputError(f"{where}: broken YAML: {problem(error)}", hint="check indentation and quotes") from error
    if not isinstance(loaded, CommentedMap):
        raise InputError(f"{path}:1: a mapping of keys is needed at the top")
    origins: dict[Key, Origin] = {}
    values = _plain(loaded, Origin(str(path), 1), (), origins)
    return Document(values, origins)


def _plain(value: Any, origin: Origin, place: Key, origins: dict[Key, Origin]) -> Any:
    """Plain values out of ruamel's, which carry comments and lines."""
    origins[place] = origin
    _refuse_too_many(origin, place, origins)
    value = variable_text(value, place)
    if isinstance(value, TaggedScalar) or getattr(getattr(value, "tag", None), "value", None):
        raise InputError(f"{origin}: YAML tags such as {value.tag.value} are not used here")
    if isinstance(value, CommentedMap):
        result = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(f"{origin}: the key {key!r} must be text")
            line = value.lc.data[key][0] + 1 if key in (value.lc.data or {}) else origin.line
            name = _text(key, origin)
            result[name] = _plain(item, Origin(origin.source, line), (*place, name), origins)
        return result
    if isinstance(value, CommentedSeq):
        return [
            _plain(item, Origin(origin.source, _item_line(value, index, origin)), (*place, index), origins)
            for index, item in enumerate(value)
        ]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        # ruamel reads an anchored true as an int of its own kind
        return bool(value) if type(value).__name__ == "ScalarBoolean" else _whole(int(value), origin)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return _text(str(value), origin)
    if isinstance(value, date):
        return value.isoformat()
    raise InputError(f"{origin}: {value!r} cannot be used as a value")


def _refuse_too_many(origin: Origin, place: Key, origins: dict[Key, Origin]) -> None:
    if len(place) > _DEEPEST:
        raise InputError(f"{origin}: nested too deeply, or an alias inside itself")
    if len(origins) > _MOST_VALUES:
        raise InputError(
            f"{origin}: more than {_MOST_VALUES} values, the most that is read, those that aliases repeat among them",
            hint="leave out aliases of sections that hold aliases",
        )


def _whole(value: int, origin: Origin) -> int:
    if abs(value) > _LARGEST:
        raise InputError(f"{origin}: a number beyond {float(_LARGEST):.0e} counts nothing here")
    return value


def _text(value: str, origin: Origin) -> str:
    if len(value) > _LONGEST_TEXT:
        raise InputError(f"{origin}: a text of {len(value)} characters, at most {_LONGEST_TEXT} are read")
    try:
        # JSON escapes a character beyond the first 65536 as two halves, which YAML leaves apart.
        return value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise InputError(f"{origin}: {value!r} is no valid text", hint="leave out what it escapes") from error


def _item_line(items: CommentedSeq, index: int, origin: Origin) -> int | None:
    data = items.lc.data or {}
    return data[index][0] + 1 if index in data else origin.line


def _merge(base: Document, top: Document) -> None:
    """Lay `top` over `base`: mappings key by key, all else replaced."""
    replaced: set[Key] = set()

    def lay(under: dict[str, Any], over: dict[str, Any], place: Key) -> None:
        for key, value in over.items():
            here = (*place, key)
            if isinstance(value, dict) and isinstance(under.get(key), dict):
                lay(under[key], value, here)
                continue
            under[key] = value
            replaced.add(here)

    def lies_in_replaced(key: Key) -> bool:
        return any(key[:length] in replaced for length in range(1, len(key) + 1))

    lay(base.values, top.values, ())
    for known in [known for known in base.origins if lies_in_replaced(known)]:
        del base.origins[known]
    base.origins.update({known: origin for known, origin in top.origins.items() if lies_in_replaced(known)})
    base.origins[()] = top.origins[()]
