"""Tails of logs, bounded in memory, and following them over restarts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["follow", "tail"]

_BLOCK = 64 * 1024


def tail(path: Path, lines: int, *, limit: int = 4 * 1024 * 1024) -> list[str]:
    """The last `lines` lines, reading at most `limit` bytes from the end; [] where there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            data = b""
            while size > 0 and data.count(b"\n") <= lines and len(data) < limit:
                step = min(_BLOCK, size)
                size -= step
                file.seek(size)
                data = file.read(step) + data
    except FileNotFoundError:
        return []
    found = data.decode(errors="replace").splitlines()
    return found[-lines:] if lines else []


def follow(current: Callable[[], Path | None], ended: Callable[[], bool], *, pause: float = 0.3) -> Iterator[str]:
    """Lines of the file that `current` names as they come, going on with the next file when it names another.

    Ends when `ended` is true and all was read. A last line without its newline waits until it is whole.
    """
    path: Path | None = None
    offset = 0
    rest = b""
    while True:
        over = ended()
        newest = current()
        for candidate in dict.fromkeys((path, newest)):
            if candidate is None:
                continue
            if candidate != path:
                path, offset, rest = candidate, 0, b""
            try:
                with candidate.open("rb") as file:
                    file.seek(offset)
                    data = file.read()
            except FileNotFoundError:
                continue
            offset += len(data)
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace")
        if over:
            if rest:
                yield rest.decode(errors="replace")
            return
        time.sleep(pause)
