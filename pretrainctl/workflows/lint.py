"""Lint: batch scripts of one's own -> the known mistakes in them. Nothing is run, and no machine is asked."""

from __future__ import annotations

import re
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

    InputError where one of the files cannot be read as a bash script.
    """
    name = cluster or find_cluster()
    profile = catalog.load_profile(name) if name else None
    return tuple(_lint(path, profile) for path in paths)


def _lint(path: Path, profile: ClusterProfile | None) -> Report:
    try:
        findings = linting.check(_read(path), profile)
    except RecursionError:
        raise InputError(f"{path} nests too deep to be read", hint="name a batch script") from None
    errors = sum(finding.severity == "error" for finding in findings)
    return Report(path, profile.name if profile else None, errors, len(findings) - errors, findings)


def _read(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"{path} is not a file", hint="name a batch script")
    size = path.stat().st_size
    if size > _LARGEST:
        raise InputError(f"{path} has {size} bytes, a batch script at most {_LARGEST}", hint="name a batch script")
    text = path.read_bytes().decode("utf-8", errors="replace")
    first = text.split("\n", 1)[0]
    if first.startswith("#!") and not re.search(r"\b(ba|z|k|da)?sh\b", first):
        raise InputError(f"{path} begins with {first.strip()!r}, and lint reads bash", hint="name a bash script")
    return text
