"""A checkpoint directory belongs to one run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pretrainctl.errors import CheckpointError, UnreadableError
from pretrainctl.frameworks.checkpoint_owner import OWNER, own, read_owner, refuse_stranger, release
from pretrainctl.records import codec


def test_the_first_takes_it_and_the_second_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "ckpt"
    refuse_stranger(folder, "one")
    own(folder, "one", tmp_path / "runs" / "one")
    own(folder, "one", tmp_path / "moved" / "one")
    with pytest.raises(CheckpointError, match=r"belong to another run: .*runs/one of ") as caught:
        own(folder, "two", tmp_path / "runs" / "two")
    assert str(folder / OWNER) in caught.value.hint
    assert read_owner(folder).run_dir == tmp_path / "runs" / "one"
    assert [path.name for path in folder.iterdir()] == [OWNER]


def test_by_another_path_it_is_the_same_directory(tmp_path: Path) -> None:
    own(tmp_path / "ckpt", "one", tmp_path)
    (tmp_path / "link").symlink_to("ckpt")
    with pytest.raises(CheckpointError, match="another run"):
        refuse_stranger(tmp_path / "link", "two")


def test_an_owner_that_is_over_is_replaced_and_put_back(tmp_path: Path) -> None:
    own(tmp_path, "one", tmp_path / "one")
    before = read_owner(tmp_path)
    own(tmp_path, "two", tmp_path / "two", instead_of=before)
    assert read_owner(tmp_path).run_id == "two"
    release(tmp_path, "one")
    assert read_owner(tmp_path).run_id == "two", "only its own record is taken away"
    release(tmp_path, "two", back_to=before)
    assert read_owner(tmp_path) == before
    release(tmp_path, "one")
    assert read_owner(tmp_path) is None


def test_another_was_faster_than_the_replacement(tmp_path: Path) -> None:
    own(tmp_path, "one", tmp_path / "one")
    before = read_owner(tmp_path)
    own(tmp_path, "two", tmp_path / "two", instead_of=before)
    with pytest.raises(CheckpointError, match="two of"):
        own(tmp_path, "three", tmp_path / "three", instead_of=before)


@pytest.mark.parametrize("content", ["", "{}", "[1]", "\0\0"])
def test_a_record_that_says_nothing_is_an_error_with_a_way_out(tmp_path: Path, content: str) -> None:
    (tmp_path / OWNER).write_text(content)
    with pytest.raises(CheckpointError, match="unknown") as caught:
        read_owner(tmp_path)
    assert "by hand" in caught.value.hint


def test_a_file_system_that_does_not_answer_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own(tmp_path, "one", tmp_path)

    def stale(_path: Path) -> bytes:
        raise OSError(116, os.strerror(116))

    monkeypatch.setattr(codec, "open_regular", stale)
    with pytest.raises(UnreadableError, match=r"owner\.json cannot be read"):
        refuse_stranger(tmp_path, "one")


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    make = {
        "fifo": os.mkfifo,
        "folder": os.mkdir,
        "device": lambda path: path.symlink_to("/dev/zero"),
    }
    make[kind](tmp_path / OWNER)
    with pytest.raises(CheckpointError, match=r"is unknown: .*owner\.json cannot be read: it is no regular file"):
        read_owner(tmp_path)


def test_a_directory_that_is_ones_own_already_is_taken_without_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(tmp_path, "one", tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(codec, "_write_durably", full)
    own(tmp_path, "one", tmp_path)
    with pytest.raises(OSError, match="No space left"):
        own(tmp_path, "two", tmp_path)
