"""Tails of logs, bounded in memory, and following them over restarts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["follow", "tail"]

_BLOCK = 64 * 1024
_LIMIT = 4 * 1024 * 1024


def tail(path: Path, lines: int, *, limit: int = _LIMIT) -> list[str]:
    """The last `lines` lines, reading at most `limit` bytes from the end; [] where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(_start_of_tail(path, lines, limit))
            found = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return found[-lines:] if lines else []


def follow(
    current: Callable[[], Path | None], ended: Callable[[], bool], *, lines: int | None = None, pause: float = 0.3
) -> Iterator[str | None]:
    """Lines of the file that `current` names as they come, going on with the next file when it names another.

    Of what is in the first file already, only the last `lines`, where that is given. None after each look, so that
    the caller can say something of its own. Ends when `ended` is true and all was read. A last line without its
    newline waits until it is whole.
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
            try:
                if candidate != path:
                    first = path is None and lines is not None
                    offset, rest = (_start_of_tail(candidate, lines or 0) if first else 0), b""
                    path = candidate
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
        yield None
        time.sleep(pause)


def _start_of_tail(path: Path, lines: int, limit: int = _LIMIT) -> int:
    """Offset where the last `lines` lines begin, at most `limit` bytes before the end."""
    with path.open("rb") as file:
        end = start = file.seek(0, os.SEEK_END)
        if not lines:
            return end
        data = b""
        # A newline at the very end closes the last line, and begins no other.
        while start > 0 and data[:-1].count(b"\n") < lines and len(data) < limit:
            step = min(_BLOCK, start, limit - len(data))
            start -= step
            file.seek(start)
            data = file.read(step) + data
    excess = data[:-1].count(b"\n") - lines
    for _ in range(excess + 1):
        cut = data.index(b"\n") + 1
        start, data = start + cut, data[cut:]
    return start
