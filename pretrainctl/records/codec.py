"""Frozen dataclasses to JSON and back, strictly: an unknown or missing key is an error, never a guess."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import stat
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pretrainctl.errors import LedgerError

__all__ = [
    "create",
    "from_json",
    "open_regular",
    "read",
    "read_if_there",
    "read_if_whole",
    "read_known",
    "refuse_unwritable",
    "sync_directory",
    "to_json",
    "write",
]

T = TypeVar("T")

_LARGEST = 64 << 20
"""Bytes of a file that is read as a record: the largest of ours, a run with its recipe, profile and plan, takes a
thousandth of it."""


def to_json(record: object) -> Any:
    """A record as plain JSON values; enums become their values, tuples lists."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {field.name: to_json(getattr(record, field.name)) for field in dataclasses.fields(record)}
    if isinstance(record, Enum):
        return record.value
    if isinstance(record, Path):
        return str(record)
    if isinstance(record, Mapping):
        return {str(key): to_json(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [to_json(item) for item in record]
    return record


def from_json(kind: type[T], data: Any) -> T:
    """Build a record of `kind` from plain JSON values; ValueError names the field that does not fit."""
    return typing.cast("T", _build(kind, data, kind.__name__))


def write(path: Path, record: object) -> None:
    """Write a record as one JSON file: aside, fsynced, renamed, the directory fsynced.

    An OSError leaves `path` as it was, and nothing beside it.
    """
    aside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")  # several hosts may write it at once
    try:
        _write_durably(aside, record)
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def create(path: Path, record: object) -> bool:
    """Write a record as `write` does where nothing stands at `path`; False, and no change, where something does."""
    aside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        _write_durably(aside, record)
        # link(2) fails where the name is taken: of several writers one wins.
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def refuse_unwritable(folder: Path) -> None:
    """OSError where no record could be written into a folder now."""
    aside = folder / f".probe.{os.urandom(8).hex()}"
    try:
        _write_durably(aside, {})
    finally:
        aside.unlink(missing_ok=True)


def _write_durably(path: Path, record: object) -> None:
    # A lone surrogate, as in the name of a file of other bytes, becomes the escape that JSON has for it.
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(to_json(record), file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def read(kind: type[T], path: Path) -> T:
    """Read a record that `write` wrote; LedgerError names the file that cannot be read.

    Its cause is an OSError only where the file system did not give the file; else the file holds no record.
    """
    return _read(path, lambda data: from_json(kind, data))


def read_known(kind: type[T], path: Path) -> T:
    """As `read`, of a record that a newer version may have written: keys that are not known here are left out."""
    known = {field.name for field in dataclasses.fields(typing.cast("Any", kind))}

    def build(data: Any) -> T:
        return from_json(kind, {key: data[key] for key in data if key in known} if isinstance(data, dict) else data)

    return _read(path, build)


def _read(path: Path, build: Callable[[Any], T]) -> T:
    try:
        return build(json.loads(_text(path)))
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="restore it where it is gone, else look at its permissions and its file system",
        ) from error
    except ValueError as error:
        raise LedgerError(f"{path} cannot be read: {error}", hint="restore the file, or move it aside") from error
    except RecursionError as error:
        raise LedgerError(
            f"{path} cannot be read: it is nested too deep", hint="restore the file, or move it aside"
        ) from error


def _text(path: Path) -> str:
    """The text of a regular file; ValueError for anything else."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _LARGEST:
            raise ValueError(f"it has {size} bytes, and no record has more than {_LARGEST}")
        return file.read().decode("utf-8")


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read it; ValueError for anything else, such as a fifo, which may keep its reader for
    ever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is no regular file")
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: PTH123, SIM115 - a descriptor
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("it is no regular file")
    return file


def read_if_there(kind: type[T], path: Path) -> T | None:
    """As `read`; None where nothing stands at `path`, and only there."""
    try:
        return read(kind, path)
    except LedgerError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def read_if_whole(kind: type[T], path: Path) -> T | None:
    """Read a record that a program may be writing just now, or never wrote; None where there is no whole one."""
    try:
        return read(kind, path) if path.exists() else None
    except LedgerError:
        return None


def sync_directory(directory: Path) -> None:
    """Make a rename in `directory` durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _build(kind: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return data
    if origin in (types.UnionType, typing.Union):
        return _build_union(kind, data, where)
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{where}: a list is needed, not {data!r}")
        item = typing.get_args(kind)[0]
        return tuple(_build(item, value, f"{where}[{index}]") for index, value in enumerate(data))
    if origin in (dict, Mapping) or origin is getattr(typing.Mapping, "__origin__", None):
        if not isinstance(data, dict):
            raise ValueError(f"{where}: an object is needed, not {data!r}")
        item = typing.get_args(kind)[1]
        return {key: _build(item, value, f"{where}.{key}") for key, value in data.items()}
    if origin is typing.Literal:
        if data not in typing.get_args(kind):
            raise ValueError(f"{where}: {data!r} is none of {typing.get_args(kind)}")
        return data
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, data, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    return _build_plain(kind, data, where)


def _build_union(kind: Any, data: Any, where: str) -> Any:
    options = typing.get_args(kind)
    if data is None and type(None) in options:
        return None
    problems = []
    for option in options:
        if option is type(None):
            continue
        try:
            return _build(option, data, where)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError("; ".join(problems))


@functools.cache
def _hints_of(kind: type) -> dict[str, Any]:
    """Asked once a kind: a record of thousands of others takes more than twice as long without."""
    return typing.get_type_hints(kind)


def _build_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{where}: an object is needed, not {data!r}")
    hints = _hints_of(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(set(data) - set(fields))
    if unknown:
        raise ValueError(f"{where}: unknown key {unknown[0]!r}")
    values = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _build(hints[name], data[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where}: the key {name!r} is missing")
    return kind(**values)


def _build_plain(kind: Any, data: Any, where: str) -> Any:
    if kind is Path and isinstance(data, str):
        return Path(data)
    if kind is float and isinstance(data, (int, float)) and not isinstance(data, bool):
        try:
            return float(data)
        except OverflowError:
            raise ValueError(f"{where}: a number of {len(str(data))} digits is too great") from None
    if isinstance(data, kind) and not (kind is int and isinstance(data, bool)):
        return data
    raise ValueError(f"{where}: {data!r} is not of type {getattr(kind, '__name__', kind)}")
