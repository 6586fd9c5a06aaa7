"""Lint: batch scripts of one's own -> the known mistakes in them. Nothing is run, and no machine is asked."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pretrainctl import catalog, linting
from pretrainctl.errors import InputError
from pretrainctl.linting import Finding
from pretrainctl.schema import ClusterProfile
from pretrainctl.workflows.place import find_cluster

__all__ = ["Report", "lint_scripts"]

_LARGEST = 1 << 18


@dataclass(frozen=True)
class Report:
    """What was found in a script."""

    script: Path
    cluster: str | None
    """Whose rules were checked too; None: no site's."""
    errors: int
    warnings: int
    findings: tuple[Finding, ...]


def lint_scripts(paths: Sequence[Path], cluster: str | None) -> tuple[Report, ...]:
    """The known mistakes in each batch script; `cluster` None means the one this host belongs to, if any.

    `-` is stdin. InputError where one of the files cannot be read as a bash script.
    """
    name = cluster or find_cluster()
    profile = catalog.load_profile(name) if name else None
    return tuple(_lint(path, profile) for path in paths)


def _lint(path: Path, profile: ClusterProfile | None) -> Report:
    shown = Path("<stdin>") if path == Path("-") else path
    try:
        findings = linting.check(_read(path, shown), profile)
    except RecursionError:
        raise InputError(f"{shown} nests too deep to be read", hint="name a batch script") from None
    errors = sum(finding.severity == "error" for finding in findings)
    return Report(shown, profile.name if profile else None, errors, len(findings) - errors, findings)


def _read(path: Path, shown: Path) -> str:
    try:
        read = _bytes(path)
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{shown} cannot be read: {why}", hint="name a batch script, or - for stdin") from None
    if len(read) > _LARGEST:
        raise InputError(
            f"{shown} is too long: a batch script has at most {_LARGEST} bytes", hint="name a batch script"
        )
    text = read.decode("utf-8", errors="replace")
    first = text.split("\n", 1)[0]
    if first.startswith("#!") and not re.search(r"\b(ba|z|k|da)?sh\b", first):
        raise InputError(f"{shown} begins with {first.strip()!r}, and lint reads bash", hint="name a bash script")
    return text


def _bytes(path: Path) -> bytes:
    """What stands there, to a byte more than a script may have; of a pipe (`<(COMMAND)`) too."""
    if path == Path("-"):
        return sys.stdin.buffer.read(_LARGEST + 1)
    if not path.exists() or path.is_dir():
        raise InputError(f"{path} is not a file", hint="name a batch script, or - for stdin")
    with path.open("rb") as file:
        return file.read(_LARGEST + 1)
