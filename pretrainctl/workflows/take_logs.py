"""Take the logs that somebody names: regular files once each, streams copied aside, what is no plain text refused."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from pretrainctl.errors import InputError

__all__ = ["take_logs"]

WRITER_WAIT = 5.0
"""Seconds in which somebody must open a pipe to write into it."""
_LOOK = 0.05
_HEAD = 64 * 1024
_MAGIC = {
    b"\x1f\x8b": ("compressed by gzip", "zcat"),
    b"BZh": ("compressed by bzip2", "bzcat"),
    b"\xfd7zXZ\0": ("compressed by xz", "xzcat"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "zstdcat"),
}
_UTF16 = ("in UTF-16", "iconv -f UTF-16 -t UTF-8")
_NO_TEXT = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_NO_TEXT = 0.3
"""Share of a file's beginning that may be no text: torn lines, and bytes of a wrong encoding."""
_NAME_THEM = "name the log files one by one, or by a pattern: logs/*.out"
_KERNEL = ("/proc/", "/sys/")
_STDIN = Path("/dev/stdin")


@contextlib.contextmanager
def take_logs(paths: Sequence[Path], *, say: Callable[[str], None]) -> Iterator[Mapping[Path, str]]:
    """The files to read, each with the name by which it was given; one that is given twice counts once.

    A pipe (`<(zcat FILE)`, `-` for stdin) is read to the end that its writer gives it, which `say` is told, and lies in
    a temporary file meanwhile. InputError for one that nobody opens to write within WRITER_WAIT seconds, for a folder,
    a device, what cannot be read, and what is no plain text.
    """
    with tempfile.TemporaryDirectory(prefix="pretrainctl-logs-") as aside:
        taken: dict[Path, str] = {}
        seen: set[tuple[int, int]] = set()
        for number, given in enumerate(paths):
            path = _STDIN if str(given) == "-" else given
            try:
                status = path.stat()
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                _refuse_kind(path, status.st_mode)
                here = path
                if stat.S_ISFIFO(status.st_mode):
                    say(f"reading {path} until its writer ends")
                    here = Path(aside) / str(number)
                    with here.open("wb") as copy:
                        _copy_pipe(path, copy)
                with here.open("rb") as file:
                    _refuse_no_text(path, file.read(_HEAD))
            except FileNotFoundError as error:
                raise InputError(f"{path} is not there", hint=_NAME_THEM) from error
            except OSError as error:
                raise InputError(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error
            taken[here] = "stdin" if str(given) == "-" else str(path)
        yield taken


def _copy_pipe(path: Path, copy: BinaryIO) -> None:
    """Copy a pipe to its end; InputError for one that nobody writes into, whose end never comes."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(handle, "rb") as source:  # noqa: PTH123 - it is open already
        until = time.monotonic() + WRITER_WAIT
        ready = select.poll()
        ready.register(handle, select.POLLIN)
        while not ready.poll(0):
            try:
                first = os.read(handle, _HEAD)
                if first or ready.poll(0):
                    copy.write(first)
                    break
            except BlockingIOError:  # somebody has it open, and is silent
                break
            if time.monotonic() > until:
                raise InputError(f"{path} is a pipe that nobody writes into", hint=_NAME_THEM)
            time.sleep(_LOOK)
        os.set_blocking(handle, True)
        shutil.copyfileobj(source, copy)


def _refuse_kind(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a folder", hint=_NAME_THEM)
    if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
        raise InputError(f"{path} is a device, not a log", hint=_NAME_THEM)
    # Reading one may wait for ever, as /proc/kmsg does.
    if stat.S_ISREG(mode) and str(path.resolve()).startswith(_KERNEL):
        raise InputError(f"{path} is made by the kernel as it is read, and is no log file", hint=_NAME_THEM)


def _refuse_no_text(path: Path, head: bytes) -> None:
    """A file that may hold the cause in another form must not pass for one that says nothing."""
    for magic, (what, program) in _MAGIC.items():
        if head.startswith(magic):
            raise _no_text(path, what, program)
    text = head.replace(b"\0", b"")  # a torn write leaves zeros
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or _is_every_other_zero(head):
        raise _no_text(path, *_UTF16)
    broken = text.decode(errors="replace").count("\ufffd") + len(_NO_TEXT.findall(text))
    if broken > _MOST_NO_TEXT * max(len(text), 1):
        raise InputError(f"{path} is no plain text", hint="name the logs that the program printed")


def _is_every_other_zero(head: bytes) -> bool:
    zeros = [part.count(0) / max(len(part), 1) for part in (head[::2], head[1::2])]
    return max(zeros) > 0.9 and min(zeros) < 0.1


def _no_text(path: Path, what: str, program: str) -> InputError:
    return InputError(
        f"{path} is {what}, not plain text", hint=f"pretrainctl doctor --log <({program} {path}), with the others"
    )
