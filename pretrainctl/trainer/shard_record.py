"""Which shards a tag was saved with: written by all ranks together, and asked by each before it loads its own."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pretrainctl.errors import CheckpointError
from pretrainctl.records import codec
from pretrainctl.records.contract import SHARDS_FILE
from pretrainctl.records.shards import SavedShard, SavedShards, digest_of, find_other_name, read_record
from pretrainctl.trainer.engine import Ranks

__all__ = ["refuse_strangers", "write_record"]

_MOST = 2
"""Files that a rank writes into a tag."""


def write_record(tag: Path, step: int, ranks: Ranks, names_of: Callable[[int], Sequence[str]]) -> None:
    """Record the shards of a tag, which lie on disk; all ranks call it, and rank 0 writes.

    No rank is past this before each has come to it. `names_of` a rank are the files that it has saved. One sum over the
    ranks: 32 bytes a rank, exact in 64-bit floats up to 2^53 bytes a file.
    """
    values = [0.0] * (2 * _MOST * ranks.world_size)
    for index, name in enumerate(names_of(ranks.rank)):
        at = 2 * (_MOST * ranks.rank + index)
        file = _look(tag / name)
        values[at : at + 2] = float(file.size), float(file.digest)
    told = [int(value) for value in ranks.total(*values)]
    if ranks.rank != 0:
        return
    shards = []
    for rank in range(ranks.world_size):
        for index, name in enumerate(names_of(rank)):
            at = 2 * (_MOST * rank + index)
            shards.append(SavedShard(name, rank, told[at], told[at + 1]))
    codec.write(tag / SHARDS_FILE, SavedShards(step, ranks.world_size, tuple(shards)))


def refuse_strangers(tag: Path, step: int, ranks: Ranks, names: Sequence[str]) -> None:
    """CheckpointError where one of `names` in a tag is not the file that was saved there after `step`, by its size, by
    the checksums in its archive's directory, and by the name that it was written under. Of a tag that was saved without
    a record only that name is known, and rank 0 says so."""
    record = _read(tag)
    if record is None and ranks.rank == 0:
        print(f"{tag.name} has no {SHARDS_FILE}: whether its shards are all of one save is not known", flush=True)
    if record is not None and (record.step, record.world_size) != (step, ranks.world_size):
        found = f"its {SHARDS_FILE} is of step {record.step} and {record.world_size} ranks"
        raise CheckpointError(f"{tag} cannot be loaded: {found}", hint="resume from an older complete tag")
    for name in names:
        try:
            file = _look(tag / name)
        except OSError as error:
            raise CheckpointError(f"{tag} cannot be read: {type(error).__name__}: {error}") from error
        difference = find_other_name(name, file.written)
        if record is not None and not difference:
            difference = record.find_difference(name, file.size, file.digest)
        if difference:
            raise CheckpointError(
                f"{tag} cannot be loaded: {name}: {difference}",
                hint=f"resume from an older complete tag; where it was changed on purpose, remove {tag / SHARDS_FILE}",
            )


def _read(tag: Path) -> SavedShards | None:
    try:
        return read_record(tag)
    except OSError as error:
        raise CheckpointError(f"{tag / SHARDS_FILE} cannot be read: {error.strerror or error}") from error


class _File(NamedTuple):
    size: int
    digest: int
    written: str


def _look(path: Path) -> _File:
    """A file by its archive's directory; one that is no archive has digest 0, and loading it will tell."""
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return _File(size, 0, "")
    digest = digest_of((entry.filename, entry.file_size, entry.CRC) for entry in entries)
    return _File(size, digest, entries[0].filename.partition("/")[0] if entries else "")
