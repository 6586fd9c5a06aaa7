"""Records on disk: what is no record is told as one error, whatever it is, and holds nobody up."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pretrainctl.errors import LedgerError
from pretrainctl.records import codec


@dataclass(frozen=True)
class Note:
    """A record of this test."""

    text: str
    time: float
    data: Mapping[str, Any] = field(default_factory=dict)


def nested(path: Path) -> None:
    path.write_text("[" * 200_000)


def nested_inside(path: Path) -> None:
    path.write_text('{"text": "", "time": 1, "data": ' + '{"a":' * 200_000)


def great(path: Path) -> None:
    path.write_text('{"text": "", "time": 1' + "0" * 400 + "}")


def greater(path: Path) -> None:
    path.write_text('{"text": "", "time": 1' + "0" * 5000 + "}")


def of_many_bytes(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 << 40)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (nested, "nested too deep"),
        (nested_inside, "nested too deep"),
        (great, "a number of 401 digits is too great"),
        (greater, "digits"),
        (of_many_bytes, "no record has more than"),
        (os.mkfifo, "no regular file"),
        (Path.mkdir, "no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "no regular file"),
    ],
)
def test_what_is_no_record_is_an_error_with_its_file(tmp_path: Path, make: Callable[[Path], None], says: str) -> None:
    make(tmp_path / "x.json")
    with pytest.raises(LedgerError, match=rf"x\.json cannot be read: .*{says}") as caught:
        codec.read(Note, tmp_path / "x.json")
    assert not isinstance(caught.value.__cause__, OSError), "it holds no record, and can be set aside"
    assert codec.read_if_whole(Note, tmp_path / "x.json") is None


def test_what_the_file_system_does_not_give_may_be_whole(tmp_path: Path) -> None:
    with pytest.raises(LedgerError) as caught:
        codec.read(Note, tmp_path / "x.json")
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("text", ["plain", "ä → 😀", os.fsdecode(b"step\xff"), "\ud800", '\\ud800 "\\" \n'])
def test_any_text_comes_back_as_it_was(tmp_path: Path, text: str) -> None:
    note = Note(text, 1.0, {text: [text]})
    codec.write(tmp_path / "x.json", note)
    (tmp_path / "link.json").symlink_to("x.json")
    assert codec.read(Note, tmp_path / "link.json") == note
    (tmp_path / "x.json").read_bytes().decode()


def test_a_key_of_a_later_version_is_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"text": "a", "time": 1, "zzz": {"b": 2}}')
    with pytest.raises(LedgerError, match="unknown key 'zzz'"):
        codec.read(Note, tmp_path / "x.json")
    assert codec.read_known(Note, tmp_path / "x.json") == Note("a", 1.0)
    for text, says in (('{"text": "a"}', "the key 'time' is missing"), ("[1]", "an object is needed")):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(LedgerError, match=says):
            codec.read_known(Note, tmp_path / "x.json")
