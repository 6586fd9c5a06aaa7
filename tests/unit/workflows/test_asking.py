"""The ranks hear of a stop and of the time limit, whatever the run folder takes."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.records import codec, contract
from pretrainctl.records.contract import Request
from pretrainctl.runs import ledger
from pretrainctl.workflows.attempt.asking import Asking


class Attempt:
    """As much of an attempt as the asking sees; keeps its events."""

    number = 1

    def __init__(self, folder: Path) -> None:
        (folder / "control").mkdir()
        self.run = SimpleNamespace(path=folder)
        self.signals = SimpleNamespace(time_limit_near=False, terminated=False)
        self.events: list[str] = []
        self.full = False

    def event(self, _kind: str, message: str, _data: object = None) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.events.append(message)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return Attempt(tmp_path)


@pytest.fixture
def scancel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A `scancel` that notes its arguments, and fails the first time; returns what it noted, once it has ended."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "scancel"
    program.write_text(f'#!/bin/sh\necho "$*" >>{folder}/said\n[ "$(wc -l <{folder}/said)" -gt 1 ]\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def said() -> list[str]:
        return (folder / "said").read_text().splitlines() if (folder / "said").exists() else []

    return said


def step() -> str:
    return "7.1"


def standing(attempt: Attempt) -> Request:
    return codec.read(Request, contract.request_file(attempt.run.path))


def test_nothing_is_asked_without_a_reason(attempt: Attempt) -> None:
    clock = Clock()
    asking = Asking(attempt, step, clock=clock)
    clock.now = 100.0
    asking.tick()
    assert asking.asked is None
    assert not contract.request_file(attempt.run.path).exists()


def test_the_time_limit_is_asked_once(attempt: Attempt) -> None:
    asking = Asking(attempt, step)
    attempt.signals.time_limit_near = True
    asking.tick()
    asking.tick()
    assert asking.asked == standing(attempt)
    assert (asking.asked.reason, asking.asked.number) == ("time_limit", 1)
    assert attempt.events == ["asked for a save and the end: time_limit"]


@pytest.mark.parametrize("full", [False, True])
def test_where_the_request_cannot_be_written_the_ranks_are_signalled_until_they_heard(
    attempt: Attempt, scancel: Callable[[], list[str]], full: bool
) -> None:
    contract.request_file(attempt.run.path).mkdir()
    attempt.full = full
    clock = Clock()
    asking = Asking(attempt, step, clock=clock)
    attempt.signals.time_limit_near = True
    deadline = time.monotonic() + 20
    while len(scancel()) < 2 and time.monotonic() < deadline:
        clock.now += 1.0
        asking.tick()
        time.sleep(0.05)
    for _ in range(20):
        clock.now += 6.0
        asking.tick()
        time.sleep(0.02)
    assert scancel() == ["--signal=TERM 7.1"] * 2, "the first try failed, the second did not"
    assert asking.asked.reason == "time_limit"
    assert [path.name for path in (attempt.run.path / "control").iterdir()] == ["request.json"]
    assert len(attempt.events) == (0 if full else 1)


def test_a_stop_that_only_the_ledger_knows_reaches_the_ranks(attempt: Attempt) -> None:
    clock = Clock()
    asking = Asking(attempt, step, clock=clock)
    ledger.append(attempt.run.path, "stop_requested", "stop asked for")
    asking.tick()
    assert asking.asked is None, "the ledger is not read at every tick"
    clock.now = 16.0
    asking.tick()
    assert standing(attempt).reason == "stop"
    assert asking.asked.reason == "stop"


def test_a_stop_that_the_ranks_know_is_not_asked_again(attempt: Attempt) -> None:
    clock = Clock()
    asking = Asking(attempt, step, clock=clock)
    ledger.append(attempt.run.path, "stop_requested", "stop asked for")
    asked = Request("save_and_exit", 1, "stop", 4, 1.0)
    codec.write(contract.request_file(attempt.run.path), asked)
    clock.now = 16.0
    asking.tick()
    assert (standing(attempt), asking.asked, attempt.events) == (asked, None, [])


def test_a_ledger_that_cannot_be_read_now_is_no_reason(attempt: Attempt) -> None:
    clock = Clock()
    asking = Asking(attempt, step, clock=clock)
    (attempt.run.path / "events").mkdir()
    (attempt.run.path / "events" / "000001.json").write_text("")
    clock.now = 16.0
    asking.tick()
    assert asking.asked is None
