"""The training program: that its files are there before anything is queued, as far as that shows outside a job."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pretrainctl.errors import InputError
from pretrainctl.records.launch import Launch

__all__ = ["refuse_missing_program"]

_PYTHON = re.compile(r"python[0-9.]*|pypy3?")
_SHELL = re.compile(r"bash|sh|dash|zsh|ksh")
_SCRIPT = re.compile(r"/.*\.(?:py|sh|pl|rb|jl|R)")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{\w+\})")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/etc", "/var", "/tmp", "/dev", "/run")  # noqa: S108 - told apart, not used
"""What each node has of its own, which need not be as on the login node."""
_SCRATCH = re.compile(r"/(?:local|l_?scratch|(?:local|node)_?scratch|scratch_?local|nvme\w*|ssd\w*)(?:/|$)")
"""Names that sites give to the disk of a node."""


def refuse_missing_program(launch: Launch, run_dir: Path, profile: Mapping[str, Any]) -> None:
    """InputError where a file that each start needs is surely missing: the interpreter, the program, the image.

    What lies inside an image, or may lie on compute nodes only, is left alone: their own system and disk, storage of
    `profile` that lasts as long as a job, and $TMPDIR. Where the cluster is one machine, nothing is elsewhere.
    """
    for key, word, runs in _needed(launch, profile):
        if _VARIABLE.search(word) or word.startswith("~"):
            raise InputError(
                f"{key}: {word!r} is taken as it is written: no shell replaces `~` or a variable in it",
                hint="write the whole path",
            )
        path = run_dir / word
        if "{" in word or _may_be_there_only(path, launch, profile):
            continue
        wrong = _wrong(path, runs=runs)
        if wrong and not Path(word).is_absolute():
            raise InputError(f"{key}: {path} {wrong}", hint="write the whole path: the job starts in the run folder")
        if wrong:
            raise InputError(f"{key}: {path} {wrong}", hint="check the path, and what it may do")


def _needed(launch: Launch, profile: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """The key, the word, and whether it is run itself, of each file that a start needs on the file systems outside."""
    if launch.python.startswith("/"):
        yield "cluster.python.control", launch.python, True
    if launch.container:
        if launch.container[0].startswith("/"):
            yield "cluster.container.binary", launch.container[0], True
        yield "cluster.container.image", launch.container[-1], False
        return
    if launch.torchrun and "/" in launch.torchrun[0]:
        yield "cluster.python.training", launch.torchrun[0], True
    if "/" in launch.program[0]:
        chosen = (profile.get("python") or {}).get("training") == launch.program[0]
        yield "cluster.python.training" if chosen else "program.argv.0", launch.program[0], True
    place = _script(launch.program)
    if place is not None:
        yield f"program.argv.{place}", launch.program[place], False


def _script(argv: Sequence[str]) -> int | None:
    """Where the script stands that an interpreter reads; behind another program, a whole path that ends like one."""
    name = Path(argv[0]).name
    if _PYTHON.fullmatch(name) or _SHELL.fullmatch(name):
        ends, takes = ("cm", "WX") if _PYTHON.fullmatch(name) else ("cs", "oO")
        index = 1
        while index < len(argv) and argv[index][:1] in {"-", "+"}:
            if argv[index] in {"-", "--"} or argv[index].startswith("--"):
                return None if argv[index] != "--" or index + 1 == len(argv) else index + 1
            found = next((place for place, letter in enumerate(argv[index]) if letter in ends + takes), None)
            if found is not None and argv[index][found] in ends:
                return _behind(argv, index)
            index += 2 if found == len(argv[index]) - 1 else 1
        return index if index < len(argv) else None
    return _behind(argv, 0)


def _behind(argv: Sequence[str], begin: int) -> int | None:
    """The first whole path of a script that is not the value of an option."""
    for index in range(begin + 1, len(argv)):
        after_option = index > begin + 1 and argv[index - 1].startswith("-") and "=" not in argv[index - 1]
        if _SCRIPT.fullmatch(argv[index]) and not after_option:
            return index
    return None


def _may_be_there_only(path: Path, launch: Launch, profile: Mapping[str, Any]) -> bool:
    if launch.address.kind == "localhost":
        return False
    own = os.environ.get("TMPDIR", "").rstrip("/")
    below = (*_SYSTEM, own) if own.startswith("/") else _SYSTEM
    if any(path.is_relative_to(folder) for folder in below) or _SCRATCH.search(str(path)):
        return True
    tiers = [tier for tier in profile.get("storage") or () if tier.get("lasts") == "job" and tier.get("path")]
    patterns = [re.escape(str(tier["path"]).rstrip("/")).replace(r"\*", "[^/]+") for tier in tiers]
    return any(re.match(rf"{pattern}(?:/|$)", str(path)) for pattern in patterns)


def _wrong(path: Path, *, runs: bool) -> str:
    """Why a file cannot be what it must be, "" where it can, or a folder that may not be read hides it."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except OSError:
        return ""
    if runs and path.is_dir():
        return "is a folder, not a program"
    return "is not executable" if runs and not os.access(path, os.X_OK) else ""
