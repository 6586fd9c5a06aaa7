"""What is looked at of token files before a job waits for them."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from pretrainctl.errors import InputError, MissingError
from pretrainctl.records.token_index import HEADER, MAGIC, TokenIndex, bin_file, idx_file, read_token_index
from pretrainctl.workflows.training_data import refuse_missing_data


def write_tokens(prefix: Path, tokens: int) -> None:
    """One document of that many tokens of two bytes, as Megatron's index says it."""
    prefix.parent.mkdir(exist_ok=True)
    index = HEADER.pack(MAGIC, 1, 8, 1, 2) + struct.pack("<iqqq", tokens, 0, 0, 1)
    idx_file(prefix).write_bytes(index)
    bin_file(prefix).write_bytes(bytes(2 * tokens))


def recipe(prefix: Path) -> dict[str, Any]:
    return {"data": {"sources": [{"prefix": str(prefix)}], "sequence_length": 100}}


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    write_tokens(tmp_path / "corpus.v1", 101)
    return tmp_path / "corpus.v1"


def refused(prefix: Path) -> str:
    with pytest.raises(InputError) as caught:
        refuse_missing_data(recipe(prefix))
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return str(caught.value)


def test_a_whole_pair_is_taken(prefix: Path) -> None:
    assert read_token_index(prefix) == TokenIndex(8, 101, 1)
    refuse_missing_data(recipe(prefix))


@pytest.mark.parametrize("size", [0, 100, 201, 204])
def test_tokens_of_another_size_than_the_index_asks_for(prefix: Path, size: int) -> None:
    bin_file(prefix).write_bytes(bytes(size))
    assert f"corpus.v1.bin holds {size} bytes where its index asks for 202 bytes" in refused(prefix)


@pytest.mark.parametrize(
    ("index", "says"),
    [
        (b"", "is no Megatron index"),
        (b"garbage" * 20, "is no Megatron index"),
        (HEADER.pack(MAGIC, 2, 8, 1, 2) + bytes(28), "version 2"),
        (HEADER.pack(MAGIC, 1, 7, 1, 2) + bytes(28), "dtype code 7"),
        (HEADER.pack(MAGIC, 1, 8, 1, 2) + bytes(27), "holds 61 bytes where its header asks for 62"),
        (HEADER.pack(MAGIC, 1, 8, 2**63, 2**63) + bytes(28), "holds 62 bytes where its header asks for"),
        (HEADER.pack(MAGIC, 1, 8, 1, 2) + struct.pack("<iqqq", -1, 0, 0, 1), "asks for -2 bytes"),
        (HEADER.pack(MAGIC, 1, 4, 1, 2) + struct.pack("<iqqq", 50, 2, 0, 1), "asks for 202 bytes, in tokens of 4"),
    ],
)
def test_an_index_that_is_none(prefix: Path, index: bytes, says: str) -> None:
    idx_file(prefix).write_bytes(index)
    assert says in refused(prefix)


@pytest.mark.parametrize("path", [bin_file, idx_file])
def test_what_is_no_file(prefix: Path, path: type) -> None:
    path(prefix).unlink()
    assert refused(prefix) == f"the training data {path(prefix)} does not exist"
    with pytest.raises(MissingError):
        read_token_index(prefix)
    path(prefix).mkdir()
    assert refused(prefix) == f"the training data: {path(prefix)} is no file"
    path(prefix).rmdir()
    os.mkfifo(path(prefix))
    assert "is no file" in refused(prefix)


def test_too_few_tokens_for_one_sequence(prefix: Path) -> None:
    write_tokens(prefix, 100)
    assert "holds 100 tokens, too few for one sequence of 100 + 1" in refused(prefix)


def test_of_a_large_index_only_its_ends_are_read(prefix: Path) -> None:
    sequences = 200_000_000
    with idx_file(prefix).open("wb") as file:  # 4 GB of holes
        file.write(HEADER.pack(MAGIC, 1, 8, sequences, sequences + 1))
        file.seek(HEADER.size + 4 * (sequences - 1))
        file.write(struct.pack("<i", 101))
        file.truncate(HEADER.size + 12 * sequences + 8 * (sequences + 1))
    begun = time.process_time()
    assert read_token_index(prefix) == TokenIndex(8, 101, sequences)
    assert time.process_time() - begun < 0.1
