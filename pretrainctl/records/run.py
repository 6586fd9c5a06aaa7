"""The run as its folder tells it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "Action",
    "AttemptRecord",
    "Checkpoint",
    "CheckpointOwner",
    "CheckpointStatus",
    "Decision",
    "Diagnosis",
    "Event",
    "EventKind",
    "RefusedTag",
    "RunRecord",
    "run_id_for",
]


EventKind = Literal[
    # from outside any attempt
    "made",
    "submitting",
    "submitted",
    "stop_requested",
    "save_requested",
    "cancel_requested",
    "change_accepted",
    "resume_requested",
    "went_back",
    "batch_host_lost",
    "batch_host_back",
    "job_lost",
    "checkpoint_damaged",
    "checkpoint_sound",
    # of an attempt, in the order in which they come
    "claimed",
    "refused",
    "set_aside",
    "chained",
    "chain_refused",
    "looked_back",
    "nodes_tested",
    "node_listed",
    "lineage",
    "checkpoint_gate",
    "restart_started",
    "node_dead",
    "checkpoint_unusable",
    "loss_jump",
    "lr_jump",
    "save_asked",
    "hang",
    "restart_ended",
    "decided",
    "attempt_ended",
    # of an attempt, or of a look from outside
    "finished",
    "stopped",
    "note",
]
"""What an event can say. `finished`: the target was reached. `stopped`: nothing goes on until a resume. `made`: the run
folder is there and nothing was submitted, which is a stop too, until the launch is `submitting`."""


@dataclass(frozen=True)
class RunRecord:
    """`run.json`: identity of a run, written once. `recipe`, `profile` and `plan` are what they were at launch.

    `run_id` is fixed at the first submission (letters, digits, - and _, at most 64) and is the tracker's run id
    in every attempt; `name` is what people typed. `slurm_conf` and `slurm_cluster` say which Slurm it was submitted
    to: the path of its configuration, empty for that of the host, and Slurm's own name of the cluster. `node_list` is
    the folder of the node exclusion lists, empty for the one beside the run's own folder. `settings` is what
    `--set` gave.
    """

    name: str
    run_id: str
    job_name: str
    cluster: str
    created: float
    user: str
    recipe: Mapping[str, Any]
    profile: Mapping[str, Any]
    plan: Mapping[str, Any]
    digests: Mapping[str, str] = field(default_factory=dict)
    slurm_conf: str = ""
    slurm_cluster: str = ""
    node_list: str = ""
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class AttemptRecord:
    """`attempts/NNNN/attempt.json`: who started this attempt. `slurm_restart` counts Slurm's own requeues."""

    attempt: int
    job_id: int
    slurm_restart: int
    host: str
    pid: int
    nodes: tuple[str, ...]
    time: float


@dataclass(frozen=True)
class Event:
    """One fact of the ledger, never edited. Order is (attempt, sequence); `time` (epoch seconds) is for show.

    `attempt` is 0 for what was done from outside any attempt; `after_attempt` then is the newest attempt that
    existed. `data` holds details by kind.
    """

    kind: EventKind
    attempt: int
    sequence: int
    time: float
    host: str
    message: str
    after_attempt: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)


class CheckpointStatus(Enum):
    """What a checkpoint tag is worth."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    CORRUPT = "corrupt"


@dataclass(frozen=True)
class Checkpoint:
    """A tag of a checkpoint directory: `step` it was taken at, `size` in bytes, why it is not complete,
    and the data-parallel `world_size` that wrote it (None where it cannot be told).

    `other_layout` says how it was saved where that is not the run's own layout (another world size, ZeRO
    stage or precision); `status` is then that of its own layout, and the run cannot load it as it is."""

    tag: str
    step: int
    status: CheckpointStatus
    size: int
    reason: str = ""
    world_size: int | None = None
    other_layout: str = ""


@dataclass(frozen=True)
class RefusedTag:
    """A tag that is not to be loaded though it looks whole: why, and a `stamp` of its files (0 where they could not be
    looked at), by which one that was repaired since is known.

    `because`: a start could not load it, `checkpoints --verify` read other bytes than were written, or a person went
    back to an older one.
    """

    tag: str
    reason: str
    stamp: int
    because: Literal["load", "bytes", "person"] = "load"


@dataclass(frozen=True)
class CheckpointOwner:
    """`owner.json` in a checkpoint directory: the run that resumes from it, saves into it and prunes it.

    `run_dir` is where the run's folder was when it took the directory, `time` epoch seconds.
    """

    run_id: str
    run_dir: Path
    user: str
    time: float


@dataclass(frozen=True)
class Diagnosis:
    """Why a restart, an attempt or a job ended: exactly one class, where, and what says so.

    `lasting`: it stays so until a person acts, whatever is usual for its class. `hint`: what a person can do, where
    that is more than the class itself tells.
    """

    failure_class: str
    message: str
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    confidence: Literal["high", "medium", "low"] = "high"
    lasting: bool = False
    hint: str = ""


class Action(Enum):
    """What happens next."""

    FINISH = "finish"
    RESTART_HERE = "restart_here"
    HAND_OVER = "hand_over"
    STOP = "stop"
    WAIT = "wait"


@dataclass(frozen=True)
class Decision:
    """What was decided, and the reason as people read it. `pause`: seconds to wait before it is done."""

    action: Action
    reason: str
    exclude: tuple[str, ...] = ()
    pause: float = 0.0


def run_id_for(name: str, salt: str) -> str:
    """The id of a run in trackers and in Slurm: letters, digits, - and _, at most 64, whatever `name` holds.

    The end is a short digest of name and `salt`, so that runs of like names do not meet.
    """
    digest = hashlib.sha256(f"{name}\n{salt}".encode(errors="surrogatepass")).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9_]+", "-", name)[:48].strip("-")
    return f"{readable}-{digest}" if readable else f"run-{digest}"
