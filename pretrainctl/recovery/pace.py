"""How long a program that reports may say nothing: learned by phase from what the run has shown. Pure.

A silence is the time between two lines of `metrics.jsonl` as they arrive, so what is learned is what is compared: a
file system that shows lines late makes the time-outs longer. A time-out is the longest of: the least of the phase;
`factor` times the silences seen in it, all but the longest hundredth; twice the longest one, since what passed once
may pass again. (Factor: nvidia-resiliency-ext takes 5; a shared file system deserves more.)

Of an earlier start only the times in its lines are left, not what it was excused for: a job that was suspended, a file
system that was away, a clock that was set. A silence that was longer than its time-out and no hang was one of these.
Nothing is learned from it, but where a save or an evaluation takes so long again and again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pretrainctl.records.launch import HangRule

__all__ = ["WARM_STEPS", "Pace"]

WARM_STEPS = 5
"""Steps that still belong to the start: compilers and caches make the first ones slow."""
_KEPT = 512
"""Silences of a phase that are remembered."""
_STARTING = {"start", "load", "step"}
_MOST_DOUBTED = 8
"""Times the least seconds of a phase to which silences that were longer than their time-out can raise it."""


@dataclass
class _Silences:
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    longest: float = 0.0

    def add(self, seconds: float) -> None:
        self.recent.append(seconds)
        self.longest = max(self.longest, seconds)

    @property
    def usual(self) -> float:
        """The 99th percentile, and of fewer than 100 the longest."""
        ordered = sorted(self.recent)
        return ordered[math.ceil(0.99 * len(ordered)) - 1] if ordered else 0.0


@dataclass
class _Place:
    """Where a start of the program stands, by its lines."""

    phase: str = ""
    step: int = 0
    steps: int = 0
    last: float | None = None

    @property
    def key(self) -> str:
        """The phase whose time-out counts: all is start until the first steps are done, except what says otherwise."""
        phase = self.phase or ("step" if self.steps else "start")
        if phase in _STARTING:
            return "start" if self.steps < WARM_STEPS else "step"
        return phase


class Pace:
    """The time-out of the phase that a start of the program is in; `now` is monotonic seconds everywhere.

    `nodes` train. A save takes at least twice `save_lead` before one was seen.
    """

    def __init__(self, rule: HangRule, *, nodes: int, save_lead: float) -> None:
        self.rule = rule
        self._save_lead = save_lead
        self._least = {
            "start": rule.start_on(nodes),
            "step": rule.step,
            "checkpoint": rule.checkpoint,
            "evaluation": rule.evaluation,
        }
        self._seen: dict[str, _Silences] = {}
        self._doubted: dict[str, float] = {}
        self._place = _Place()

    @property
    def phase(self) -> str:
        """The phase as the program calls it, `start` before its first word."""
        return self._place.phase or self._place.key

    @property
    def step(self) -> int:
        """The last step done, 0 before there is one."""
        return self._place.step

    def begin(self, now: float) -> None:
        """The program is being started."""
        self._place = _Place(last=now)

    def remember(self, entries: Iterable[Mapping[str, Any] | None]) -> None:
        """Learn from lines of an earlier start, by the times that stand in them; None where lines are left out.

        Earlier starts are to be told oldest first.
        """
        place = _Place()
        for entry in entries:
            if entry is None:
                place = _Place(phase="step", steps=WARM_STEPS)
            elif isinstance(entry.get("time"), (int, float)):
                now = float(entry["time"])
                if place.last is not None and now - place.last > self._allowed(place.key):
                    self._doubt(place.key, now - place.last)
                    place.last = None
                self._advance(place, entry, now)

    def hear(self, entry: Mapping[str, Any], now: float) -> None:
        """A line of this start has arrived."""
        self._advance(self._place, entry, now)

    def see(self, phase: str, step: int, now: float) -> None:
        """The program was there at `now`, though no line said so; nothing is learned from it."""
        self._place.phase, self._place.step, self._place.last = phase, step, now

    def forgive(self, now: float) -> None:
        """Nothing is known of the time up to `now`: it was no silence, and nothing is learned from it."""
        self._place.last = now

    def excuse(self, seconds: float) -> None:
        """So many seconds of the silence were this process's own absence."""
        if self._place.last is not None:
            self._place.last += seconds

    def silent(self, now: float) -> float:
        """Seconds since the last word."""
        return now - self._place.last if self._place.last is not None else 0.0

    @property
    def limit(self) -> float:
        """Seconds without a word after which it is hung."""
        return max(self._limit(key) for key in self._keys())

    @property
    def reason(self) -> str:
        """Where the time-out comes from, as people read it."""
        key = max(self._keys(), key=self._limit)
        seen, limit = self._seen.get(key, _Silences()), self._limit(key)
        if limit == self.rule.factor * seen.usual:
            return f"{self.rule.factor:g} times the {seen.usual:.1f} s that it took"
        if limit == 2 * seen.longest:
            return f"twice the {seen.longest:.1f} s that it took once"
        if limit > self._least.get(key, limit):
            return f"no {key} of this run was seen yet"
        return f"the least for {key} on this cluster" + ("" if key == self._place.key else ", which may go on unsaid")

    def _allowed(self, key: str) -> float:
        return max(self._limit(one) for one in self._keys(key))

    def _doubt(self, key: str, seconds: float) -> None:
        """A silence that was no hang, and longer than one may be. Two of nearly the same length are how long it takes,
        except for steps of a program that announces what else it does: those it would have been asked about."""
        before, self._doubted[key] = self._doubted.get(key), seconds
        unknown = max(self.rule.checkpoint, self.rule.evaluation)
        least = max(self._least.get(one, unknown) for one in self._keys(key))
        regular = before is not None and 1 / 2 <= seconds / before <= 2
        if regular and not (key == "step" and self.rule.announces):
            seen = self._seen.setdefault(key, _Silences())
            seen.longest = max(seen.longest, min(seconds, _MOST_DOUBTED * least / 2))

    def _keys(self, key: str = "") -> list[str]:
        key = key or self._place.key
        hidden = ["checkpoint", "evaluation"] if key == "step" and not self.rule.announces else []
        return [key, *(other for other in hidden if other not in self._seen)]

    def _limit(self, key: str) -> float:
        least = self._least.get(key, max(self.rule.checkpoint, self.rule.evaluation))
        seen = self._seen.get(key)
        if seen is None:
            # Until one was seen, nothing says how long a step of this run takes, or a save.
            if key == "step":
                return max(least, self._limit("start"))
            return max(least, 2 * self._save_lead) if key == "checkpoint" else least
        return max(least, self.rule.factor * seen.usual, 2 * seen.longest)

    def _advance(self, place: _Place, entry: Mapping[str, Any], now: float) -> None:
        if place.last is not None and now >= place.last:
            self._seen.setdefault(place.key, _Silences()).add(now - place.last)
        place.last = now
        kind, step = entry.get("kind"), entry.get("step")
        if isinstance(step, int):
            place.step = step
        if kind == "phase":
            place.phase = str(entry.get("phase", ""))
        elif kind == "step":
            place.steps += 1
            place.phase = "step"
