"""`shards.json` of a checkpoint tag: what each rank saved in it, so that no shard of another rank, tag or run passes.

DeepSpeed loads any optimizer shard under the right name without a word, and trains on from it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pretrainctl.errors import LedgerError
from pretrainctl.records import codec
from pretrainctl.records.contract import SHARDS_FILE

__all__ = ["SavedShard", "SavedShards", "digest_of", "find_other_name", "read_record"]

_SHARD = re.compile(r"(?:bf16_)?(?:zero_pp_rank_\d+_)?mp_rank_\d+_(?:model|optim)_states")


@dataclass(frozen=True)
class SavedShard:
    """A file that `rank` saved: its `size` in bytes, and `digest_of` its archive, 0 where it is none."""

    name: str
    rank: int
    size: int
    digest: int


@dataclass(frozen=True)
class SavedShards:
    """All shards of a tag that `world_size` ranks saved after optimizer step `step`."""

    step: int
    world_size: int
    shards: tuple[SavedShard, ...]

    @cached_property
    def _by_name(self) -> dict[str, SavedShard]:
        return {shard.name: shard for shard in self.shards}

    def find_difference(self, name: str, size: int, digest: int) -> str:
        """Why a file under `name` is not the one that was saved, empty where it is; both digests must be there."""
        saved = self._by_name.get(name)
        if saved is None:
            return f"it is none of the files that {self.world_size} ranks saved at step {self.step}"
        own = f"it is not the file that rank {saved.rank} of {self.world_size} saved at step {self.step}"
        if size != saved.size:
            return f"{own}: {size} bytes, {saved.size} were saved"
        if digest and saved.digest and digest != saved.digest:
            return f"{own}: its checksums are others"
        return ""


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


def digest_of(records: Iterable[tuple[str, int, int]]) -> int:
    """A number that tells an archive of torch.save from others of the same size: CRC-32 over the name, the length and
    the CRC-32 of each record, in the order in which they lie. All that is in the archive's directory: no data is read.
    """
    digest = 0
    for name, length, crc in records:
        digest = zlib.crc32(f"{name}\n{length} {crc}\n".encode(), digest)
    return digest


def find_other_name(name: str, written: str) -> str:
    """Why a shard under `name` is another rank's, empty where nothing says so: torch.save writes the name of the file,
    without its suffix, into the archive as the folder of its records, `written`."""
    if f"{written}.pt" == name or not _SHARD.fullmatch(written):
        return ""  # a program may have given torch an open file, or moved one of another name into place
    return f"it was written as {written}.pt"
