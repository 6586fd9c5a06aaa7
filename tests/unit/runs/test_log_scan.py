"""Searching logs: every line that holds a word, where it stands, in bounded memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pretrainctl.runs.log_scan import edges, scan, text_before

WORDS = ["rror", "Xid", "not found"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.text(st.sampled_from("rroX id:\u00e9%"), max_size=12), max_size=30), newline=st.booleans())
def test_the_lines_that_a_plain_search_finds(tmp_path: Path, lines: list[str], newline: bool) -> None:
    log = tmp_path / "log"
    log.write_bytes("\n".join(lines).encode() + b"\n" * newline)
    found = [(hit.number, hit.text) for hit in scan(log, WORDS)]
    assert found == [(number, line) for number, line in enumerate(lines, 1) if any(word in line for word in WORDS)]


def test_where_a_line_stands(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\nan error\n")
    (hit,) = scan(log, WORDS)
    assert (hit.number, hit.offset) == (3, 8)
    assert text_before(log, hit.offset) == "one\ntwo\n"
    assert text_before(log, 0) == ""


@pytest.mark.parametrize("limit", [0, 10, 1 << 20, None])
def test_only_the_end_is_searched_and_the_numbers_stay(tmp_path: Path, limit: int | None) -> None:
    log = tmp_path / "log"
    log.write_text("error 1\n" * 3 + "fine\n" + "error 5\n")
    expected = {0: [], 10: [5]}.get(limit if limit is not None else -1, [1, 2, 3, 5])
    assert [hit.number for hit in scan(log, WORDS, limit=limit)] == expected


def test_a_progress_bar_that_rewrites_its_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    bar = "".join(f"\r{percent:3d}%|###| {percent}/100" for percent in range(100)) * 500
    log.write_text(f"{bar}\rValueError: x\r100%\nfine\n{bar}KeyError: y\n")
    assert [(hit.number, hit.text[-13:]) for hit in scan(log, WORDS)] == [
        (1, "ValueError: x"),
        (3, "9/100KeyError: y"[-13:]),
    ]


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\x00\xff\xfe error \x80\n")
    assert [hit.number for hit in scan(log, WORDS)] == [1]


def test_a_reader_that_stops_early_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("error\n" * 200_000)
    hits = scan(log, WORDS)
    assert next(hits).number == 1
    hits.close()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(scan(tmp_path / "none", WORDS))


def test_the_edges(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    found = edges(log, 50)
    assert (found[0], found[-1]) == ("line 0", "line 999")
    assert len(found) < 20
    log.write_text("a\nb")
    assert edges(log) == ["a", "b"]
