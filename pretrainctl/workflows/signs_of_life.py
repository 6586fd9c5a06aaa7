"""Signs of life: what a run's newest files say of its program, its start and its newest step."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.log_tail import tail
from pretrainctl.runs.state import RunState

__all__ = ["Sample", "Starting", "find_start", "newest_sample"]


@dataclass(frozen=True)
class Starting:
    """A start of the program that has done no step yet; times are epoch s, `since` None before it runs."""

    since: float | None = None
    sign: str = ""
    sign_time: float | None = None


def find_start(run: RunFolder, state: RunState) -> Starting | None:
    """The present start of the program, or the one to come of an attempt that has made none; None where it has done a
    step, has ended, or prints and reports nothing."""
    place = next(reversed(list(run.restart_dirs())), None)
    if state.open_attempt is None:
        return None
    if place is None or place[0] != state.open_attempt.attempt:
        return Starting()
    attempt, restart, folder = place
    told = {
        event.kind: event.time
        for event in ledger.read_events(run.path, attempt)
        if event.kind in {"restart_started", "restart_ended"} and event.data.get("restart") == restart
    }
    if "restart_ended" in told:
        return None
    if "restart_started" not in told:
        return Starting()
    lines = _entries(folder / "metrics.jsonl")
    if any(line.get("kind") == "step" for line in lines):
        return None
    phases = [(str(line.get("phase")), _number(line.get("time"))) for line in lines if line.get("kind") == "phase"]
    signs = [(when, f"phase {name}") for name, when in phases[-1:] if when is not None]
    with contextlib.suppress(OSError):
        log = (folder / "training.log").stat()
        if log.st_size and not phases:
            return None  # a program that reports no steps
        signs += [(log.st_mtime, "a line in its log")] if log.st_size else []
    newest = max(signs, default=None)
    if newest is None:
        return Starting(told["restart_started"])
    sign = newest[1] if not phases or newest[1].startswith("phase") else f"{newest[1]} (phase {phases[-1][0]})"
    return Starting(told["restart_started"], sign, newest[0])


def _entries(metrics: Path) -> list[dict[str, Any]]:
    """What can be read of the newest lines of metrics."""
    found = []
    for line in _tail(metrics):
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(line)
            found += [data] if isinstance(data, dict) else []
    return found


@dataclass(frozen=True)
class Sample:
    """What the newest line of the metrics says; None for what it does not say, or says in no way that makes sense."""

    step: int | None = None
    tokens: int | None = None
    loss: float | None = None
    time: float | None = None


def newest_sample(run: RunFolder) -> Sample:
    """The newest step that a run has reported, of whichever start; an empty one where it reported none."""
    for _, _, path in reversed(list(run.restart_dirs())):
        for line in reversed(_tail(path / "metrics.jsonl")):
            try:
                data = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(data, dict) and data.get("kind") == "step" and (step := _whole(data.get("step"))) is not None:
                return Sample(step, _whole(data.get("tokens")), _number(data.get("loss")), _number(data.get("time")))
    return Sample()


def _tail(path: Path) -> list[str]:
    try:
        return tail(path, 20)
    except OSError:
        return []  # `metrics` says why it cannot be read


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def _number(value: Any) -> float | None:
    """A finite number; a loss that is NaN is no number either, and the run's own end says so."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < sys.float_info.max else None
