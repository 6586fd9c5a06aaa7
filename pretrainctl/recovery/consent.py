"""Which changes between two attempts alter the training, and so need a person's consent. Pure; one table.

Settings of the training alter it unless they are listed as harmless, those of the launch only where they are listed:
a wrong stop costs a question, a wrong start a training. What is not known is no change.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pretrainctl.records.lineage import Change, Lineage

__all__ = ["compare", "describe", "describe_keys", "join", "open_changes"]

_ALTERING = (
    *("training.", "deepspeed.", "task", "data.", "code.", "image.", "python.module."),
    *("launch.framework", "launch.program", "launch.resume_arguments", "launch.checkpoint."),
    *("launch.target_steps", "launch.tokens_per_step", "launch.environment."),
)
"""Beginnings of keys that alter the training."""
_HARMLESS = (
    *("training.log_every", "training.threads", "training.recompute", "training.deepspeed_config"),
    *("training.checkpoint.every_steps", "training.checkpoint.keep"),
    *(
        "deepspeed.steps_per_print",
        "deepspeed.wall_clock_breakdown",
        "deepspeed.comms_logger",
        "deepspeed.flops_profiler",
    ),
    *("deepspeed.tensorboard", "deepspeed.wandb", "deepspeed.csv_monitor"),
    *("code.commit.", "code.pretrainctl"),
    *(
        f"launch.environment.{name}"
        for name in ("NCCL_", "UCX_", "FI_", "GLOO_", "PSM", "OMPI_", "PMI", "PMIX_", "SLURM")
    ),
    *(
        f"launch.environment.{name}"
        for name in ("WANDB_", "OMP_", "MKL_", "CUDA_", "TORCH_", "TORCHINDUCTOR_", "TRITON_")
    ),
    *(
        f"launch.environment.{name}"
        for name in ("PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", "TMPDIR", "XDG_", "DS_ACCEL")
    ),
)
"""Beginnings of keys among them that do not."""
_VERSIONED = {"python.torch", "python.deepspeed"}
"""Here only another major or minor version counts."""
_MOST_SHOWN = 8


def compare(before: Lineage, now: Lineage) -> list[Change]:
    """What differs, what alters the training first; only where both sides know."""
    keys = sorted({*before.facts, *now.facts})
    changes = [
        Change(key, old, new, _alters(key, old, new))
        for key in keys
        if before.knows(key)
        and now.knows(key)
        and (old := before.facts.get(key, "")) != (new := now.facts.get(key, ""))
    ]
    return sorted(changes, key=lambda change: (not change.alters, change.key))


def open_changes(changes: Sequence[Change], accepted: Collection[tuple[str, str]]) -> list[Change]:
    """Those that alter the training and of which nobody has accepted what is there now: (key, value)."""
    return [change for change in changes if change.alters and (change.key, change.after) not in accepted]


def join(lineages: Sequence[Lineage]) -> Lineage:
    """What is known from several, the newest last: what one of them could not find out, it takes from those before."""
    facts: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for lineage in lineages:
        kept = {key: value for key, value in facts.items() if not lineage.knows(key)}
        facts = {**kept, **lineage.facts}
        unknown = {
            name: why
            for name, why in lineage.unknown.items()
            if not any(key == name or key.startswith(f"{name}.") for key in facts)
        }
    return Lineage(facts, unknown)


def describe(changes: Sequence[Change]) -> str:
    """The changes in one line."""
    shown = "; ".join(map(str, changes[:_MOST_SHOWN]))
    more = len(changes) - _MOST_SHOWN
    return f"{shown}; and {more} more" if more > 0 else shown


def describe_keys(changes: Sequence[Mapping[str, Any]]) -> str:
    """The keys of recorded changes that alter the training, in one line; empty where none does."""
    return ", ".join(str(change.get("key")) for change in changes if change.get("alters"))


def _alters(key: str, before: str, after: str) -> bool:
    if key in _VERSIONED:
        return bool(before and after) and _minor(before) != _minor(after)
    if key.startswith(("data.", "image.")):
        return not key.endswith(".mtime")
    return key.startswith(_ALTERING) and not key.startswith(_HARMLESS)


def _minor(version: str) -> str:
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else version
