"""All bytes of a tag against the checksums that torch.save wrote beside them: what the gate has no time for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from pretrainctl.errors import UnreadableError
from pretrainctl.frameworks.torch_archive import TornArchiveError, UnknownFormatError, damaged_records
from pretrainctl.frameworks.zero_shards import parse_shard
from pretrainctl.records.run import Checkpoint, CheckpointStatus

__all__ = ["verify"]

_READERS = 4
_NAMED = 3


def verify(directory: Path, checkpoint: Checkpoint, tell: Callable[[int], object] = lambda _: None) -> Checkpoint:
    """`checkpoint` of a checkpoint directory, or as corrupt where bytes of a shard are not those that were written.

    Only one that is complete is read. `tell` hears how many bytes were read since it was last called, from several
    threads. UnreadableError where the file system does not give a file; a tag that goes away meanwhile stays as it was.
    """
    path = directory / checkpoint.tag
    if checkpoint.status is not CheckpointStatus.COMPLETE:
        return checkpoint
    try:
        shards = sorted(file for file in path.iterdir() if parse_shard(file.name) is not None)
        with ThreadPoolExecutor(_READERS) as pool:
            found = list(pool.map(lambda shard: _look(shard, tell), shards))
    except FileNotFoundError:
        return checkpoint
    except OSError as error:
        raise UnreadableError(
            f"{path} cannot be read ({error.strerror or error}): whether its bytes are right is unknown",
            hint="verify it again when the file system answers",
        ) from error
    wrong = [f"{shard.name}: {reason}" for shard, reason in zip(shards, found, strict=True) if reason]
    if not wrong:
        return checkpoint
    more = f" (and {len(wrong) - 1} more shards)" if len(wrong) > 1 else ""
    return replace(checkpoint, status=CheckpointStatus.CORRUPT, reason=wrong[0] + more)


def _look(shard: Path, tell: Callable[[int], object]) -> str:
    """What is wrong with the bytes of a shard, empty if nothing is."""
    try:
        damaged = damaged_records(shard, tell)
    except (TornArchiveError, UnknownFormatError) as error:
        return str(error)
    if not damaged:
        return ""
    more = f" and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
    return f"{', '.join(damaged[:_NAMED])}{more} not as written (CRC-32)"
