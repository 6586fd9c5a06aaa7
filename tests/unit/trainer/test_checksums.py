"""Bytes of a shard that are not those that torch.save wrote."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch

from pretrainctl.frameworks.torch_archive import TornArchiveError, damaged_records
from pretrainctl.trainer.checksums import damage_of


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "shard.pt"
    torch.save({"weight": torch.arange(64.0), "step": 7}, path)
    return path


def places(shard: Path) -> dict[str, range]:
    """Where the bytes of each record lie."""
    content = shard.read_bytes()
    found = {}
    with zipfile.ZipFile(shard) as archive:
        for entry in archive.infolist():
            start = entry.header_offset
            begin = start + 30 + sum(int.from_bytes(content[start + at : start + at + 2], "little") for at in (26, 28))
            found[entry.filename.partition("/")[2]] = range(begin, begin + entry.file_size)
    return found


def flip(shard: Path, at: int, bit: int = 1) -> None:
    content = bytearray(shard.read_bytes())
    content[at] ^= bit
    shard.write_bytes(content)


def test_a_flipped_bit_in_any_record(shard: Path) -> None:
    whole = shard.read_bytes()
    assert damage_of(shard) == ""
    for name, place in places(shard).items():
        for at in {place[0], place[-1]}:
            flip(shard, at)
            assert damage_of(shard) == f"shard.pt: {name} not as written (CRC-32)"
            shard.write_bytes(whole)


def test_a_flipped_bit_anywhere_is_told_or_does_no_harm(shard: Path) -> None:
    whole = shard.read_bytes()
    inside = {at for place in places(shard).values() for at in place}
    for at in range(len(whole)):
        flip(shard, at, 1 << at % 8)
        assert damage_of(shard) or at not in inside, at
        shard.write_bytes(whole)


def test_it_knows_what_the_command_knows(shard: Path) -> None:
    flip(shard, places(shard)["data/0"][5])
    assert damaged_records(shard) == ["data/0"]
    assert "data/0" in damage_of(shard)


@pytest.mark.parametrize("damaged", [False, True])
def test_an_archive_without_checksums_is_left_to_torch(shard: Path, damaged: bool) -> None:
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"weight": torch.arange(64.0)}, shard)
    finally:
        torch.serialization.set_crc32_options(before)
    if damaged:
        flip(shard, places(shard)["data/0"][5])
    assert damage_of(shard) == ""


def test_the_old_format_and_a_torn_file_are_left_to_torch(shard: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:-100])
    assert damage_of(shard) == ""
    with pytest.raises(TornArchiveError):
        damaged_records(shard)
    torch.save({"weight": torch.arange(64.0)}, shard, _use_new_zipfile_serialization=False)
    assert damage_of(shard) == ""
    shard.write_bytes(b"")
    assert damage_of(shard) == ""


def test_a_file_that_is_not_given_says_nothing_of_its_bytes(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        damage_of(tmp_path / "gone.pt")
