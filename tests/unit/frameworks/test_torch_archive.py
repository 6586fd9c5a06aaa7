"""torch.save archives: whole or not, from their last bytes."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrainctl.frameworks import torch_archive
from pretrainctl.frameworks.torch_archive import (
    TornArchiveError,
    UnknownFormatError,
    damaged_records,
    open_archive,
    recorded_integer,
)

END_RECORD = 22
LOCATOR = 20
END_RECORD_64 = 56


def saved(state: object, **options) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer, **options)
    return buffer.getvalue()


NESTED = torch.frombuffer(bytearray(saved({"inner": torch.ones(16)})), dtype=torch.uint8)
ARCHIVE = saved({"w": torch.arange(500.0), "nested": NESTED, "dp_world_size": 300, "many": [torch.ones(2)] * 3})


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive") / "shard.pt"


def is_whole(path: Path, content: bytes) -> bool:
    path.write_bytes(content)
    try:
        open_archive(path)
    except TornArchiveError:
        return False
    return True


def test_a_whole_archive(scratch: Path) -> None:
    scratch.write_bytes(ARCHIVE)
    archive = open_archive(scratch)
    assert archive.size == len(ARCHIVE)
    assert ARCHIVE[archive.pickle_start : archive.pickle_start + 2] == b"\x80\x02"


@settings(max_examples=300, deadline=None)
@given(length=st.integers(0, len(ARCHIVE) - 1))
def test_cut_at_any_byte_is_torn(scratch: Path, length: int) -> None:
    assert not is_whole(scratch, ARCHIVE[:length])


def test_cut_where_a_tensor_holds_an_archive_of_its_own(scratch: Path) -> None:
    inner = bytes(NESTED.tolist())
    end = ARCHIVE.index(inner) + len(inner)
    assert zipfile.is_zipfile(io.BytesIO(ARCHIVE[:end])), "the standard library would take it"
    assert not is_whole(scratch, ARCHIVE[:end])


@settings(max_examples=200, deadline=None)
@given(zeros=st.integers(1, len(ARCHIVE)))
def test_a_tail_of_zeros_is_torn(scratch: Path, zeros: int) -> None:
    content = ARCHIVE[: len(ARCHIVE) - zeros] + bytes(zeros)
    # A whole archive ends in a few zeros anyway.
    assert is_whole(scratch, content) == (content == ARCHIVE)


@pytest.mark.parametrize("place", range(END_RECORD + LOCATOR + END_RECORD_64))
def test_one_flipped_bit_in_the_end_records_is_torn(scratch: Path, place: int) -> None:
    at = len(ARCHIVE) - 1 - place
    # Bytes 12 to 15 of the zip64 end record are versions of the program that wrote it: nothing depends on them.
    versions = range(END_RECORD + LOCATOR + END_RECORD_64 - 16, END_RECORD + LOCATOR + END_RECORD_64 - 12)
    for bit in range(8):
        content = bytearray(ARCHIVE)
        content[at] ^= 1 << bit
        assert is_whole(scratch, bytes(content)) == (place in versions)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"",
        lambda content: bytes(len(content)),
        lambda content: content + b"\0",
        lambda content: b"x" + content,
        lambda content: content[: len(content) // 2] + content[len(content) // 2 + 1 :],
        lambda content: bytes(100) + content[100:],
    ],
    ids=["empty", "zeros", "longer", "shifted", "one byte less", "zeros at its head"],
)
def test_other_damage_is_torn(scratch: Path, change) -> None:
    assert not is_whole(scratch, change(ARCHIVE))


def test_a_hole_over_the_largest_tensor_is_torn(scratch: Path) -> None:
    content = saved({"small": torch.ones(4), "large": torch.ones(100_000), "last": torch.ones(4)})
    at = content.index(b"data/1") - 64
    assert is_whole(scratch, content)
    assert not is_whole(scratch, content[:at] + bytes(4096) + content[at + 4096 :])


def test_right_size_and_no_content(scratch: Path) -> None:
    with scratch.open("wb") as file:
        file.truncate(8 * 1024**3)
    try:
        with pytest.raises(TornArchiveError):
            open_archive(scratch)
    finally:
        scratch.unlink()


def test_a_zip_that_torch_did_not_write(scratch: Path) -> None:
    with zipfile.ZipFile(scratch, "w") as archive:
        archive.writestr("a/other", b"1234")
    with pytest.raises(TornArchiveError, match=r"data\.pkl"):
        open_archive(scratch)


def test_an_archive_whose_directory_is_larger_than_the_tail(scratch: Path) -> None:
    content = saved({f"tensor_{index}": torch.ones(1) for index in range(400)})
    assert is_whole(scratch, content)
    assert not is_whole(scratch, content[:-1])


def test_records_beyond_four_gigabytes(tmp_path: Path) -> None:
    """Sizes and places that need the zip64 field; the tensor's bytes stay a hole in the file."""
    path = tmp_path / "large.pt"
    with path.open("wb") as file, torch.serialization.skip_data():
        torch.save({"large": torch.empty(5 * 1024**3, dtype=torch.uint8), "small": torch.ones(3)}, file)
    archive = open_archive(path)
    assert archive.size > 5 * 1024**3
    os.truncate(path, archive.size - 1)
    with pytest.raises(TornArchiveError):
        open_archive(path)


def test_the_old_format_is_unknown_rather_than_torn(scratch: Path) -> None:
    scratch.write_bytes(saved({"a": torch.ones(3)}, _use_new_zipfile_serialization=False))
    with pytest.raises(UnknownFormatError):
        open_archive(scratch)


def test_a_folder_and_a_pipe_are_no_archives(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(TornArchiveError, match="regular"):
            open_archive(tmp_path / name)


def test_what_cannot_be_opened_is_not_torn(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_archive(tmp_path / "nothing")


@pytest.mark.parametrize("number", [0, 7, 255, 256, 65535, 65536, 2**31 - 1])
def test_recorded_integer(scratch: Path, number: int) -> None:
    scratch.write_bytes(saved({"before": {"x": 1}, "dp_world_size": number, "after": torch.ones(2)}))
    assert recorded_integer(scratch, open_archive(scratch), "dp_world_size") == number


@pytest.mark.parametrize(
    "state", [{"other": 4}, {"dp_world_size": "4"}, {"dp_world_size": None}, ["dp_world_size", torch.ones(1)]]
)
def test_recorded_integer_that_is_not_there(scratch: Path, state: object) -> None:
    scratch.write_bytes(saved(state))
    assert recorded_integer(scratch, open_archive(scratch), "dp_world_size") is None


# every byte, against the checksums


@pytest.fixture
def archived(tmp_path: Path) -> Path:
    file = tmp_path / "x.pt"
    torch.save({"a": torch.arange(5000, dtype=torch.float32), "b": torch.ones(7)}, file)
    return file


def zero(file: Path, record: bytes, count: int) -> None:
    content = bytearray(file.read_bytes())
    at = content.index(b"PK\x03\x04", content.index(b"/" + record)) - count  # the end of the record's bytes
    assert any(content[at : at + count])
    content[at : at + count] = bytes(count)
    file.write_bytes(content)


@pytest.mark.parametrize("block", [torch_archive._BLOCK, 1000])
def test_all_records_are_read_in_blocks_and_are_as_written(archived: Path, monkeypatch, block: int) -> None:
    monkeypatch.setattr(torch_archive, "_BLOCK", block)
    read: list[int] = []
    assert damaged_records(archived, read.append) == []
    assert max(read) <= block
    with zipfile.ZipFile(archived) as archive:
        assert sum(read) == sum(entry.file_size for entry in archive.infolist())


def test_zeroed_and_flipped_bytes_are_named_by_their_record(archived: Path) -> None:
    zero(archived, b"data/0", 2000)
    open_archive(archived)  # the end of the file does not show it
    assert damaged_records(archived) == ["data/0"]
    content = bytearray(archived.read_bytes())
    content[content.index(b"data.pkl") + 150] ^= 1
    archived.write_bytes(content)
    assert damaged_records(archived) == ["data.pkl", "data/0"]


def test_without_checksums_nothing_is_said(tmp_path: Path) -> None:
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.ones(100)}, tmp_path / "x.pt")
    finally:
        torch.serialization.set_crc32_options(before)
    assert damaged_records(tmp_path / "x.pt") == []


def test_a_cut_file_is_torn_here_too(archived: Path) -> None:
    archived.write_bytes(archived.read_bytes()[:-1])
    with pytest.raises(TornArchiveError):
        damaged_records(archived)
