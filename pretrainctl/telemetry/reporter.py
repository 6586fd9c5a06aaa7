"""One JSON line a step, phase and save, appended to the restart's `metrics.jsonl`, and a stamp of it on each rank."""

from __future__ import annotations

import json
import os
import sys
import time

from pretrainctl.records.sample import PhaseChange, Sample, Saved
from pretrainctl.telemetry.place import find_place, own_rank
from pretrainctl.telemetry.stamp import StampWriter

__all__ = ["METRICS_FILE", "Reporter"]

METRICS_FILE = "metrics.jsonl"


class Reporter:
    """Appends to `metrics.jsonl` on rank 0 inside a run; on the other ranks it only keeps their stamp, and outside a
    run it does nothing.

    Whoever reports is watched: where no line comes for longer than the phase may take (`hang` in the profile), the
    ranks are ended as hung. Say `phase` before a save or an evaluation, and on every rank, so that one that is
    behind can be named.

    A line is one `write` on an O_APPEND descriptor and is not fsynced: a step costs microseconds. A line that
    cannot be written (full disk) is lost with one warning: a lost number is no reason to end a training.
    """

    def __init__(self) -> None:
        self._file = -1
        self._torn = False
        self._warned = False
        self._phase = ""
        self._stamp = StampWriter()
        place = find_place()
        if place is not None and own_rank() == 0:
            place.directory.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(place.directory / METRICS_FILE, flags, 0o644)

    def step(self, step: int, tokens: int, loss: float, grad_norm: float, lr: float, seconds: float) -> None:
        """Report an optimizer step that is done; the meaning of each number is that of `Sample`."""
        self._phase = "step"
        self._stamp.write("step", step)
        if self._file >= 0:
            self._append(Sample(step, tokens, loss, grad_norm, lr, seconds, time.time()))

    def phase(self, phase: str, step: int) -> None:
        """Report that `phase` begins (start, load, step, checkpoint, evaluation, end); `step` is the last one done."""
        self._phase = phase
        self._stamp.write(phase, step)
        if self._file >= 0:
            self._append(PhaseChange(phase, step, time.time()))

    def saved(self, tag: str, step: int, seconds: float) -> None:
        """Report a checkpoint after the barrier at which all ranks had finished it."""
        self._stamp.write(self._phase, step)
        if self._file >= 0:
            self._append(Saved(tag, step, seconds, time.time()))

    def close(self) -> None:
        """Close the file; later reports do nothing."""
        self._stamp.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, record: Sample | PhaseChange | Saved) -> None:
        line = json.dumps(vars(record)).encode() + b"\n"
        if self._torn:
            line = b"\n" + line  # ends the rest of a line that a full disk cut
        try:
            self._torn = os.write(self._file, line) < len(line)
        except OSError as error:
            if not self._warned:
                self._warned = True
                print(f"warning: a line of {METRICS_FILE} was lost: {error.strerror}", file=sys.stderr)
