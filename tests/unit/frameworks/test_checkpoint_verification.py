"""Bytes that the gate does not read."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pretrainctl.errors import UnreadableError
from pretrainctl.frameworks import checkpoint_verification
from pretrainctl.frameworks.checkpoint_verification import verify
from pretrainctl.frameworks.zero_checkpoint import inventory
from pretrainctl.records.run import Checkpoint, CheckpointStatus

OPTIM = "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt"


def only(tree) -> Checkpoint:
    (found,) = inventory(tree.directory, tree.layout())
    return found


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[content.index(b"data/0") + 80] ^= 1
    file.write_bytes(content)


def test_a_flipped_bit_in_one_shard(tree) -> None:
    tag = tree.save(100)
    read: list[int] = []
    assert verify(tree.directory, only(tree), read.append) == only(tree)
    assert 0 < sum(read) < only(tree).size
    flip(tag / OPTIM)
    assert only(tree).status is CheckpointStatus.COMPLETE, "the gate cannot see it"
    found = verify(tree.directory, only(tree))
    assert (found.status, found.reason) == (CheckpointStatus.CORRUPT, f"{OPTIM}: data/0 not as written (CRC-32)")
    flip(tag / "mp_rank_00_model_states.pt")
    assert verify(tree.directory, only(tree)).reason.endswith("(and 1 more shards)")


def test_what_is_not_complete_is_not_read(tree) -> None:
    tag = tree.save(100, without=[3])
    flip(tag / OPTIM)
    assert verify(tree.directory, only(tree)) == only(tree)


def test_a_file_that_the_file_system_does_not_give_is_unknown(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.save(100)
    found = only(tree)

    def refuse(*_: object) -> list[str]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint_verification, "damaged_records", refuse)
    with pytest.raises(UnreadableError, match=r"Input/output error"):
        verify(tree.directory, found)


def test_a_tag_that_goes_away_meanwhile_is_left_as_it_was(tree) -> None:
    tag = tree.save(100)
    found = only(tree)
    tag.rename(tree.directory / "deleting-global_step100")
    assert verify(tree.directory, found) == found
