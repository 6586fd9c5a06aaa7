"""What a framework file offers to the path from plan to launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pretrainctl.records.launch import Launch
from pretrainctl.records.training import TrainingSettings
from pretrainctl.schema import Plan

__all__ = ["Framework", "RunIdentity"]


@dataclass(frozen=True)
class RunIdentity:
    """What the plan cannot know: where the run lies, its id, and the interpreters on the cluster.

    `run_id` is the tracker's id in every attempt and the job name; `python` runs pretrainctl on the batch
    host, `training_python` the training program in the tasks. All paths are absolute.
    """

    run_dir: Path
    run_id: str
    python: str
    training_python: str


class Framework(Protocol):
    """One training framework: plan -> launch. Pure: nothing is read from the machine."""

    def launch(self, plan: Plan, identity: RunIdentity) -> tuple[Launch, TrainingSettings | None, Mapping[str, Any]]:
        """The launch record, the reference trainer's settings (None for a program of one's own), and the
        framework's own configuration as plain JSON values."""
        ...
