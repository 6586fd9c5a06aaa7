"""What both sides of a run rely on: file names, variables, exit codes. The login side, the attempt in the
job and the training program meet only here and in the files named here.

Run folder::

    run.json                            identity of the run (records.run.RunRecord)
    plan.json                           recipe, profile and plan of the last `resume` that changed them
    bundle/                             what was submitted: job.sbatch task.sh launch.json training.json deepspeed.json
    bundles/0001/ ...                   what it was before such a `resume`
    code/                               the code snapshot
    events/000001.json ...              what was done from outside any attempt
    control/                            fence.json, and requests: request.json
    checkpoints/                        unless the recipe names another path; owner.json in it says whose they are
    attempts/0001/attempt.json          one start of the batch script (records.run.AttemptRecord)
    attempts/0001/alive                 touched by the attempt each minute while it is in charge
    attempts/0001/lineage.json          what it trained with (records.lineage.Lineage)
    attempts/0001/events/000001.json
    attempts/0001/node-test/            the test of all nodes before it trained: probe.py, srun.log, result.json
    attempts/0001/restart-0/            one srun of the training program
        metrics.jsonl                   written by rank 0: records.sample lines
        end.json                        written by rank 0 after a barrier (End): the proof of how it ended
        failure.json                    written by the first task that ended badly (Failure)
        left.json                       written by the first task that ended well without an end record (Failure)
        hang.json, stacks.txt           written by the attempt that ended it as hung (records.progress.Hang)
        training.log
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Literal

__all__ = [
    "ATTEMPT_VARIABLE",
    "CONTROL",
    "RESTART_VARIABLE",
    "RESUME_TAG_VARIABLE",
    "RUN_DIR_VARIABLE",
    "SHARDS_FILE",
    "STATE_FILE",
    "End",
    "EndKind",
    "ExitCode",
    "Failure",
    "Fence",
    "Request",
    "attempt_dir",
    "control_dir",
    "fence_file",
    "request_file",
    "restart_dir",
]

RUN_DIR_VARIABLE = "PRETRAINCTL_RUN_DIR"
"""Absolute path of the run folder."""
ATTEMPT_VARIABLE = "PRETRAINCTL_ATTEMPT"
"""Number of the attempt, from 1."""
RESTART_VARIABLE = "PRETRAINCTL_RESTART"
"""Number of the restart inside the attempt, from 0."""
RESUME_TAG_VARIABLE = "PRETRAINCTL_RESUME_TAG"
"""Tag of the checkpoint to resume from, chosen by the checkpoint gate; empty for a fresh start. A program that
cannot load a tag it was given must fail: it never starts again from step 0."""

CONTROL = "control"
STATE_FILE = "state.json"
"""In a tag of the reference trainer: how far the run was. Written before the shards; a tag where it cannot be read,
or tells another step, is corrupt; one of another program that has none is judged by its shards alone."""
SHARDS_FILE = "shards.json"
"""In a tag of the reference trainer: which shards its ranks saved; see `records.shards`. Written after them."""


class ExitCode(IntEnum):
    """Exit codes of a training program. They only support `end.json`, which is the proof."""

    REACHED = 0
    FAILED = 1
    CHECKPOINTED = 75
    """Saved and wants to continue (EX_TEMPFAIL)."""
    DIVERGED = 76
    """Loss is NaN or Inf; the last good checkpoint is untouched."""
    FENCED = 77
    """A newer attempt or restart owns the run; nothing was saved."""


EndKind = Literal["reached", "checkpointed", "diverged", "fenced", "failed"]


@dataclass(frozen=True)
class End:
    """`end.json`: how a restart ended, written by rank 0 after a barrier of all ranks.

    A `reached` below the launch's target_steps ends no run, and a save that is claimed here must be there at the next
    start. `step` is the last optimizer step done, `tokens` the tokens consumed up to it, `checkpoint` the tag of
    the newest complete save of this restart or None, `time` seconds since the epoch.
    """

    kind: EndKind
    step: int
    tokens: int
    checkpoint: str | None
    reason: str
    time: float


@dataclass(frozen=True)
class Failure:
    """`failure.json`: the first task of a restart that ended badly; created exclusively, so the first wins. `left.json`
    tells the same of the first that ended with REACHED or CHECKPOINTED where no end record was there 3 s later.

    `status` is the exit status as the shell sees it (128 + signal number for a signal), `time` seconds
    since the epoch.
    """

    rank: int
    node: str
    status: int
    time: float


@dataclass(frozen=True)
class Fence:
    """`control/fence.json`: the owner of the run. A program whose (attempt, restart) is lower saves nothing."""

    attempt: int
    restart: int


@dataclass(frozen=True)
class Request:
    """`control/request.json`: what the ranks should do at the next step boundary.

    `save` = checkpoint and go on; `save_and_exit` = checkpoint and end with ExitCode.CHECKPOINTED.
    `attempt` is the attempt that the request is for; others ignore it. `reason` is shown to people:
    `time_limit`, `stop`, `save` ... `number` rises with each request, so that each is obeyed once.
    """

    action: Literal["save", "save_and_exit"]
    attempt: int
    reason: str
    number: int
    time: float


def attempt_dir(run_dir: Path, attempt: int) -> Path:
    """`attempts/NNNN`."""
    return run_dir / "attempts" / f"{attempt:04d}"


def restart_dir(run_dir: Path, attempt: int, restart: int) -> Path:
    """`attempts/NNNN/restart-K`."""
    return attempt_dir(run_dir, attempt) / f"restart-{restart}"


def control_dir(run_dir: Path) -> Path:
    """Where requests and the fence lie."""
    return run_dir / CONTROL


def fence_file(run_dir: Path) -> Path:
    """`control/fence.json`."""
    return control_dir(run_dir) / "fence.json"


def request_file(run_dir: Path) -> Path:
    """`control/request.json`."""
    return control_dir(run_dir) / "request.json"
