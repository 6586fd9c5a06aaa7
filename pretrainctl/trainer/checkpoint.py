"""Save, load and prune checkpoints so that the name of a tag never says more than what lies in it.

A tag `global_stepN` holds DeepSpeed's files and our `state.json`. A save ends with each rank's files on disk, a
barrier, and only then `latest`: DeepSpeed itself writes `latest` before other ranks have finished.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deepspeed
import torch.distributed as dist

from pretrainctl.errors import CheckpointError, LedgerError
from pretrainctl.records import codec
from pretrainctl.records.contract import RESUME_TAG_VARIABLE, STATE_FILE
from pretrainctl.records.training import TrainingSettings
from pretrainctl.trainer.checksums import damage_of
from pretrainctl.trainer.engine import Engine, Ranks
from pretrainctl.trainer.shard_record import refuse_strangers, write_record

__all__ = [
    "State",
    "expected_files",
    "find",
    "load",
    "prune",
    "refuse_silent_restart",
    "save",
    "tag_of",
]

_TAG = re.compile(r"global_step(\d+)")
_REPLACED = "replaced-"
_DELETING = "deleting-"
_NOT_OF_THE_FILES = ("gloo", "NCCL", "CUDA", "HIP error", "out of memory", "alloc", "file read failed")
"""Words of errors that say nothing about this rank's files: a peer died, memory ran out, a GPU or a read failed."""


@dataclass(frozen=True)
class State:
    """`state.json` of a tag: how far the run was, and all that exact continuation depends on.

    There is no generator state: nothing in the model is random, and the order of samples is a function of
    their number. `sources` holds (tokens, share) of each data source.
    """

    step: int
    samples: int
    tokens: int
    world_size: int
    zero_stage: int
    precision: str
    global_batch: int
    sequence_length: int
    data_seed: int
    sources: tuple[tuple[int, ...], ...]
    model: dict[str, Any]

    @classmethod
    def at(cls, step: int, settings: TrainingSettings, world_size: int, sources: list[list[int]]) -> State:
        """The state after optimizer step `step` of these settings."""
        samples = step * settings.global_batch
        return cls(
            step=step,
            samples=samples,
            tokens=samples * settings.data.sequence_length,
            world_size=world_size,
            zero_stage=settings.zero_stage,
            precision=settings.precision,
            global_batch=settings.global_batch,
            sequence_length=settings.data.sequence_length,
            data_seed=settings.data.seed,
            sources=tuple(tuple(source) for source in sources),
            model=codec.to_json(settings.model),
        )


def tag_of(step: int) -> str:
    """The tag of a checkpoint taken after `step`."""
    return f"global_step{step}"


def expected_files(zero_stage: int, precision: str, rank: int) -> list[str]:
    """Names of the files that `rank` writes into a tag."""
    prefix = "bf16_" if precision == "bf16" else ""
    names = []
    if zero_stage == 3:
        names.append(f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
    elif rank == 0:
        names.append("mp_rank_00_model_states.pt")
    if zero_stage > 0:
        names.append(f"{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    return names


def refuse_silent_restart(directory: Path) -> None:
    """CheckpointError where a start from step 0 would ignore checkpoints that lie in `directory`."""
    found = [int(match[1]) for path in directory.glob("global_step*") if (match := _TAG.fullmatch(path.name))]
    if found:
        newest = tag_of(max(found))
        raise CheckpointError(
            f"{directory} holds {newest}, and nobody says whether to resume from it",
            hint=f"set {RESUME_TAG_VARIABLE}={newest}, or choose an empty checkpoint directory",
        )


def find(settings: TrainingSettings, ranks: Ranks, sources: list[list[int]], tag: str) -> State:
    """What `tag` was saved with; CheckpointError where it does not fit this run or a file of this rank is missing."""
    directory = settings.checkpoint.directory / tag
    if not _TAG.fullmatch(tag) or not directory.is_dir():
        raise CheckpointError(f"there is no checkpoint {directory}", hint="name a tag that is there")
    state = _read_state(directory, _loaded_files(settings, ranks))
    needed = State.at(int(tag.removeprefix("global_step")), settings, ranks.world_size, sources)
    for field in dataclasses.fields(State):
        saved, now = getattr(state, field.name), getattr(needed, field.name)
        if saved != now:
            raise CheckpointError(
                f"{directory} was saved with {field.name} {saved}, but this run has {now}",
                hint="resume with the settings and the number of ranks it was saved with",
            )
    for name in _own_files(settings, ranks):
        if not (directory / name).is_file():
            raise CheckpointError(f"{directory / name} is missing", hint="resume from an older complete tag")
    refuse_strangers(directory, state.step, ranks, _loaded_files(settings, ranks))
    return state


def _read_state(directory: Path, shards: Sequence[str]) -> State:
    """The trainer's own record in a tag. Where it is missing and `shards` are there, this trainer never saved the tag;
    where they are not either, this node may see nothing of it."""
    hint = "resume from a tag that this trainer completed"
    try:
        return codec.read_known(State, directory / STATE_FILE)
    except LedgerError as error:
        if isinstance(error.__cause__, FileNotFoundError) and all((directory / name).is_file() for name in shards):
            raise CheckpointError(f"{directory} cannot be loaded: its {STATE_FILE} is missing", hint=hint) from error
        if isinstance(error.__cause__, OSError):
            raise CheckpointError(str(error), hint=hint) from error
        why = error.__cause__ or error
        raise CheckpointError(f"{directory} cannot be loaded: {STATE_FILE}: {why}", hint=hint) from error


def load(engine: Engine, settings: TrainingSettings, ranks: Ranks, state: State) -> None:
    """Load the tag of `state` into the engine; CheckpointError where DeepSpeed fails, or only warns.

    Before, each rank holds the bytes of those shards that it writes against their checksums: together those are all,
    each once.
    """
    directory, tag = settings.checkpoint.directory, tag_of(state.step)
    _refuse_damage(directory / tag, _own_files(settings, ranks))
    complaints = _Complaints()
    deepspeed.utils.logger.addHandler(complaints)
    try:
        path, client = engine.deepspeed.load_checkpoint(str(directory), tag=tag)
    except OSError as error:
        # Of the file system, not of the bytes: the tag may be whole.
        raise CheckpointError(f"{directory / tag} cannot be read: {type(error).__name__}: {error}") from error
    except Exception as error:
        text = (str(error).splitlines() or [""])[0]
        if isinstance(error, (MemoryError, dist.DistError)) or any(word in text for word in _NOT_OF_THE_FILES):
            raise
        raise CheckpointError(
            f"{directory / tag} cannot be loaded: {type(error).__name__}: {text}",
            hint="resume from an older complete tag",
        ) from error
    finally:
        deepspeed.utils.logger.removeHandler(complaints)
    # DeepSpeed warns about missing shards and goes on with the weights alone: that is no resume.
    if path is None or complaints.said:
        raise CheckpointError(f"{directory / tag} cannot be loaded: {' '.join(complaints.said) or 'no files found'}")
    if (client.get("step"), engine.deepspeed.global_steps) != (state.step, state.step):
        raise CheckpointError(
            f"{directory / tag} holds the weights of step {engine.deepspeed.global_steps}, "
            f"and was saved as step {client.get('step')}"
        )
    if engine.holds_nan():
        raise CheckpointError(
            f"{directory / tag} cannot be loaded: there are NaNs among its weights or the moments of AdamW",
            hint="resume from an older complete tag",
        )
    # Each rank asks its own shard: DeepSpeed loads one of another step without a word.
    steps = engine.optimizer_steps()
    if steps != {state.step}:
        found = " and ".join(map(str, sorted(steps))) or "none"
        raise CheckpointError(f"{directory / tag} holds the optimizer of step {found}")


def _refuse_damage(tag: Path, names: list[str]) -> None:
    try:
        damage = next(filter(None, (damage_of(tag / name) for name in names)), "")
    except OSError as error:
        raise CheckpointError(f"{tag} cannot be read: {type(error).__name__}: {error}") from error
    if damage:
        raise CheckpointError(f"{tag} cannot be loaded: {damage}", hint="resume from an older complete tag")


def save(engine: Engine, settings: TrainingSettings, ranks: Ranks, state: State) -> str:
    """Write a complete checkpoint with all ranks; returns its tag once every rank's files are on disk.

    A tag of the same name (a replay reaches a step that was saved before) is moved aside first and removed
    in the end, so that old and new shards never mix.
    """
    directory, tag = settings.checkpoint.directory, tag_of(state.step)
    target, replaced = directory / tag, directory / f"{_REPLACED}{tag}"
    with _writing(target):
        if ranks.rank == 0:
            directory.mkdir(parents=True, exist_ok=True)
            if target.exists():
                shutil.rmtree(replaced, ignore_errors=True)
                target.rename(replaced)
            target.mkdir()
        ranks.barrier()
        if ranks.rank == 0:
            # Before any shard: a tag whose shards are all there, which is what the gate looks for, has its state too.
            codec.write(target / STATE_FILE, state)
        engine.deepspeed.save_checkpoint(str(directory), tag=tag, client_state={"step": state.step}, save_latest=False)
        for name in _own_files(settings, ranks):
            _sync(target / name)
        # A barrier too: what follows comes after each rank's files are on disk.
        write_record(
            target, state.step, ranks, lambda rank: expected_files(settings.zero_stage, settings.precision, rank)
        )
        if ranks.rank == 0:
            codec.sync_directory(target)
            _write_latest(directory, tag)
            shutil.rmtree(replaced, ignore_errors=True)
    return tag


def prune(settings: TrainingSettings, ranks: Ranks, newest: int) -> None:
    """Delete all but the newest `keep` complete checkpoints up to step `newest`; incomplete ones stay.

    A tag is renamed before it is deleted: a program killed in between leaves no half of it under its name.
    """
    directory, keep = settings.checkpoint.directory, settings.checkpoint.keep
    if ranks.rank != 0 or keep == 0:
        return
    names = [STATE_FILE]
    for rank in range(ranks.world_size):
        names += expected_files(settings.zero_stage, settings.precision, rank)
    whole = []
    for path in directory.glob("global_step*"):
        match = _TAG.fullmatch(path.name)
        if match and int(match[1]) <= newest and all(_size(path / name) > 0 for name in names):
            whole.append(int(match[1]))
    for step in sorted(whole)[:-keep]:
        (directory / tag_of(step)).rename(directory / f"{_DELETING}{tag_of(step)}")
    for path in directory.glob(f"{_DELETING}global_step*"):
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Turns what a full disk makes of a save into a CheckpointError; a peer's death stays what it is."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        if isinstance(error, RuntimeError) and "PytorchStreamWriter" not in text and "unexpected pos" not in text:
            raise
        raise CheckpointError(
            f"{target} could not be written: {text}", hint="is the disk or the quota full?"
        ) from error


class _Complaints(logging.Handler):
    """Collects what DeepSpeed only warns about while it loads."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        self.said.append(record.getMessage())


def _own_files(settings: TrainingSettings, ranks: Ranks) -> list[str]:
    return expected_files(settings.zero_stage, settings.precision, ranks.rank)


def _loaded_files(settings: TrainingSettings, ranks: Ranks) -> list[str]:
    """Own files, and the weights: with ZeRO 3 each rank has a share of its own, else all load those of rank 0."""
    weights = expected_files(0, settings.precision, 0) if settings.zero_stage != 3 and ranks.rank != 0 else []
    return weights + _own_files(settings, ranks)


def _write_latest(directory: Path, tag: str) -> None:
    aside = directory / f".latest.{os.getpid()}"
    aside.write_text(tag, encoding="utf-8")
    _sync(aside)
    aside.replace(directory / "latest")
    codec.sync_directory(directory)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
