"""Searching whole logs for a few texts, in bounded memory and at the speed of `grep`, which does the search."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pretrainctl import process
from pretrainctl.errors import CommandError

__all__ = ["Hit", "edges", "scan", "scan_back", "text_before"]

_BLOCK = 1 << 20
_LONGEST = 16 * 1024
"""Bytes of a line that are looked at, from its beginning and from its end: a progress bar that rewrites itself may
write megabytes without an end of line."""
_BEFORE = 2048
_FIRST_BLOCK = 64 * 1024
_FARTHEST = 64 << 20
_PATIENCE = 10.0


@dataclass(frozen=True)
class Hit:
    """A line that holds one of the texts: its number (from 1), what it says, and the byte at which it begins.

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
                while True:
                    line, left_out = _read_line(found)
                    if not line:
                        break
                    number, offset, text = line.split(b":", 2)
                    parts = text.rstrip(b"\r\n").split(b"\r")
                    at = start + int(offset) + (left_out if len(parts) > 1 else 0)
                    for part in parts:
                        said = part.decode(errors="replace")
                        if len(parts) == 1 or any(word in said for word in texts):
                            yield Hit(passed + int(number), said, at)
                        at += len(part) + 1
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


def _read_line(stream: IO[bytes]) -> tuple[bytes, int]:
    """The next line, without the middle of one that is too long, and how many bytes that is; empty at the end."""
    line = stream.readline(_LONGEST)
    rest = b""
    length = 0
    while line and not line.endswith(b"\n") and not rest.endswith(b"\n"):
        more = stream.readline(_LONGEST)
        if not more:
            break
        length += len(more)
        rest = (rest + more)[-_LONGEST:]
    return line + rest, length - len(rest)


def scan_back(path: Path, texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Lines with one of `texts`, from the end of a file to its beginning, each with the byte at which it begins.

    A progress bar's states are lines of their own. No farther than 64 MiB: the end is what is asked for.
    """
    words = re.compile(b"|".join(re.escape(text.encode()) for text in texts))
    with path.open("rb", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        farthest = max(0, end - _FARTHEST)
        rest, size = b"", _FIRST_BLOCK
        while end > farthest:
            start = max(farthest, end - size)
            file.seek(start)
            block = file.read(end - start) + rest
            size, end = _BLOCK, start
            lines = block.replace(b"\r", b"\n").split(b"\n")
            # The first may begin before the block, unless the file begins here.
            rest = lines[0][:_LONGEST] if start > farthest else b""
            at = start + len(block)
            for index in range(len(lines) - 1, 0 if start > farthest else -1, -1):
                at -= len(lines[index])
                if words.search(lines[index]):
                    yield at, lines[index][:_LONGEST].decode(errors="replace")
                at -= 1


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
