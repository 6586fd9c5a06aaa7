"""Tails of logs, and logs that are followed over restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrainctl.runs.log_tail import follow, tail


@given(
    text=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))),
    count=st.integers(0, 8),
)
def test_the_last_lines(tmp_path_factory: pytest.TempPathFactory, text: list[str], count: int) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes("\n".join(text).encode())
    lines = path.read_text().split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    assert tail(path, count) == (lines[-count:] if count else [])


def test_a_tail_reads_no_more_than_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * 1000 + "\nlast\n")
    assert tail(path, 5, limit=100) == ["x" * 94, "last"]
    assert tail(tmp_path / "none", 5) == []


def test_following_begins_with_the_last_lines_and_goes_on_in_the_next_file(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text("a\nb\nc\n")
    acts: Iterator[str] = iter(("first", "more", "next", "over"))
    now = ""

    def current() -> Path:
        nonlocal now
        now = next(acts)
        if now == "more":
            first.write_text("a\nb\nc\nd\ne")
        if now == "next":
            first.write_text("a\nb\nc\nd\nend\n")
            second.write_text("f\n")
        if now == "over":
            second.write_text("f\nlast")
        return second if now in {"next", "over"} else first

    looks = follow(current, lambda: now == "next", lines=2, pause=0.0)
    assert [line for line in looks if line is not None] == ["b", "c", "d", "end", "f", "last"]
