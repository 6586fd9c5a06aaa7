"""DeepSpeed's checkpoint directory on disk: which tags are whole, the `latest` pointer. No torch.

DeepSpeed's own pointer proves nothing: rank 0 writes `latest` as soon as its own files are done, before the
barrier, and not atomically (seen with DeepSpeed 0.19: it named a tag whose other shards did not exist). So a
tag is judged by its files alone. One directory scan a tag, then two or three small reads a shard, many at
once: thousands of shards on a slow metadata server take seconds.

Sizes. The archive check already ties a file's size to its own content, so a cut shard never gets as far as
this. What is left is a whole archive that holds far too little. A shard is refused when it is more than 16
times and more than 1 MiB smaller than its reference: the median of the optimizer shards of the same slice in
the same tag, or, where fewer than three of those are there and for whole-model files, the same file in the
newest older tag of the same geometry. A healthy shard cannot be: partitions of one slice differ by padding
only (under 2 elements a rank and parameter group, under 100 KiB at 4096 ranks), and between saves of one run
the state of an element lies between 2 bytes (bf16 weight) and 16 (fp32 weight, two moments, gradient).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pretrainctl.errors import CheckpointError, UnreadableError
from pretrainctl.frameworks.shard_record import (
    CIRCLE,
    find_stranger,
    find_wrong_records,
    recorded_shards,
    unreadable,
)
from pretrainctl.frameworks.torch_archive import (
    TornArchiveError,
    UnknownFormatError,
    open_archive,
    recorded_integer,
)
from pretrainctl.frameworks.zero_shards import Geometry, Shard, describe_missing, parse_shard, saved_geometry
from pretrainctl.records.codec import open_regular, sync_directory
from pretrainctl.records.contract import STATE_FILE
from pretrainctl.records.launch import CheckpointLayout
from pretrainctl.records.run import Checkpoint, CheckpointStatus
from pretrainctl.records.shards import SavedShards

__all__ = [
    "POINTER",
    "inspect",
    "inventory",
    "iter_checkpoints",
    "read_pointer",
    "tags",
    "write_pointer",
]

POINTER = "latest"

_TAG = re.compile(r"global_step(0|[1-9]\d*)")
_READERS = 16
_SIZE_FACTOR = 16
_SIZE_FLOOR = 1024 * 1024
_LONGEST_POINTER = 4096


def tags(directory: Path) -> list[str]:
    """Every entry named like a tag, by step as a number, newest first; other entries are not ours.

    A directory that does not exist in a parent that does has no tags. UnreadableError for all else.
    """
    try:
        with os.scandir(directory) as entries:
            found = [entry.name for entry in entries if _TAG.fullmatch(entry.name)]
    except FileNotFoundError as error:
        # A missing parent is a file system that is not mounted rather than a run without checkpoints.
        if directory.parent.is_dir() and not directory.is_symlink():
            return []
        raise unreadable(directory, error) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CheckpointError(f"{directory} is {CIRCLE}", hint="let the link name the folder") from error
        raise unreadable(directory, error) from error
    return sorted(found, key=_step, reverse=True)


def inventory(directory: Path, layout: CheckpointLayout, *, tasks_per_node: int | None = None) -> list[Checkpoint]:
    """Every tag of a checkpoint directory, each fully inspected, by step.

    `tasks_per_node` lets a reason name the nodes that wrote nothing. UnreadableError where the file system
    does not say what is there; nothing is ever changed.
    """
    return list(iter_checkpoints(directory, layout, tasks_per_node=tasks_per_node))[::-1]


def iter_checkpoints(
    directory: Path, layout: CheckpointLayout, *, tasks_per_node: int | None = None
) -> Iterator[Checkpoint]:
    """As `inventory`, newest first, each tag inspected only when it is asked for."""
    found = tags(directory)
    for index, tag in enumerate(found):
        checkpoint = inspect(directory, tag, layout, tasks_per_node=tasks_per_node, older=found[index + 1 :])
        if checkpoint is not None:
            yield checkpoint


def inspect(
    directory: Path,
    tag: str,
    layout: CheckpointLayout,
    *,
    tasks_per_node: int | None = None,
    older: Sequence[str] = (),
    names_only: bool = False,
) -> Checkpoint | None:
    """What one tag is worth; None for a tag that went away.

    `older` are tags to compare sizes with. With `names_only` no shard is opened, and None also means that
    no name is missing, which does not prove the tag complete.
    """
    path = directory / tag
    try:
        names = [entry.name for entry in path.iterdir()]
    except OSError as error:
        return _no_directory(path, tag, error)
    present = {shard for shard in map(parse_shard, names) if shard is not None}
    asked = Geometry.of(layout)
    if names_only and present >= set(asked.shards()):
        return None
    recorded = _recorded_ranks(path, present)
    saved = saved_geometry(present, asked, recorded)
    other_layout = saved.against(asked)
    expected = saved.shards()
    missing = set(expected) - present
    if names_only and not missing:
        return None
    # Names show the world size only where every rank wrote a shard of its own.
    named = saved.sharded_optimizer and (other_layout or not missing)
    world_size = recorded or (saved.data_ranks if named else None)

    def verdict(status: CheckpointStatus, reason: str, size: int) -> Checkpoint:
        reason = "; ".join(part for part in (other_layout, reason) if part)
        return Checkpoint(tag, _step(tag), status, size, reason, world_size, other_layout)

    if missing:
        reason = describe_missing(missing, saved, tasks_per_node) if present else "the directory holds no shard"
        return verdict(CheckpointStatus.INCOMPLETE, reason, _disk_size(path, present))
    if layout.trainer_state and STATE_FILE not in names:
        return verdict(CheckpointStatus.INCOMPLETE, f"{STATE_FILE} is missing", _disk_size(path, present))
    record = recorded_shards(path)
    wrong = find_wrong_records(path, _step(tag), names, record)
    if wrong:
        return verdict(CheckpointStatus.CORRUPT, wrong, _disk_size(path, present))
    sizes, torn = _open_all(path, expected, record)
    if not path.is_dir():
        return None
    if not torn:
        torn = _too_small(sizes, saved, directory, older)
    size = sum(sizes.values())
    if torn:
        first, reason = next(iter(torn.items()))
        more = f" (and {len(torn) - 1} more shards)" if len(torn) > 1 else ""
        return verdict(CheckpointStatus.CORRUPT, f"{first.name}: {reason}{more}", size)
    return verdict(CheckpointStatus.COMPLETE, "", size)


def read_pointer(directory: Path) -> str | None:
    """The tag that `latest` names, without blanks; None where it is missing, no file, or names nothing.

    The tag need not exist. UnreadableError where the file system does not answer.
    """
    try:
        with open_regular(directory / POINTER) as file:
            text = file.read(_LONGEST_POINTER).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise unreadable(directory / POINTER, error) from error
    # A power loss can leave a file of NUL bytes.
    lines = text.replace("\0", "").split("\n")
    return next((line.strip() for line in lines if line.strip()), None)


def write_pointer(directory: Path, tag: str) -> None:
    """Let `latest` name a tag, in one atomic step: readers see the old name or the new one.

    UnreadableError where that may become possible by itself, as on a full disk; CheckpointError where it is forbidden.
    """
    aside = directory / f".{POINTER}.{os.getpid()}"
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(tag)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(directory / POINTER)
        sync_directory(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        lasts = error.errno in {errno.EACCES, errno.EPERM}
        raise (CheckpointError if lasts else UnreadableError)(
            f"{directory / POINTER} cannot be written: {error.strerror}",
            hint="the checkpoints themselves are untouched; "
            + ("let this user write there" if lasts else "free space or quota there")
            + ", then resume",
        ) from error


def _step(tag: str) -> int:
    return int(tag.removeprefix("global_step"))


def _no_directory(path: Path, tag: str, error: OSError) -> Checkpoint | None:
    if error.errno == errno.ELOOP:
        reason = CIRCLE
    elif not isinstance(error, (NotADirectoryError, FileNotFoundError)):
        raise unreadable(path, error) from error
    elif path.is_symlink():
        reason = f"a link to {path.readlink()}, where nothing is"
    elif os.path.lexists(path):
        reason = "not a directory"
    else:
        return None
    return Checkpoint(tag, _step(tag), CheckpointStatus.CORRUPT, 0, reason)


def _recorded_ranks(path: Path, present: set[Shard]) -> int | None:
    """The data-parallel world size inside the tag's first model file, None where it does not say."""
    for shard in (Shard("model", None, 0), Shard("model", 0, 0)):
        if shard in present:
            file = path / shard.name
            try:
                return recorded_integer(file, open_archive(file), "dp_world_size")
            except (TornArchiveError, FileNotFoundError, UnknownFormatError):
                return None
            except OSError as error:
                if error.errno == errno.ELOOP:
                    return None
                raise unreadable(file, error) from error
    return None


def _open_all(
    path: Path, shards: Sequence[Shard], record: SavedShards | None = None
) -> tuple[dict[Shard, int], dict[Shard, str]]:
    """Sizes of all whole shards, and what is wrong with the others."""

    def look(shard: Shard) -> int | str:
        file = path / shard.name
        try:
            archive = open_archive(file)
            return find_stranger(shard, archive, record) or archive.size
        except TornArchiveError as error:
            return str(error)
        except FileNotFoundError:
            return "it went away while the tag was read"
        except UnknownFormatError as error:
            raise CheckpointError(
                f"{file} was {error}: whether it is whole cannot be told",
                hint='set "checkpoint": {"checkpoint_serialization": true} in the DeepSpeed configuration',
            ) from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                return CIRCLE
            raise unreadable(file, error) from error

    if len(shards) <= _READERS:
        results = [look(shard) for shard in shards]
    else:
        with ThreadPoolExecutor(_READERS) as pool:
            results = list(pool.map(look, shards))
    pairs = list(zip(shards, results, strict=True))
    return (
        {shard: result for shard, result in pairs if isinstance(result, int)},
        {shard: result for shard, result in pairs if isinstance(result, str)},
    )


def _too_small(sizes: Mapping[Shard, int], saved: Geometry, directory: Path, older: Sequence[str]) -> dict[Shard, str]:
    """Shards far below their reference size; the rule is in the module's docstring."""
    torn = {}
    alone = []
    for index in range(saved.slices):
        siblings = [shard for shard in sizes if shard.kind == "optim" and shard.slice == index]
        if len(siblings) >= 3:
            usual = statistics.median_low(sizes[shard] for shard in siblings)
            for shard in siblings:
                if _implausible(sizes[shard], usual):
                    torn[shard] = f"{sizes[shard]} bytes, its siblings have {usual}"
        else:
            alone += siblings
    alone += [shard for shard in sizes if shard.kind == "model" and shard.rank is None]
    for shard, size in _older_sizes(alone, saved, directory, older).items():
        if _implausible(sizes[shard], size):
            torn[shard] = f"{sizes[shard]} bytes, an older checkpoint has {size}"
    return torn


def _implausible(size: int, usual: int) -> bool:
    return size * _SIZE_FACTOR < usual and usual - size > _SIZE_FLOOR


def _older_sizes(shards: Sequence[Shard], saved: Geometry, directory: Path, older: Sequence[str]) -> dict[Shard, int]:
    """Sizes of the same files in the newest older tag that has every file of the same geometry."""
    for tag in older:
        path = directory / tag
        try:
            names = [entry.name for entry in path.iterdir()]
            present = {shard for shard in map(parse_shard, names) if shard is not None}
        except OSError:
            continue
        if present != set(saved.shards()):
            continue
        try:
            sizes, torn = _open_all(path, shards)
        except CheckpointError:
            continue
        if not torn:
            return sizes
    return {}


def _disk_size(path: Path, shards: set[Shard]) -> int:
    size = 0
    for shard in shards:
        try:
            size += (path / shard.name).stat().st_size
        except OSError:
            continue
    return size
