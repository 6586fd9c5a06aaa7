"""How far each rank is: the stamp that it keeps in memory, what a node reads of its ranks, and a hang.

A stamp and the stacks of a rank lie in anonymous memory files (memfd) of that rank: they cost no file system anything,
have no name that could meet another's, and are gone with the process. A process of the same user on the same node finds
them under `/proc/PID/fd`, inside a container too.
"""

from __future__ import annotations

import signal
import struct
from dataclasses import dataclass

__all__ = [
    "STACKS_NAME",
    "STACK_SIGNAL",
    "STAMP_NAME",
    "STAMP_SIZE",
    "Hang",
    "RankReport",
    "Stamp",
    "pack_stamp",
    "unpack_stamp",
]

STAMP_NAME = "pretrainctl-stamp"
STACKS_NAME = "pretrainctl-stacks"
STACK_SIGNAL = signal.SIGUSR2
"""Makes a rank write its stacks into its second file. TERM and USR1 mean a save."""

_LAYOUT = struct.Struct("<8sQqq24sQ")
_MAGIC = b"ptlstep1"
STAMP_SIZE = _LAYOUT.size


@dataclass(frozen=True)
class Stamp:
    """Where a rank was at its `count`-th report: `step` is the last one done, `time` monotonic ns of its node."""

    count: int
    step: int
    time: int
    phase: str


@dataclass(frozen=True)
class RankReport:
    """What a node says of one of its ranks.

    `state` is the letter of /proc (R, S, D, T = stopped, Z) and `waits_in` the kernel function in which it waits.
    `count`, `step`, `phase` and `age`, seconds since it was written, are those of its stamp; `count` is 0 where it
    keeps none. `stack` is what it wrote on the signal, or py-spy of it; empty where neither could.
    """

    rank: int
    pid: int
    state: str
    waits_in: str = ""
    count: int = 0
    step: int = 0
    phase: str = ""
    age: float = 0.0
    stack: str = ""


@dataclass(frozen=True)
class Hang:
    """`hang.json` of a restart that was ended because it did no more: since `seconds`, in `phase`, after `step`.

    `limit` is the time-out that had passed. `ranks` are those that are behind the others, on `nodes`; none where that
    cannot be told. `facts` are lines of evidence: states and stacks. `gone`: those behind have no process any more.
    """

    phase: str
    step: int
    seconds: float
    limit: float
    message: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    facts: tuple[str, ...]
    time: float
    gone: bool = False


def pack_stamp(stamp: Stamp) -> bytes:
    """The STAMP_SIZE bytes of a stamp; the count stands at both ends, so that a torn one can be told."""
    return _LAYOUT.pack(_MAGIC, stamp.count, stamp.step, stamp.time, stamp.phase.encode()[:24], stamp.count)


def unpack_stamp(data: bytes) -> Stamp | None:
    """Read a stamp; None for what is none, is torn, or was never written."""
    if len(data) != STAMP_SIZE:
        return None
    magic, count, step, time, phase, again = _LAYOUT.unpack(data)
    if magic != _MAGIC or count != again:
        return None
    return Stamp(count, step, time, phase.rstrip(b"\0").decode(errors="replace"))
