"""What a rank tells its own node: how far it is, and, on a signal, where each of its threads stands."""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import time

from pretrainctl.records.progress import STACK_SIGNAL, STACKS_NAME, STAMP_NAME, STAMP_SIZE, Stamp, pack_stamp
from pretrainctl.telemetry.place import find_place

__all__ = ["StampWriter"]


class StampWriter:
    """Keeps this rank's stamp in memory; a write costs a microsecond, on any number of ranks.

    From its construction on SIGUSR2 makes the process write the stacks of all its threads, in C, whatever its Python
    code waits for. Does nothing outside a run, and where the system has no memory files.
    """

    def __init__(self) -> None:
        self._count = 0
        self._memory: mmap.mmap | None = None
        self._stacks = -1
        if find_place() is None or not hasattr(os, "memfd_create"):
            return
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            file = os.memfd_create(STAMP_NAME, os.MFD_CLOEXEC)
            try:
                os.ftruncate(file, STAMP_SIZE)
                self._memory = mmap.mmap(file, STAMP_SIZE)  # holds the file open by itself
            finally:
                os.close(file)
            self._stacks = os.memfd_create(STACKS_NAME, os.MFD_CLOEXEC)
            faulthandler.register(STACK_SIGNAL, file=self._stacks, all_threads=True)

    def write(self, phase: str, step: int) -> None:
        """This rank is in `phase`, and `step` is the last step that it did."""
        if self._memory is not None:
            self._count += 1
            self._memory[:] = pack_stamp(Stamp(self._count, step, time.monotonic_ns(), phase))

    def close(self) -> None:
        """Forget the stamp, and take no signal any more."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        if self._stacks >= 0:
            faulthandler.unregister(STACK_SIGNAL)
            os.close(self._stacks)
            self._stacks = -1
