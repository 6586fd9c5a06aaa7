"""The code snapshot: the commit and the difference from it, of the folder that the run was launched from."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pretrainctl import __version__, process
from pretrainctl.errors import CommandError, MissingError

__all__ = ["digest", "take_snapshot"]

_TIMEOUT = 20.0


def take_snapshot(source: Path) -> dict[str, str]:
    """Files of `code/` by name: `version`, and `commit` and `dirty.diff` where `source` lies in a git checkout."""
    files = {"version": f"pretrainctl {__version__}\n"}
    try:
        commit = process.run(["git", "-C", str(source), "rev-parse", "HEAD"], timeout=_TIMEOUT).stdout
        diff = process.run(["git", "-C", str(source), "diff", "HEAD"], timeout=_TIMEOUT).stdout
    except (CommandError, MissingError):
        return files
    return files | {"commit": commit, "dirty.diff": diff}


def digest(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
