"""Shards that are whole and belong to another rank, another tag or another run."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch

from pretrainctl.errors import UnreadableError
from pretrainctl.frameworks.torch_archive import open_archive
from pretrainctl.frameworks.zero_checkpoint import inspect
from pretrainctl.records import codec, shards
from pretrainctl.records.run import Checkpoint, CheckpointStatus
from pretrainctl.records.shards import SavedShard, SavedShards

COMPLETE, INCOMPLETE, CORRUPT = CheckpointStatus.COMPLETE, CheckpointStatus.INCOMPLETE, CheckpointStatus.CORRUPT
OPTIM = "bf16_zero_pp_rank_{}_mp_rank_00_optim_states.pt"


def save(tree, step: int, *, record: bool = True) -> Path:
    """A tag whose optimizer shards were written by torch.save under their own names, each of other numbers."""
    tag = tree.save(step)
    for rank in range(4):
        torch.save({"optimizer_state_dict": torch.full((64,), step + rank)}, tag / OPTIM.format(rank))
    if record:
        names = sorted(path.name for path in tag.glob("*.pt"))
        looked = {name: open_archive(tag / name) for name in names}
        shards = tuple(
            SavedShard(name, index, one.size, one.digest) for index, (name, one) in enumerate(looked.items())
        )
        codec.write(tag / "shards.json", SavedShards(step, 4, shards))
    return tag


def judged(tree, tag: Path, **layout) -> Checkpoint:
    found = inspect(tree.directory, tag.name, tree.layout(**layout))
    assert found is not None
    return found


def exchange(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@pytest.mark.parametrize("record", [True, False])
def test_shards_of_two_ranks_exchanged(tree, record: bool) -> None:
    tag = save(tree, 40, record=record)
    assert judged(tree, tag).status is COMPLETE
    exchange(tag / OPTIM.format(0), tag / OPTIM.format(1))
    found = judged(tree, tag)
    assert found.status is CORRUPT
    name = OPTIM.format(0)
    assert found.reason == f"{name}: it was written as {OPTIM.format(1)} (and 1 more shards)"


def test_the_shard_of_one_rank_twice(tree) -> None:
    tag = save(tree, 40, record=False)
    shutil.copy(tag / OPTIM.format(2), tag / OPTIM.format(3))
    assert judged(tree, tag).reason == f"{OPTIM.format(3)}: it was written as {OPTIM.format(2)}"


def test_a_shard_of_another_tag_of_the_same_size(tree) -> None:
    older, newer = save(tree, 40), save(tree, 50)
    shutil.copy(older / OPTIM.format(2), newer / OPTIM.format(2))
    found = judged(tree, newer)
    assert (found.status, found.reason) == (
        CORRUPT,
        f"{OPTIM.format(2)}: it is not the file that rank 2 of 4 saved at step 50: its checksums are others",
    )
    assert judged(tree, older).status is COMPLETE


def test_a_shard_of_another_size_and_one_that_was_not_saved(tree) -> None:
    tag = save(tree, 40)
    size = (tag / OPTIM.format(1)).stat().st_size
    torch.save({"optimizer_state_dict": torch.zeros(96)}, tag / OPTIM.format(1))
    now = (tag / OPTIM.format(1)).stat().st_size
    assert judged(tree, tag).reason.endswith(f"saved at step 40: {now} bytes, {size} were saved")
    said = codec.read(SavedShards, tag / "shards.json")
    codec.write(tag / "shards.json", SavedShards(40, 4, said.shards[:2]))
    assert "it is none of the files that 4 ranks saved at step 40" in judged(tree, tag).reason


def test_the_record_of_another_tag(tree) -> None:
    older, newer = save(tree, 40), save(tree, 50)
    shutil.copy(older / "shards.json", newer / "shards.json")
    assert judged(tree, newer).reason == "shards.json: it was written at step 40"


@pytest.mark.parametrize("kind", ["text", "fifo", "folder", "circle", "later"])
def test_a_record_that_says_nothing_loses_no_tag(tree, kind: str) -> None:
    tag = save(tree, 40)
    record = tag / "shards.json"
    said = record.read_text()
    record.unlink()
    make = {
        "text": lambda: record.write_bytes(bytes(64)),
        "fifo": lambda: os.mkfifo(record),
        "folder": record.mkdir,
        "circle": lambda: record.symlink_to(record),
        "later": lambda: record.write_text(said.replace("{", '{"of a later version": 1,', 1)),
    }
    make[kind]()
    assert judged(tree, tag).status is COMPLETE
    shutil.copy(save(tree, 30) / OPTIM.format(2), tag / OPTIM.format(2))
    assert (judged(tree, tag).status is CORRUPT) == (kind == "later")


def test_a_record_that_the_file_system_does_not_give_is_unknown(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = save(tree, 40)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(codec, "open_regular", refuse)
    assert shards.codec is codec
    with pytest.raises(UnreadableError, match=r"shards\.json cannot be read \(Input/output error\)"):
        judged(tree, tag)


def test_a_tag_of_the_reference_trainer_needs_its_state(tree) -> None:
    tag = save(tree, 40)
    assert judged(tree, tag).status is COMPLETE
    found = judged(tree, tag, trainer_state=True)
    assert (found.status, found.reason) == (INCOMPLETE, "state.json is missing")
    (tag / "state.json").write_text('{"step": 40, "of a later version": 1}')
    assert judged(tree, tag, trainer_state=True).status is COMPLETE
    (tag / "state.json").unlink()
    os.mkfifo(tag / "state.json")
    assert judged(tree, tag, trainer_state=True).reason == "state.json: it cannot be read"
