"""Where recipes, profiles and templates lie: the user's configuration folder first, then what is shipped."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Literal

from pretrainctl.errors import InputError, MissingError

__all__ = [
    "Kind",
    "expand_home",
    "find",
    "names",
    "path_from_here",
    "search_path",
    "short_path",
    "template_dir",
]

Kind = Literal["recipes", "cluster_profiles"]

_SINGULAR = {"recipes": "recipe", "cluster_profiles": "cluster profile"}
_SUFFIXES = (".yaml", ".yml")


def _shipped(folder: str) -> Path:
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "_data" / folder, package.parent / folder):
        if candidate.is_dir():
            return candidate
    raise MissingError(f"the shipped folder {folder!r} is missing beside {package}", hint="install pretrainctl again")


def _config_dir() -> Path:
    chosen = os.environ.get("PRETRAINCTL_CONFIG")
    if chosen:
        return expand_home(chosen)
    return expand_home(os.environ.get("XDG_CONFIG_HOME") or "~/.config") / "pretrainctl"


def expand_home(path: str | Path) -> Path:
    """The path with `~` or `~user` at its start replaced; InputError where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(f"{str(path)!r} names the home folder of nobody here", hint="write the path out") from error


def short_path(path: Path) -> str:
    """A path as people say it: a shipped file by its folder and name, one in the home folder with `~`."""
    kinds: tuple[Kind, ...] = ("recipes", "cluster_profiles")
    for kind in kinds:
        if path.parent == _shipped(kind):
            return f"{kind}/{path.name}"
    home = expand_home("~")
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) and len(home.parts) > 1 else str(path)


def path_from_here(path: Path) -> str:
    """A path that opens where the command was given: relative below the working folder, else absolute."""
    whole = path.absolute()
    return str(whole.relative_to(Path.cwd())) if whole.is_relative_to(Path.cwd()) else str(whole)


def template_dir() -> Path:
    """The folder of the script templates."""
    return _shipped("templates")


def search_path(kind: Kind) -> tuple[Path, ...]:
    """Folders in which a name is looked for, the first wins."""
    return (_config_dir() / kind, _shipped(kind))


def names(kind: Kind) -> tuple[str, ...]:
    """Names that `find` knows, sorted."""
    return tuple(
        sorted(
            {
                file.stem
                for folder in search_path(kind)
                if folder.is_dir()
                for file in folder.iterdir()
                if file.suffix in _SUFFIXES and not file.name.startswith(".") and file.is_file()
            }
        )
    )


def find(kind: Kind, name: str, *, beside: Path | None = None) -> Path:
    """The file of a recipe or profile.

    A `name` with a slash or a YAML suffix is a path; a relative one starts at the folder of `beside`, or at
    the current folder. With `beside`, a bare name finds another file than `beside` itself, so that a user's
    `leonardo.yaml` can extend the shipped one of the same name. InputError names the nearest known name.
    """
    if "/" in name or name.endswith(_SUFFIXES):
        path = (beside.parent if beside else Path()) / expand_home(name)
        if not path.is_file():
            raise InputError(f"there is no {_SINGULAR[kind]} file {path}", hint="check the path")
        return path
    odd = ""
    for folder in search_path(kind):
        for suffix in _SUFFIXES:
            path = folder / f"{name}{suffix}"
            if path.is_file() and not (beside and path.resolve() == beside.resolve()):
                return path
            if os.path.lexists(path) and not path.is_file():
                odd = f"{path} is {'a folder' if path.is_dir() else 'a link that leads nowhere'}"
    if odd:
        raise InputError(f"there is no {_SINGULAR[kind]} {name!r}: {odd}", hint="a YAML file is needed there")
    known = names(kind)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}; a path works too"
    raise InputError(f"there is no {_SINGULAR[kind]} {name!r}", hint=hint)
