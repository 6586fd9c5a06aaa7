from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from pretrainctl.errors import InputError, MissingError
from pretrainctl.trainer.indexed import IndexedWriter, TokenFile, bin_file, idx_file, token_dtype
from pretrainctl.trainer.tokenize import EOD, VOCAB, encode, main

# Documents of 5, 3 and 7 uint16 tokens, as megatron-core 0.16.1 writes their index.
GOLDEN = bytes.fromhex(
    "4d4d4944494458 0000 0100000000000000 08 0300000000000000 0400000000000000"
    "05000000 03000000 07000000 0000000000000000 0a00000000000000 1000000000000000"
    "0000000000000000 0100000000000000 0200000000000000 0300000000000000"
)


@pytest.fixture
def prefix(tmp_path):
    prefix = tmp_path / "corpus.v1"
    with IndexedWriter(prefix, np.dtype(np.uint16)) as writer:
        for begin, end in ((0, 5), (5, 8), (8, 15)):
            writer.add(np.arange(begin, end))
    return prefix


def test_the_index_is_megatrons_byte_for_byte(prefix):
    assert idx_file(prefix).read_bytes() == GOLDEN
    assert bin_file(prefix).read_bytes() == np.arange(15, dtype="<u2").tobytes()


def test_it_reads_what_megatron_wrote(tmp_path):
    idx_file(tmp_path / "p").write_bytes(GOLDEN)
    bin_file(tmp_path / "p").write_bytes(np.arange(15, dtype="<u2").tobytes())
    tokens = TokenFile(tmp_path / "p")
    assert (len(tokens), tokens.documents) == (15, 3)
    assert tokens.tokens[4:9].tolist() == [4, 5, 6, 7, 8]


def test_modes_of_multimodal_files_are_passed_over(prefix):
    idx_file(prefix).write_bytes(GOLDEN + bytes(3))
    assert len(TokenFile(prefix)) == 15


def test_large_vocabularies_take_four_bytes(tmp_path):
    assert [token_dtype(vocab).name for vocab in (257, 65499, 65500)] == ["uint16", "uint16", "int32"]
    with IndexedWriter(tmp_path / "p", token_dtype(128256)) as writer:
        writer.add(np.array([1, 128255]))
    assert TokenFile(tmp_path / "p").tokens.tolist() == [1, 128255]
    assert idx_file(tmp_path / "p").read_bytes()[17] == 4


def test_missing_files(tmp_path, prefix):
    with pytest.raises(MissingError, match=r"none\.idx: No such file"):
        TokenFile(tmp_path / "none")
    bin_file(prefix).unlink()
    with pytest.raises(MissingError, match=r"corpus\.v1\.bin"):
        TokenFile(prefix)


@pytest.mark.parametrize(
    ("index", "tokens", "words"),
    [
        (b"", 30, "wrong magic"),
        (b"TNTIDX\x00\x00" + GOLDEN[8:], 30, "wrong magic"),
        (GOLDEN[:20], 30, "wrong magic"),
        (GOLDEN[:-1], 30, "holds 101 bytes where its header asks for 102"),
        (GOLDEN + b"\x00", 30, "holds 103 bytes"),
        (GOLDEN, 28, r"corpus.v1.bin holds 28 bytes where its index asks for 30"),
        (GOLDEN, 32, "holds 32 bytes"),
        (GOLDEN[:9] + b"\x02" + GOLDEN[10:], 30, "version 2"),
        (GOLDEN[:17] + b"\x07" + GOLDEN[18:], 30, "dtype code 7"),
        (GOLDEN[:17] + b"\x63" + GOLDEN[18:], 30, "dtype code 99"),
    ],
)
def test_damaged_files(prefix, index, tokens, words):
    idx_file(prefix).write_bytes(index)
    bin_file(prefix).write_bytes(bytes(tokens))
    with pytest.raises(InputError, match=words):
        TokenFile(prefix)


def test_an_error_leaves_the_old_files_and_nothing_else(prefix):
    def fail():
        with IndexedWriter(prefix, np.dtype(np.uint16)) as writer:
            writer.add(np.arange(3))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert sorted(path.name for path in prefix.parent.iterdir()) == ["corpus.v1.bin", "corpus.v1.idx"]
    assert idx_file(prefix).read_bytes() == GOLDEN


def test_bytes_become_tokens():
    assert encode(b"a\xff").tolist() == [97, 255, EOD]


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    for name, text in (
        ("b.py", "two"),
        ("a.py", "1"),
        ("sub/c.py", "three"),
        ("skip/d.py", "4"),
        ("e.txt", "x"),
        ("f.py", ""),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_the_program_writes_documents_in_order_and_a_manifest(texts, tmp_path):
    out = tmp_path / "out" / "t"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pretrainctl.trainer.tokenize", "--input", texts, "--output", out),
            *("--suffix", ".py", "--exclude", "skip"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    manifest = json.loads(done.stdout)
    assert (manifest["documents"], manifest["tokens"], manifest["vocab"]) == (3, 12, VOCAB)
    tokens = TokenFile(out)
    assert tokens.documents == 3
    assert tokens.tokens.tolist() == [*b"1", EOD, *b"two", EOD, *b"three", EOD]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [(["--input", "none"], 3, "none is no file and no folder"), (["--suffix", ".rs"], 2, "no text was found")],
)
def test_the_program_refuses_in_one_line(texts, tmp_path, capsys, words, status, said):
    inputs = [] if "--input" in words else ["--input", str(texts)]
    assert main([*inputs, *words, "--output", str(tmp_path / "t")]) == status
    assert capsys.readouterr().err.startswith(f"error: {said}\nhint: ")
    assert not list(tmp_path.glob("t.*"))


def test_a_killed_program_leaves_no_half_file_under_the_right_name(tmp_path):
    """The text is a pipe that never ends, so the program is surely killed at work."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "first.txt").write_text("x" * 100_000)
    program = (
        "import sys; from pathlib import Path; from pretrainctl.trainer import tokenize as t;"
        "folder = Path(sys.argv[1]);"
        "t.find_texts = lambda *_: iter([folder / 'first.txt', folder / 'pipe']); t.tokenize([], folder / 'out')"
    )
    process = subprocess.Popen([sys.executable, "-c", program, tmp_path])
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".out.bin.*")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert not list(tmp_path.glob("out.*"))
