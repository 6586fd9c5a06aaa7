"""The reference trainer with a fault in it: `python -m pretrainctl.workflows.drill.program KIND ... TRAINING.json`.

It is what a `program:` recipe names, and runs inside the job, in the training environment. The trainer itself knows
nothing of it: the fault comes in where any program reports its steps.

| kind | what goes wrong |
|---|---|
| none | nothing; with `--pace` each step takes longer, until the run resumes |
| crash-at-start | one rank raises before its first step |
| crash | one rank raises in step `--at` |
| nan | the loss of step `--at` is not a number |
| memory | one rank runs against a memory limit in step `--at` |
| slow-save | one rank's shard of the save at step `--at` takes `--seconds` |
| stay | no rank leaves after the end record |
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import resource
import runpy
import sys
import time
from pathlib import Path
from typing import Any

from pretrainctl import telemetry
from pretrainctl.records.contract import RESUME_TAG_VARIABLE

__all__ = ["KINDS", "main"]

KINDS = ("none", "crash-at-start", "crash", "nan", "memory", "slow-save", "stay")
_RANK = "1"
"""The rank that is ill: not the one that writes the records."""
_ROOM = 256 << 20
"""Bytes that a rank may still take, where its memory runs out."""


class _Ill(telemetry.Reporter):
    """Reports as the trainer does, and lets the fault come at its step."""

    chosen: argparse.Namespace

    def step(self, step: int, *rest: float) -> None:
        super().step(step, *rest)  # type: ignore[arg-type]
        if self.chosen.pace and not os.environ.get(RESUME_TAG_VARIABLE):
            time.sleep(self.chosen.pace)
        if self.chosen.kind == "slow-save" or step + 1 != self.chosen.at or not _is_due(self.chosen):
            return
        if self.chosen.kind == "crash":
            raise RuntimeError(f"the drill's own fault in step {step + 1}")
        if self.chosen.kind == "nan":
            functional: Any = sys.modules["torch.nn.functional"]
            whole = functional.cross_entropy
            functional.cross_entropy = lambda *given, **named: whole(*given, **named) * math.nan
        if self.chosen.kind == "memory":
            _take_all_memory()

    def phase(self, phase: str, step: int) -> None:
        super().phase(phase, step)
        if (
            phase == "checkpoint"
            and self.chosen.kind == "slow-save"
            and step == self.chosen.at
            and _is_due(self.chosen)
        ):
            torch: Any = sys.modules["torch"]
            torch.save = functools.partial(_save_late, torch.save, self.chosen.seconds)


def _save_late(save: Any, seconds: float, what: object, where: object, *rest: object, **named: object) -> None:
    if "optim_states" in str(where):
        time.sleep(seconds)
        sys.modules["torch"].save = save  # type: ignore[attr-defined]
    save(what, where, *rest, **named)


def _stay(_status: int) -> None:
    time.sleep(86400.0)


def _take_all_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + _ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    taken = []
    while True:
        taken.append(sys.modules["torch"].ones(_ROOM // 4))


def _is_due(chosen: argparse.Namespace) -> bool:
    """Whether the fault is this rank's, and, with `--once`, has not been before."""
    if os.environ.get("RANK") != _RANK:
        return False
    if chosen.once is None:
        return True
    try:
        chosen.once.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def main() -> None:
    """Be the trainer, with the fault that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("settings", metavar="TRAINING.json")
    parser.add_argument("--at", type=int, default=0, help="the step")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds that a step takes longer, until a resume")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long a slow save takes")
    parser.add_argument("--once", type=Path, help="this file stands where the fault has been: it comes once")
    chosen = _Ill.chosen = parser.parse_args()
    if chosen.kind == "crash-at-start" and _is_due(chosen):
        raise RuntimeError("the drill's own fault before the first step")
    if chosen.kind == "stay":
        os._exit = _stay  # type: ignore[assignment]
    telemetry.Reporter = _Ill  # type: ignore[misc]
    sys.argv = ["pretrainctl.trainer", chosen.settings]
    runpy.run_module("pretrainctl.trainer", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
