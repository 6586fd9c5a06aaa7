"""The node's side of a hang: its ranks, how far each says it is, and where it stands.

Only /proc is looked at, and memory of the ranks: a file system that hangs hides nothing. A rank that is stopped
(state T) answers no signal; py-spy, where it is installed, reads some of those too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pretrainctl import process
from pretrainctl.errors import PretrainctlError
from pretrainctl.records.contract import ATTEMPT_VARIABLE, RESTART_VARIABLE, RUN_DIR_VARIABLE
from pretrainctl.records.progress import (
    STACK_SIGNAL,
    STACKS_NAME,
    STAMP_NAME,
    STAMP_SIZE,
    RankReport,
    Stamp,
    unpack_stamp,
)

__all__ = ["look_at_ranks"]

_NODE = "SLURMD_NODENAME"
_ANSWER_PATIENCE = 0.7
"""Seconds that a rank may take to write its stacks; it takes milliseconds (0.2 ms a thread seen)."""
_QUIET = 0.05
"""Seconds without a new byte after which stacks are whole."""
_STACK_BYTES = 8192
"""Of longer stacks the end is kept: the main thread comes last."""
_SPY_PATIENCE = 0.9
_SPIED = 2
"""Ranks that py-spy looks at: it takes a third of a second for each."""
_DEAF = {"T", "t", "Z", "X"}
_CAUGHT = re.compile(r"^SigCgt:\s*([0-9a-f]+)", re.MULTILINE)


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    state: str
    stamps: tuple[Path, ...]
    stacks: tuple[Path, ...]


def look_at_ranks(
    run_dir: str, attempt: int, restart: int, *, stacks: bool, proc: Path = Path("/proc")
) -> list[RankReport]:
    """What can be told of each rank of a restart that runs on this node, within two seconds; by rank.

    With `stacks`, those that can are made to say where they stand.
    """
    wanted = {
        RUN_DIR_VARIABLE: run_dir,
        ATTEMPT_VARIABLE: str(attempt),
        RESTART_VARIABLE: str(restart),
        **({_NODE: os.environ[_NODE]} if _NODE in os.environ else {}),
    }
    ranks = dict(sorted(_find(proc, wanted).items()))
    told = _ask_for_stacks(proc, list(ranks.values())) if stacks else {}
    return [_report(proc, rank, found, told.get(found.pid, "")) for rank, found in ranks.items()]


def _find(proc: Path, wanted: Mapping[str, str]) -> dict[int, _Process]:
    """The process of each rank: one that keeps a stamp, else any; of several the outermost, since a child that was
    forked from a rank shares all that it had."""
    found: dict[int, list[_Process]] = {}
    needed = {os.fsencode(f"{name}={value}") for name, value in wanted.items()}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            environment = set((folder / "environ").read_bytes().split(b"\0"))
            if not needed <= environment:
                continue
            rank = next((word[5:] for word in environment if word.startswith(b"RANK=")), b"")
            if rank.isdigit():
                found.setdefault(int(rank), []).append(_open(folder))
    chosen = {}
    for number, processes in found.items():
        stamped = [one for one in processes if one.stamps] or processes
        inside = {one.pid for one in stamped}
        chosen[number] = next((one for one in stamped if one.parent not in inside), stamped[0])
    return chosen


def _open(folder: Path) -> _Process:
    fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    files = dict(_memory_files(folder))
    return _Process(
        pid=int(folder.name),
        parent=int(fields[1]),
        state=fields[0],
        stamps=tuple(path for path, name in files.items() if name == STAMP_NAME),
        stacks=tuple(path for path, name in files.items() if name == STACKS_NAME),
    )


def _memory_files(folder: Path) -> Iterator[tuple[Path, str]]:
    with contextlib.suppress(OSError):
        for path in (folder / "fd").iterdir():
            with contextlib.suppress(OSError):
                name = path.readlink().name.removesuffix(" (deleted)").removeprefix("memfd:")
                if name in {STAMP_NAME, STACKS_NAME}:
                    yield path, name


def _report(proc: Path, rank: int, found: _Process, stack: str) -> RankReport:
    waits_in = ""
    with contextlib.suppress(OSError):
        waits_in = (proc / str(found.pid) / "wchan").read_text(errors="replace").strip("0\n")
    stamp = _stamp(found)
    if stamp is None:
        return RankReport(rank, found.pid, found.state, waits_in, stack=stack)
    age = max(0.0, (time.monotonic_ns() - stamp.time) / 1e9)
    return RankReport(rank, found.pid, found.state, waits_in, stamp.count, stamp.step, stamp.phase, age, stack)


def _stamp(found: _Process) -> Stamp | None:
    """The newest of a process: it may have made more than one."""
    read = []
    for path in found.stamps:
        with contextlib.suppress(OSError):
            read.append(unpack_stamp(path.read_bytes()[:STAMP_SIZE]))
    return max((stamp for stamp in read if stamp is not None), key=lambda stamp: stamp.time, default=None)


def _ask_for_stacks(proc: Path, ranks: Sequence[_Process]) -> dict[int, str]:
    """What each rank writes when signalled, by pid; of those that write nothing what py-spy says."""
    before = {one.pid: _sizes(one) for one in ranks if one.stacks and one.state not in _DEAF}
    asked = []
    for one in ranks:
        if one.pid in before and _listens(proc, one.pid):
            with contextlib.suppress(OSError):
                os.kill(one.pid, STACK_SIGNAL)
                asked.append(one)
    told: dict[int, str] = {}
    deadline = time.monotonic() + _ANSWER_PATIENCE
    sizes = {one.pid: before[one.pid] for one in asked}
    changed = time.monotonic()
    while asked and time.monotonic() < deadline:
        now = {one.pid: _sizes(one) for one in asked}
        if now != sizes:
            sizes, changed = now, time.monotonic()
        elif all(now[pid] != before[pid] for pid in now) and time.monotonic() - changed > _QUIET:
            break
        time.sleep(0.01)
    for one in asked:
        for path, size in before[one.pid].items():
            with contextlib.suppress(OSError):
                said = path.read_bytes()[size:].decode(errors="replace")
                told[one.pid] = said[-_STACK_BYTES:] or told.get(one.pid, "")
    silent = [one.pid for one in ranks if not told.get(one.pid) and one.state not in {"Z", "X"}]
    return told | _spy(silent[:_SPIED])


def _sizes(one: _Process) -> dict[Path, int]:
    sizes = {}
    for path in one.stacks:
        with contextlib.suppress(OSError):
            sizes[path] = path.stat().st_size
    return sizes


def _listens(proc: Path, pid: int) -> bool:
    """Whether the process catches the signal: it would die of one that it does not."""
    try:
        caught = _CAUGHT.search((proc / str(pid) / "status").read_text(errors="replace"))
    except OSError:
        return False
    return caught is not None and bool(int(caught[1], 16) >> (STACK_SIGNAL - 1) & 1)


def _spy(pids: Sequence[int]) -> dict[int, str]:
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    told = {}
    deadline = time.monotonic() + _SPY_PATIENCE
    for pid in pids if program is not None else ():
        left = deadline - time.monotonic()
        with contextlib.suppress(PretrainctlError, OSError):
            if left > 0:
                done = process.run([str(program), "dump", "--nonblocking", "--pid", str(pid)], timeout=left)
                told[pid] = done.stdout[-_STACK_BYTES:]
    return told
