"""Whether each shard of a tag is the one that was saved there, by what the archive and the tag's own record say."""

from __future__ import annotations

from pathlib import Path

from pretrainctl.errors import LedgerError
from pretrainctl.frameworks.torch_archive import Archive
from pretrainctl.frameworks.zero_shards import Shard
from pretrainctl.records import codec
from pretrainctl.records.contract import SHARDS_FILE
from pretrainctl.records.shards import SavedShards, find_other_name

__all__ = ["find_stranger", "read_record"]


def read_record(tag: Path) -> SavedShards | None:
    """What was saved in a tag, None where it does not say: it is older than such records, or another program's.

    OSError where the file system does not give the record.
    """
    try:
        return codec.read_known(SavedShards, tag / SHARDS_FILE)
    except LedgerError as error:
        if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
            raise error.__cause__ from error
        return None


def find_stranger(shard: Shard, archive: Archive, record: SavedShards | None) -> str:
    """Why a whole file is not the shard that its name says, empty where nothing says so."""
    other = find_other_name(shard.name, archive.name)
    if other or record is None:
        return other
    return record.find_difference(shard.name, archive.size, archive.digest)
