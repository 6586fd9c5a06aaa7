"""Searching whole logs for a few texts, in bounded memory and at the speed of `grep`, which does the search."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pretrainctl import process
from pretrainctl.errors import CommandError

__all__ = ["Hit", "edges", "scan", "text_before"]

_BLOCK = 1 << 20
_LONGEST = 16 * 1024
"""Bytes of a line that are looked at, from its beginning and from its end: a progress bar that rewrites itself may
write megabytes without an end of line."""
_BEFORE = 2048
_PATIENCE = 10.0


@dataclass(frozen=True)
class Hit:
    """A line that holds one of the texts: its number (from 1), what it says, and the byte at which its line begins.

    Where a progress bar went back to the beginning of its line, what stands between is a line of its own.
    """

    number: int
    text: str
    offset: int


def scan(path: Path, texts: Sequence[str], *, limit: int | None = None) -> Iterator[Hit]:
    """Lines with one of `texts` (plain words), in order; of a longer file only the last `limit` bytes are searched.

    OSError where the file cannot be read, CommandError where grep fails.
    """
    with path.open("rb", buffering=0) as file:
        start, passed = _skip(file, limit)
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb", buffering=_BLOCK) as found:
            try:
                # In the C locale grep compares bytes: some ten times faster, and no line is "binary".
                child = process.start(
                    ["grep", "-a", "-n", "-b", "-E", "|".join(texts)],
                    env={**os.environ, "LC_ALL": "C"},
                    stdin=file.fileno(),
                    stdout=writer,
                )
            finally:
                os.close(writer)
            try:
                while line := _read_line(found):
                    number, offset, text = line.split(b":", 2)
                    parts = text.decode(errors="replace").rstrip("\r\n").split("\r")
                    for part in parts:
                        if len(parts) == 1 or any(word in part for word in texts):
                            yield Hit(passed + int(number), part, start + int(offset))
                status = child.wait(_PATIENCE)
            finally:
                child.stop()
    if status not in {0, 1}:
        raise CommandError(f"grep failed on {path} with status {status}", status=status)


def _skip(file: IO[bytes], limit: int | None) -> tuple[int, int]:
    """Go to the last `limit` bytes; returns where that is, and how many lines were passed."""
    start = max(0, file.seek(0, os.SEEK_END) - limit) if limit is not None else 0
    file.seek(0)
    passed = 0
    while file.tell() < start and (block := file.read(min(_BLOCK, start - file.tell()))):
        passed += block.count(b"\n")
    # grep goes on from here: it has the same file description.
    file.seek(start)
    return start, passed


def _read_line(stream: IO[bytes]) -> bytes:
    """The next line, without the middle of one that is too long; empty at the end."""
    line = stream.readline(_LONGEST)
    rest = b""
    while line and not line.endswith(b"\n") and not rest.endswith(b"\n"):
        more = stream.readline(_LONGEST)
        if not more:
            break
        rest = (rest + more)[-_LONGEST:]
    return line + rest


def text_before(path: Path, offset: int) -> str:
    """The 2 KiB before a place in a file."""
    with path.open("rb") as file:
        file.seek(max(0, offset - _BEFORE))
        return file.read(min(offset, _BEFORE)).decode(errors="replace")


def edges(path: Path, size: int = 64 * 1024) -> list[str]:
    """The lines at the beginning and at the end of a file: what scripts say of themselves, and how it ended."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(0)
        data = file.read(size)
        if end > size:
            file.seek(max(size, end - size))
            data += b"\n" + file.read(size)
    return data.decode(errors="replace").splitlines()
