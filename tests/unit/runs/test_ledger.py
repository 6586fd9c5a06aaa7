"""The ledger: order, durability, several writers, and what cannot be read."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pretrainctl.errors import LedgerError
from pretrainctl.records import codec
from pretrainctl.records.run import AttemptRecord, Event, EventKind, RunRecord
from pretrainctl.runs import ledger
from pretrainctl.runs.claim import claim
from pretrainctl.runs.folder import RunFolder


def test_events_come_back_in_order_of_attempt_and_sequence(tmp_path: Path) -> None:
    (tmp_path / "attempts" / "0001" / "events").mkdir(parents=True)
    ledger.append(tmp_path, "claimed", "first", attempt=1, data={"job_id": 7})
    ledger.append(tmp_path, "submitted", "outside", data={"job_id": 7})
    ledger.append(tmp_path, "attempt_ended", "second", attempt=1)
    found = ledger.read_events(tmp_path)
    assert [(event.attempt, event.sequence, event.message) for event in found] == [
        (0, 1, "outside"),
        (1, 1, "first"),
        (1, 2, "second"),
    ]
    assert found[0].after_attempt == 1
    assert found[1].data == {"job_id": 7}


def test_writers_from_outside_never_share_a_number(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: ledger.append(tmp_path, "note", str(index)), range(80)))
    found = ledger.read_events(tmp_path)
    assert [event.sequence for event in found] == list(range(1, 81))
    assert {event.message for event in found} == {str(index) for index in range(80)}


@pytest.mark.parametrize("content", ["", "{", '{"kind": "note"}', "\x00\x00"])
def test_an_unreadable_event_is_an_error_and_can_be_set_aside(tmp_path: Path, content: str) -> None:
    ledger.append(tmp_path, "note", "one")
    ledger.append(tmp_path, "note", "two")
    (tmp_path / "events" / "000001.json").write_text(content)
    with pytest.raises(LedgerError, match=r"000001\.json"):
        ledger.read_events(tmp_path)
    moved = ledger.set_aside_unreadable(tmp_path)
    assert [path.name for path in moved] == ["000001.json.unreadable"]
    assert [event.message for event in ledger.read_events(tmp_path)] == ["two"]
    assert ledger.append(tmp_path, "note", "three").sequence == 3


def test_the_number_of_an_event_set_aside_is_not_used_again(tmp_path: Path) -> None:
    ledger.append(tmp_path, "note", "one")
    (tmp_path / "events" / "000001.json").write_text("")
    ledger.set_aside_unreadable(tmp_path)
    assert ledger.append(tmp_path, "note", "two").sequence == 2


def test_an_unreadable_attempt_record_is_set_aside_and_told_by_its_event(tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    claim(tmp_path, AttemptRecord(0, 41, 0, "node01", 1, ("node01",), 0.0))
    ledger.append(tmp_path, "claimed", "job 41", attempt=1, data={"job_id": 41, "slurm_restart": 0})
    (tmp_path / "attempts" / "0001" / "attempt.json").write_text("")
    assert [path.name for path in ledger.set_aside_unreadable(tmp_path)] == ["attempt.json.unreadable"]
    codec.write(tmp_path / "run.json", RunRecord("a", "a", "a", "sandbox", 0.0, "u", {}, {}, {}))
    assert [(record.attempt, record.job_id) for record in RunFolder(tmp_path).attempts()] == [(1, 41)]


@pytest.mark.parametrize(
    ("kind", "data", "more"),
    [
        ("restart_ended", {"restart": {"a": 1}, "class": "hang"}, {}),
        ("restart_ended", {"restart": 0}, {}),
        ("restart_ended", {"restart": 10**30, "class": "hang"}, {}),
        ("restart_started", {"restart": 0, "nodes": "node01"}, {}),
        ("restart_started", {"restart": 0, "nodes": None}, {}),
        ("batch_host_lost", {"attempt": [], "node": "node01", "how": ""}, {}),
        ("stopped", {"class": []}, {}),
        ("note", {"job_ids": [True]}, {}),
        ("note", {}, {"time": float("nan")}),
        ("note", {}, {"time": 1e300}),
        ("note", {}, {"attempt": 3}),
        ("note", {}, {"sequence": 9}),
    ],
)
def test_an_event_that_cannot_be_one_is_unreadable(
    tmp_path: Path, kind: EventKind, data: dict[str, object], more: dict[str, object]
) -> None:
    (tmp_path / "events").mkdir()
    event = Event(kind, 0, 1, 5.0, "node01", "said", 0, data)
    codec.write(tmp_path / "events" / "000001.json", replace(event, **more))
    with pytest.raises(LedgerError, match=r"000001\.json cannot be read"):
        ledger.read_events(tmp_path)
    assert [path.name for path in ledger.set_aside_unreadable(tmp_path)] == ["000001.json.unreadable"]
    assert ledger.read_events(tmp_path) == []


def test_what_is_no_file_is_set_aside_too(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    os.mkfifo(tmp_path / "events" / "000001.json")
    (tmp_path / "events" / "000002.json").write_text("[" * 200_000)
    assert len(ledger.set_aside_unreadable(tmp_path)) == 2


def test_attempts_are_listed_and_not_counted(tmp_path: Path) -> None:
    for name in ("99999999999999999999", "0000", "00001", "x", "12"):
        (tmp_path / "attempts" / name).mkdir(parents=True)
    (tmp_path / "attempts" / "0003").touch()
    codec.write(tmp_path / "run.json", RunRecord("a", "a", "a", "sandbox", 0.0, "u", {}, {}, {}))
    mine = claim(tmp_path, AttemptRecord(0, 41, 0, "node01", 1, ("node01",), 0.0))
    ledger.append(tmp_path, "claimed", "job 41", attempt=mine.attempt, data={"job_id": 41})
    assert [event.message for event in ledger.read_events(tmp_path)] == ["job 41"]
    assert ledger.set_aside_unreadable(tmp_path) == []
    assert [record.job_id for record in RunFolder(tmp_path).attempts()] == [41]


def test_a_record_of_another_attempt_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    claim(tmp_path, AttemptRecord(0, 41, 0, "node01", 1, ("node01",), 0.0))
    (tmp_path / "attempts" / "0001").rename(tmp_path / "attempts" / "0007")
    assert [path.parent.name for path in ledger.set_aside_unreadable(tmp_path)] == ["0007"]


def test_whether_an_event_could_be_written_is_known_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.refuse_unwritable(tmp_path)
    assert list((tmp_path / "events").iterdir()) == []

    def refuse(*_arguments: object, **_more: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(OSError, match="not permitted"):
        ledger.refuse_unwritable(tmp_path)


@pytest.mark.parametrize("stray", ["999999", "1234567", "999999999999999999"])
def test_a_stray_number_that_was_set_aside_does_not_count(tmp_path: Path, stray: str) -> None:
    ledger.append(tmp_path, "note", "one")
    (tmp_path / "events" / f"{stray}.json").write_text("{}")
    assert [path.name for path in ledger.set_aside_unreadable(tmp_path)] == [f"{stray}.json.unreadable"]
    assert ledger.append(tmp_path, "resume_requested", "two").sequence == 2
    assert [event.message for event in ledger.read_events(tmp_path)] == ["one", "two"]


def test_events_after_a_stray_number_are_read(tmp_path: Path) -> None:
    """It may come after the look for what is unreadable, and is set aside when the next ones are there."""
    ledger.append(tmp_path, "note", "one")
    (tmp_path / "events" / "999999.json").write_text("{}")
    assert ledger.append(tmp_path, "note", "two").sequence == 1_000_000
    ledger.set_aside_unreadable(tmp_path)
    assert ledger.append(tmp_path, "note", "three").sequence == 1_000_001
    assert [event.message for event in ledger.read_events(tmp_path)] == ["one", "two", "three"]


@pytest.mark.parametrize(
    "name", ["0000002.json", "2.json", "000002.json~", "x000002.json", "0000020000020000020000.json"]
)
def test_what_is_named_otherwise_is_no_event(tmp_path: Path, name: str) -> None:
    ledger.append(tmp_path, "note", "one")
    (tmp_path / "events" / name).write_text("{}")
    assert ledger.append(tmp_path, "note", "two").sequence == 2
    assert [event.message for event in ledger.read_events(tmp_path)] == ["one", "two"]
