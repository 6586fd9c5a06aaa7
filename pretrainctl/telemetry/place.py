"""Where this program runs: which run, attempt and restart, and which rank it is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pretrainctl.errors import InputError
from pretrainctl.records.contract import ATTEMPT_VARIABLE, RESTART_VARIABLE, RUN_DIR_VARIABLE, restart_dir

__all__ = ["Place", "find_place", "own_rank"]


@dataclass(frozen=True)
class Place:
    """One restart of one attempt of a run."""

    run_dir: Path
    attempt: int
    restart: int

    @property
    def directory(self) -> Path:
        """The restart's own folder, which only this program writes."""
        return restart_dir(self.run_dir, self.attempt, self.restart)


def find_place() -> Place | None:
    """Read the place from the environment; None outside a run, InputError where it is only half there."""
    run_dir = os.environ.get(RUN_DIR_VARIABLE, "")
    if not run_dir:
        return None
    return Place(Path(run_dir), _number(ATTEMPT_VARIABLE), _number(RESTART_VARIABLE))


def own_rank() -> int:
    """RANK of the environment, 0 where it is absent."""
    return int(os.environ.get("RANK") or 0)


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    if not text.isdigit():
        raise InputError(
            f"{RUN_DIR_VARIABLE} is set, but {variable} is {text!r} instead of a number",
            hint=f"set {ATTEMPT_VARIABLE} and {RESTART_VARIABLE} too, or unset {RUN_DIR_VARIABLE}",
        )
    return int(text)
