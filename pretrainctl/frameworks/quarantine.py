"""Where what is in the way of a resume is kept: `quarantine/` of a checkpoint directory. Nothing is deleted.

Where that name is no folder that can be used (a file, a link to a scratch that was purged or is another file system),
`quarantine.1/` takes its place, and so on.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from pretrainctl.records.codec import sync_directory
from pretrainctl.records.run import Checkpoint

__all__ = ["QUARANTINE", "quarantine", "quarantined", "set_aside"]

QUARANTINE = "quarantine"

_FOLDERS = 10
_NOT_THIS_FOLDER = {
    errno.EEXIST,  # a file, or a link to nothing
    errno.ENOTDIR,
    errno.ELOOP,
    errno.EXDEV,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ESTALE,
}
"""Errors for which another folder may serve; a file system that is full is so for each."""


def quarantine(directory: Path, checkpoint: Checkpoint, label: str) -> Path:
    """Move a tag to `quarantine/<tag>.<label>`, by rename: nothing is deleted or overwritten.

    A name that is taken gets a number. Returns the new path; OSError where it cannot be moved, and is left as it was.
    """
    return set_aside(directory, checkpoint.tag, label)


def set_aside(directory: Path, name: str, label: str) -> Path:
    """Move any entry of a checkpoint directory into its quarantine; see `quarantine`."""
    folders = _folders(directory)
    while True:
        folder = next(folders)
        try:
            return _move(directory / name, folder, label)
        except OSError as error:
            if error.errno not in _NOT_THIS_FOLDER or folder.name.endswith(f".{_FOLDERS - 1}"):
                raise


def quarantined(directory: Path) -> list[str]:
    """Names of all that lies in quarantine; OSError where that cannot be known."""
    found = []
    for folder in _folders(directory):
        try:
            found += [path.name for path in folder.iterdir()]
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                raise
    return found


def _folders(directory: Path) -> Iterator[Path]:
    for number in range(_FOLDERS):
        yield directory / (f"{QUARANTINE}.{number}" if number else QUARANTINE)


def _move(path: Path, folder: Path, label: str) -> Path:
    made = not os.path.lexists(folder)
    folder.mkdir(exist_ok=True)
    target = folder / f"{path.name}.{label}"
    number = 2
    # rename() would silently replace an empty directory, so a free name is looked for first.
    while os.path.lexists(target):
        target = folder / f"{path.name}.{label}.{number}"
        number += 1
    try:
        path.rename(target)
    except OSError:
        if made:
            folder.rmdir()
        raise
    with contextlib.suppress(OSError):  # it is moved; a crash now could only undo that
        sync_directory(folder)
        sync_directory(path.parent)
    return target
