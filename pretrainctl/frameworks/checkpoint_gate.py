"""The checkpoint gate: which tag a start resumes from, decided before any training process exists.

Policy, newest tag first:

* The newest complete tag of the run's own layout is taken, whatever `latest` says; a pointer that names an
  older complete tag gets a note, because somebody may have meant it.
* Every incomplete or corrupt tag newer than that one is moved into quarantine. Tags older than it are looked
  at by name only (one directory scan each): those with missing shards are moved too, the others are left
  unopened, since they cannot be chosen now and will be inspected when their turn comes.
* A tag that the training program could not load, or whose bytes are not those that were written, by the run's
  records, is corrupt, whatever its files look like, unless they were changed since. So is one that a person went
  back from.
* A tag of another layout (world size, ZeRO stage, precision) is never moved. Where it is the newest, the gate
  refuses: taking an older one would silently lose its progress.
* What cannot be moved, on a file system that is full, stays where it is: the tag to resume from is told to the
  program, so it is in nobody's way, and the next gate tries again.
* No complete tag where one is expected is an error. It is one too where `latest` names a tag that is neither
  there nor in quarantine: something was saved once, and step 0 would bury it.
* Whatever is an error, or unknown because the file system does not answer, changes nothing on disk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pretrainctl.errors import CheckpointError, UnreadableError
from pretrainctl.frameworks.quarantine import QUARANTINE, quarantine, quarantined, set_aside
from pretrainctl.frameworks.zero_checkpoint import (
    POINTER,
    inspect,
    read_pointer,
    tags,
    write_pointer,
)
from pretrainctl.records.launch import CheckpointLayout
from pretrainctl.records.run import Checkpoint, CheckpointStatus, RefusedTag

__all__ = ["GateResult", "as_recorded", "check", "gate", "refuse_other_layout", "stamp_of"]

_TAGS_IN_MESSAGE = 5


@dataclass(frozen=True)
class GateResult:
    """What the gate decided and did.

    `resume_tag` and `resume_step` are None for a fresh start. `quarantined` pairs each moved checkpoint with
    its new path, `left` are those that could not be moved. `inventory` holds the checkpoints that were inspected, by
    step; older ones are not in it. `notes` are for the event and for people.
    """

    resume_tag: str | None
    resume_step: int | None
    quarantined: tuple[tuple[Checkpoint, Path], ...]
    pointer_rewritten: bool
    notes: tuple[str, ...]
    inventory: tuple[Checkpoint, ...]
    left: tuple[Checkpoint, ...] = ()


def gate(
    directory: Path,
    layout: CheckpointLayout,
    *,
    expected: bool,
    last_saved_step: int | None,
    label: str,
    claimed: str | None = None,
    refused: Mapping[str, RefusedTag] | None = None,
    tasks_per_node: int | None = None,
) -> GateResult:
    """Choose the tag to resume from and clear the way to it; the policy is in the module's docstring.

    `expected`: the run has recorded a completed save (or, for a program without telemetry, had any tag).
    `last_saved_step`: the newest step of those records, for the note on what is lost. `claimed`: the tag that the
    program's end record says it saved. `refused`: tags that are not to be loaded. `label` marks what is
    moved (`attempt-0003`). CheckpointError: no usable checkpoint where there must be one, or one of another
    layout. UnreadableError: unknown. Only the owner of the run may call this, with no trainer alive.
    """
    choice = _choose(directory, layout, _Wanted(expected, last_saved_step, claimed, refused or {}), tasks_per_node)
    names, looked, chosen, pointer = choice.names, choice.looked, choice.chosen, choice.pointer
    bad = choice.bad
    older = names[names.index(chosen.tag) + 1 :] if chosen is not None else []
    notes: list[str] = []
    older_bad, older_notes = _older_incomplete(directory, older, layout, tasks_per_node)
    notes += older_notes
    moved, left = [], []
    for checkpoint in [*bad, *older_bad]:
        try:
            path = quarantine(directory, checkpoint, label)
        except OSError as error:
            left.append(checkpoint)
            notes.append(f"{checkpoint.tag} is {_told(checkpoint)}; it cannot be moved ({error.strerror}) and is left")
        else:
            moved.append((checkpoint, path))
            notes.append(f"{checkpoint.tag} is {_told(checkpoint)}; moved to {path}")
    rewritten = False
    if chosen is not None:
        notes += _pointer_notes(pointer, chosen, names)
        if last_saved_step is not None and last_saved_step > chosen.step:
            notes.append(
                f"the newest recorded save was at step {last_saved_step}: "
                f"{last_saved_step - chosen.step} steps are done again"
            )
        if pointer != chosen.tag:
            try:
                notes += _clear_pointer(directory, label)
                write_pointer(directory, chosen.tag)
                rewritten = True
            except UnreadableError as error:
                if not layout.trainer_state:  # a program of one's own may read it
                    raise
                notes.append(f"{error}; the program is told the tag")
    elif pointer is not None:
        try:
            path = set_aside(directory, POINTER, label)
            notes.append(f"{POINTER} named {pointer}, which is in quarantine; the pointer was moved to {path}")
        except OSError as error:
            if not layout.trainer_state:
                raise
            notes.append(f"{POINTER} names {pointer}, and cannot be moved ({error.strerror}); the program starts anew")
    return GateResult(
        chosen.tag if chosen else None,
        chosen.step if chosen else None,
        tuple(moved),
        rewritten,
        tuple(notes),
        tuple(sorted([*looked, *older_bad], key=lambda checkpoint: checkpoint.step)),
        tuple(left),
    )


def check(
    directory: Path,
    layout: CheckpointLayout,
    *,
    expected: bool,
    last_saved_step: int | None,
    claimed: str | None = None,
    refused: Mapping[str, RefusedTag] | None = None,
    tasks_per_node: int | None = None,
) -> str | None:
    """The tag that `gate` would choose now, and its errors; nothing is changed, so anybody may ask at any time."""
    chosen = _choose(
        directory, layout, _Wanted(expected, last_saved_step, claimed, refused or {}), tasks_per_node
    ).chosen
    return chosen.tag if chosen is not None else None


@dataclass(frozen=True)
class _Wanted:
    """What the run's own records say of its checkpoints; see `gate`."""

    expected: bool
    last_saved_step: int | None
    claimed: str | None
    refused: Mapping[str, RefusedTag] = field(default_factory=dict)


@dataclass(frozen=True)
class _Choice:
    """All tags, newest first; those that were inspected down to the chosen one; what the pointer names."""

    names: list[str]
    looked: list[Checkpoint]
    chosen: Checkpoint | None
    pointer: str | None

    @property
    def bad(self) -> list[Checkpoint]:
        """Those that are newer than the chosen one and cannot be loaded."""
        return [checkpoint for checkpoint in self.looked if checkpoint is not self.chosen]


def _choose(
    directory: Path,
    layout: CheckpointLayout,
    wanted: _Wanted,
    tasks_per_node: int | None,
) -> _Choice:
    names = tags(directory)
    looked: list[Checkpoint] = []
    chosen: Checkpoint | None = None
    for index, tag in enumerate(names):
        checkpoint = inspect(directory, tag, layout, tasks_per_node=tasks_per_node, older=names[index + 1 :])
        if checkpoint is None:
            continue
        checkpoint = as_recorded(directory, checkpoint, wanted.refused)
        looked.append(checkpoint)
        if checkpoint.other_layout:
            raise _other_layout(directory, checkpoint)
        if checkpoint.status is CheckpointStatus.COMPLETE:
            chosen = checkpoint
            break
    choice = _Choice(names, looked, chosen, read_pointer(directory))
    if chosen is None:
        _refuse_step_zero(directory, wanted, choice.pointer, choice.bad)
    return choice


def as_recorded(directory: Path, checkpoint: Checkpoint, refused: Mapping[str, RefusedTag]) -> Checkpoint:
    """`checkpoint`, or the same as corrupt where it is one of those that are `refused`, unchanged since."""
    one = refused.get(checkpoint.tag)
    if one is None or checkpoint.status is not CheckpointStatus.COMPLETE:
        return checkpoint
    if one.stamp and one.stamp != stamp_of(directory, checkpoint.tag):
        return checkpoint
    reason = f"it could not be loaded: {one.reason}" if one.because == "load" else one.reason
    reason = "; ".join(part for part in (checkpoint.other_layout, reason) if part)
    return replace(checkpoint, status=CheckpointStatus.CORRUPT, reason=reason)


def stamp_of(directory: Path, tag: str) -> int:
    """A number that changes when anything in a tag is written, replaced or restored (its newest change of an inode, in
    ns); 0 where that cannot be told."""
    try:
        with os.scandir(directory / tag) as entries:
            changes = [entry.stat(follow_symlinks=False).st_ctime_ns for entry in entries]
    except OSError:
        return 0
    return max(changes, default=0)


def refuse_other_layout(directory: Path, layout: CheckpointLayout) -> None:
    """CheckpointError where the newest tag, if there is one, was saved in another layout; nothing is changed."""
    for tag in tags(directory)[:1]:
        checkpoint = inspect(directory, tag, layout)
        if checkpoint is not None and checkpoint.other_layout:
            raise _other_layout(directory, checkpoint)


def _other_layout(directory: Path, checkpoint: Checkpoint) -> CheckpointError:
    path = directory / checkpoint.tag
    return CheckpointError(
        f"{path} was {checkpoint.other_layout}: it cannot be loaded as it is",
        hint="go on with the layout that saved it; or convert it, which is your choice to make: python -m "
        f"deepspeed.checkpoint.ds_to_universal --input_folder {path} --output_folder {path}_universal",
    )


def _refuse_step_zero(directory: Path, wanted: _Wanted, pointer: str | None, bad: list[Checkpoint]) -> None:
    """Raise unless a fresh start is right."""
    lost = pointer if pointer is not None and not _accounted_for(directory, pointer, bad) else None
    # A lone tag may be the first save, torn; of several, one whose shards are all there was complete once, and so was
    # one that only the records refuse.
    corrupt = [one.tag for one in bad if one.status is CheckpointStatus.CORRUPT]
    was_complete = next((tag for tag in corrupt if len(bad) > 1 or tag in wanted.refused), None)
    if not wanted.expected and lost is None and was_complete is None:
        return
    if wanted.claimed is not None:
        why = f"the program's end record says that {wanted.claimed} was saved"
        if not any(checkpoint.tag == wanted.claimed for checkpoint in bad):
            why += ", which is not there"
    elif wanted.last_saved_step is not None:
        why = f"a save at step {wanted.last_saved_step} was recorded"
    elif was_complete is not None:
        why = f"{was_complete} was complete once"
    elif lost is not None:
        why = f"{POINTER} names {lost}, which is not there"
    else:
        why = "one is expected"
    there = "; ".join(f"{checkpoint.tag} is {_told(checkpoint)}" for checkpoint in bad[:_TAGS_IN_MESSAGE])
    if len(bad) > _TAGS_IN_MESSAGE:
        there += f"; and {len(bad) - _TAGS_IN_MESSAGE} more"
    raise CheckpointError(
        f"no usable checkpoint in {directory}, but {why}. There is: {there or 'no tag at all'}",
        hint="nothing was changed and step 0 is not started; put a complete checkpoint there, then resume"
        if lost is None or wanted.expected
        else f"put the checkpoint back, or remove {directory / POINTER} for a fresh start, then resume",
    )


def _accounted_for(directory: Path, pointer: str, bad: list[Checkpoint]) -> bool:
    """Is the tag that `latest` names one that never was complete?"""
    if any(checkpoint.tag == pointer for checkpoint in bad):
        return True
    try:
        return any(name.startswith(f"{pointer}.") for name in quarantined(directory))
    except OSError as error:
        raise UnreadableError(
            f"{directory / QUARANTINE} cannot be read ({error.strerror}): what was set aside is unknown",
            hint="nothing was changed; resume when the file system answers again",
        ) from error


def _older_incomplete(
    directory: Path, older: list[str], layout: CheckpointLayout, tasks_per_node: int | None
) -> tuple[list[Checkpoint], list[str]]:
    found = []
    notes = []
    for tag in older:
        try:
            checkpoint = inspect(directory, tag, layout, tasks_per_node=tasks_per_node, names_only=True)
        except UnreadableError as error:
            notes.append(f"an older tag is left alone: {error}")
            continue
        if checkpoint is not None and not checkpoint.other_layout:
            found.append(checkpoint)
    return found, notes


def _told(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.status.value} ({checkpoint.reason})"


def _clear_pointer(directory: Path, label: str) -> list[str]:
    """Move away what stands under the name of the pointer and is no file; a note of it."""
    path = directory / POINTER
    if not path.exists() or path.is_file():
        return []
    try:
        kind = "a folder" if path.is_dir() else "no file"
        return [f"{POINTER} was {kind}; it was moved to {set_aside(directory, POINTER, label)}"]
    except OSError as error:
        raise UnreadableError(
            f"{path} is no file, and cannot be moved away: {error.strerror}",
            hint="move it away by hand, then resume",
        ) from error


def _pointer_notes(pointer: str | None, chosen: Checkpoint, names: list[str]) -> list[str]:
    if pointer == chosen.tag:
        return []
    if pointer is None:
        return [f"{POINTER} was missing or empty; it now names {chosen.tag}"]
    if pointer in names[names.index(chosen.tag) + 1 :]:
        return [f"{POINTER} named the older {pointer}; the newest complete checkpoint {chosen.tag} is taken"]
    return [f"{POINTER} named {pointer}, which is not usable; it now names {chosen.tag}"]
