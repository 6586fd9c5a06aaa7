"""The first steps after a resume: does the training go on where it was? Said as an event, within seconds of the start.

Nothing fails where a program starts from new weights, or loses its schedule or its place in the data: the first ends
the start before it can save over good checkpoints, the others are alarms.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pretrainctl.errors import LedgerError
from pretrainctl.metrics.continuity import check_learning_rate
from pretrainctl.metrics.loss_jump import STEPS, check_losses
from pretrainctl.records.run import Diagnosis, EventKind
from pretrainctl.recovery.consent import describe_keys
from pretrainctl.recovery.diagnosis import FailureClass
from pretrainctl.runs import ledger
from pretrainctl.runs.log_tail import tail
from pretrainctl.workflows.attempt.context import Attempt

__all__ = ["ResumeWatch"]

_PAUSE = 1.0
"""Seconds between two looks at the metrics."""
_HEAD = 1 << 16
"""Bytes from the beginning of the metrics, which hold more than the steps that are looked at."""
_LINES = 5000
"""Lines from the end of each earlier file."""
_ENOUGH = 64
"""Earlier steps that are enough to compare with."""

Line = dict[str, Any]


class ResumeWatch:
    """Looks at the metrics of the restart in `folder`, which resumed from `tag`, until its first steps are there."""

    def __init__(
        self, attempt: Attempt, folder: Path, tag: str | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._attempt = attempt
        self._folder = folder
        self._tag = tag
        self._clock = clock
        self._next = 0.0
        self._before: list[Line] | None = None
        self._done = tag is None
        self.from_scratch: Diagnosis | None = None
        """That the program began anew, where it was given a checkpoint."""

    def tick(self) -> None:
        """Look, if it is time to; what cannot be read is not judged."""
        if self._done or self._clock() < self._next:
            return
        self._next = self._clock() + _PAUSE
        with contextlib.suppress(OSError):
            steps = [line for line in self._head() if line["kind"] == "step"]
            if not steps:
                return
            if self._before is None:
                self._before = self._earlier()
                self._look_at_first(steps[0])
            if len(steps) >= STEPS:
                self._done = True
                self._compare(steps[:STEPS])
            return
        self._done = True

    def _look_at_first(self, first: Line) -> None:
        """A first step 1 where the checkpoint, by the program's own count, was saved at a later one."""
        saved = [line for line in self._before or [] if line["kind"] == "saved" and line.get("tag") == self._tag]
        if not saved or first["step"] > 1 or saved[-1]["step"] < first["step"] + 1:
            return
        self._done = True
        message = (
            f"the program was given {self._tag}, saved at step {saved[-1]['step']}, and began anew at step "
            f"{first['step']} (loss {first['loss']:.4g}): it did not load it, and was ended before it saved over it"
        )
        hint = (
            "see where the program looks for its checkpoint; it is to fail where it cannot load PRETRAINCTL_RESUME_TAG"
        )
        self.from_scratch = Diagnosis(FailureClass.CONFIG.value, message, hint=hint)

    def _compare(self, after: Sequence[Line]) -> None:
        changed = self._changed()
        before = sorted(
            {line["step"]: line for line in self._before or [] if line["kind"] == "step"}.values(),
            key=lambda line: int(line["step"]),
        )
        place = {"restart": int(self._folder.name.rpartition("-")[2]), "resume_tag": self._tag}
        resume_step = after[0]["step"] - 1
        jump = check_losses(_column(before, "loss"), _column(after, "loss"), resume_step=resume_step, changed=changed)
        if jump is not None:
            figures = {"expected": jump.expected, "seen": jump.seen, "noise": jump.noise, "first_step": jump.first_step}
            self._say("loss_jump" if jump.alarm else "note", jump.message, {**place, **figures})
        rate = check_learning_rate(_column(before, "lr"), _column(after, "lr"), changed=changed)
        if rate is not None:
            self._say("lr_jump" if rate.alarm else "note", rate.message, place)

    def _say(self, kind: EventKind, message: str, data: dict[str, Any]) -> None:
        self._attempt.event(kind, message, data)

    def _changed(self) -> str:
        """What was changed and accepted since the run trained last, empty where nothing was."""
        with contextlib.suppress(LedgerError):
            for event in ledger.read_events(self._attempt.run.path, self._attempt.number):
                if event.kind == "lineage":
                    return describe_keys(event.data.get("changes", []))
        return ""

    def _head(self) -> list[Line]:
        try:
            with (self._folder / "metrics.jsonl").open("rb") as file:
                text = file.read(_HEAD)
        except FileNotFoundError:
            return []
        return _lines(text[: text.rfind(b"\n") + 1].decode(errors="replace").splitlines())

    def _earlier(self) -> list[Line]:
        """Lines of the starts before this one, in order, as far back as is needed; later ones of a step win."""
        found: list[Line] = []
        earlier = [path for _, _, path in self._attempt.run.restart_dirs() if path != self._folder]
        for path in reversed(earlier):
            found = _lines(tail(path / "metrics.jsonl", _LINES)) + found
            tagged = any(line["kind"] == "saved" and line.get("tag") == self._tag for line in found)
            if tagged and sum(line["kind"] == "step" for line in found) >= _ENOUGH:
                break
        return found


def _lines(texts: Sequence[str]) -> list[Line]:
    found = []
    for text in texts:
        with contextlib.suppress(ValueError, RecursionError, OverflowError, KeyError, TypeError):
            line = json.loads(text)
            if line["kind"] == "step":
                line |= {"step": int(line["step"]), "loss": float(line["loss"]), "lr": float(line["lr"])}
            elif line["kind"] == "saved":
                line |= {"step": int(line["step"])}
            found.append(line)
    return found


def _column(lines: Sequence[Line], name: str) -> list[tuple[int, float]]:
    return [(line["step"], line[name]) for line in lines]
