"""The first steps after a resume: does the training go on where it was? Said as an event, within seconds of the start.

Nothing fails where a program starts from new weights, at another step than its checkpoint's, or loses its schedule or
its place in the data: the first two end the start before it can save over good checkpoints, the others are alarms.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
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
        """That the program began anew, or at another step, where it was given a checkpoint."""

    def tick(self) -> None:
        """Look, if it is time to; what cannot be read is not judged."""
        if self._done or self._clock() < self._next:
            return
        self._next = self._clock() + _PAUSE
        with contextlib.suppress(OSError):
            lines = self._head()
            steps = [line for line in lines if line["kind"] == "step"]
            if not steps:
                return
            if self._before is None:
                self._before = self._earlier()
                self._look_at_first(steps[0], [line for line in lines if line["kind"] == "saved"])
            if len(steps) >= STEPS:
                self._done = True
                self._compare(steps[:STEPS])
            return
        self._done = True

    def _look_at_first(self, first: Line, saved_since: Sequence[Line]) -> None:
        """A first step that does not follow on the one at which, by the program's own count, the tag was saved."""
        saved = [line for line in self._before or [] if line["kind"] == "saved" and line.get("tag") == self._tag]
        if not saved:
            return
        at, step = saved[-1]["step"], first["step"]
        between = _between_lines(self._before or [])
        # Some count a step before they do it; some report every tenth, from where they began or by their own count.
        if step <= 1 < at:
            how = f"began anew at step {step} (loss {first['loss']:.4g}): it did not load it"
        elif step < at:
            how = f"began {at + 1 - step} steps back, at step {step} (loss {first['loss']:.4g})"
        elif between and step > at + 2 * between:
            how = f"began at step {step}: the {step - at - 1} steps between were never done"
        else:
            return
        self._done = True
        ended = "before it saved over it"
        if saved_since:
            ended = (
                f"after it had saved {', '.join(str(line.get('tag')) for line in saved_since)}, which is not to be used"
            )
        message = f"the program was given {self._tag}, saved at step {at}, and {how}; it was ended {ended}"
        hint = (
            "see where the program looks for its checkpoint, and from where it counts steps; it is to fail where it "
            "cannot load PRETRAINCTL_RESUME_TAG"
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


def _between_lines(lines: Sequence[Line]) -> int:
    """Steps from one line of a program to the next, as is usual; 0 where that is not known."""
    steps = [line["step"] for line in lines if line["kind"] == "step"]
    between = [after - before for before, after in itertools.pairwise(steps) if after > before]
    return statistics.median_high(between) if between else 0


def _column(lines: Sequence[Line], name: str) -> list[tuple[int, float]]:
    return [(line["step"], line[name]) for line in lines]
