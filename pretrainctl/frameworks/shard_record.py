"""Whether each shard of a tag is the one that was saved there, by what the archive and the tag's own record say."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from pathlib import Path

from pretrainctl.errors import UnreadableError
from pretrainctl.frameworks.torch_archive import Archive
from pretrainctl.frameworks.zero_shards import Shard
from pretrainctl.records.codec import open_regular
from pretrainctl.records.contract import SHARDS_FILE, STATE_FILE
from pretrainctl.records.shards import SavedShards, find_other_name, read_record

__all__ = ["CIRCLE", "find_stranger", "find_wrong_records", "recorded_shards", "unreadable"]

CIRCLE = "a link that leads in a circle"


def find_stranger(shard: Shard, archive: Archive, record: SavedShards | None) -> str:
    """Why a whole file is not the shard that its name says, empty where nothing says so."""
    other = find_other_name(shard.name, archive.name)
    if other or record is None:
        return other
    return record.find_difference(shard.name, archive.size, archive.digest)


def unreadable(path: Path, error: OSError) -> UnreadableError:
    """The error that says that a file system did not answer."""
    return UnreadableError(
        f"{path} cannot be read ({error.strerror or error}): whether a usable checkpoint is there is unknown",
        hint="nothing was changed; resume when the file system answers again",
    )


def find_wrong_records(path: Path, step: int, names: Sequence[str], record: SavedShards | None) -> str:
    """What is wrong with the trainer's own records in a tag of `step`, empty if nothing is."""
    wrong = _wrong_state(path / STATE_FILE, step) if STATE_FILE in names else ""
    if wrong:
        return f"{STATE_FILE}: {wrong}"
    if record is not None and record.step != step:
        return f"{SHARDS_FILE}: it was written at step {record.step}"
    return ""


def _wrong_state(path: Path, step: int) -> str:
    """What is wrong with the trainer's own record in a tag of `step`, empty if nothing is."""
    try:
        with open_regular(path) as file:
            state = json.loads(file.read().decode("utf-8"))
    except FileNotFoundError:
        return "it cannot be read"
    except OSError as error:
        if error.errno == errno.ELOOP:
            return CIRCLE
        raise unreadable(path, error) from error
    except (ValueError, RecursionError):
        return "it cannot be read"
    if not isinstance(state, dict):
        return "it is no record"
    said = state.get("step", step)  # a program of one's own may keep other things under this name
    return "" if said == step and not isinstance(said, bool) else f"it was written at step {said}"


def recorded_shards(path: Path) -> SavedShards | None:
    """As `read_record`; UnreadableError where the file system does not answer."""
    try:
        return read_record(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise unreadable(path / SHARDS_FILE, error) from error
