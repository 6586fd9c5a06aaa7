"""What a run has spent, by its ledger and its files."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from pretrainctl.records import codec, contract
from pretrainctl.records.run import AttemptRecord, Event, EventKind, RunRecord
from pretrainctl.recovery.budgets import Opened
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows.spending import opened_before, spent_by


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    codec.write(tmp_path / "run.json", RunRecord("a", "a-1", "a-1", "sandbox", 0.0, getpass.getuser(), {}, {}, {}))
    return RunFolder(tmp_path)


def attempt(run: RunFolder, number: int, begin: float, *events: tuple[EventKind, float, dict], nodes: int = 2) -> None:
    folder = contract.attempt_dir(run.path, number)
    (folder / "events").mkdir(parents=True)
    names = tuple(f"node{index}" for index in range(nodes))
    codec.write(folder / "attempt.json", AttemptRecord(number, number, 0, "node0", 1, names, begin))
    for index, (kind, time, data) in enumerate(events, 1):
        codec.write(folder / "events" / f"{index:06d}.json", Event(kind, number, index, time, "node0", "", 0, data))


def resumed(run: RunFolder, after: int) -> None:
    (run.path / "events").mkdir(exist_ok=True)
    codec.write(run.path / "events" / "000001.json", Event("resume_requested", 0, 1, 0.0, "login", "", after))


def test_node_hours_of_all_attempts(run: RunFolder) -> None:
    attempt(run, 1, 0.0, ("attempt_ended", 3600.0, {}))
    attempt(run, 2, 4000.0, ("claimed", 4000.0, {}), nodes=3)
    attempt(run, 3, 5000.0, ("refused", 9000.0, {}))
    attempt(run, 4, 10000.0, ("claimed", 10000.0, {}))
    last = contract.restart_dir(run.path, 2, 0)
    last.mkdir()
    (last / "training.log").touch()
    os.utime(last / "training.log", (5800.0, 5800.0))
    spent = spent_by(run, running=4, clock=lambda: 11800.0)
    assert spent.node_hours == pytest.approx(2 * 1.0 + 3 * 0.5 + 2 * 0.5)
    assert spent_by(run, clock=lambda: 11800.0).node_hours == pytest.approx(2 * 1.0 + 3 * 0.5), "4 left no sign"


def test_the_clock_of_a_host_that_was_wrong_costs_no_more_than_the_run_is_old(tmp_path: Path) -> None:
    made = RunRecord("a", "a-1", "a-1", "sandbox", 1.8e9, getpass.getuser(), {}, {}, {})
    codec.write(tmp_path / "run.json", made)
    run = RunFolder(tmp_path)
    attempt(run, 1, 1600.0, ("attempt_ended", 1.8e9 + 1800, {}))
    attempt(run, 2, 1.8e9 + 1800, ("attempt_ended", 1.9e9, {}))
    assert spent_by(run, clock=lambda: 1.8e9 + 3600).node_hours == pytest.approx(2 * 0.5 + 2 * 0.5)


def test_failures_of_the_last_hour(run: RunFolder) -> None:
    ends = [
        ("restart_ended", 10.0, {"class": "hang", "restart": 0}),
        ("restart_ended", 5000.0, {"class": "hang", "restart": 0}),
    ]
    attempt(run, 1, 0.0, *ends)
    saw = ("looked_back", 5100.0, {"class": "node_failure", "of": 1})
    attempt(
        run,
        2,
        5100.0,
        saw,
        ("restart_ended", 5200.0, {"class": "time_limit", "restart": 0}),
        ("attempt_ended", 5200.0, {}),
    )
    attempt(run, 3, 5300.0, ("looked_back", 5300.0, {"class": "node_failure", "of": 2}))
    assert spent_by(run, clock=lambda: 5400.0).failures == 2, "one long ago, an end that is no failure, one told twice"
    resumed(run, after=1)
    assert spent_by(run, clock=lambda: 5400.0).failures == 1


def test_what_the_gate_opened_since_the_last_resume(run: RunFolder) -> None:
    attempt(run, 1, 0.0, ("checkpoint_gate", 1.0, {"resume_step": None, "last_saved_step": None}))
    attempt(run, 2, 2.0, ("checkpoint_gate", 3.0, {"resume_step": 80, "last_saved_step": 100}))
    assert opened_before(run) == [Opened(0), Opened(80, 100)]
    resumed(run, after=1)
    assert opened_before(run) == [Opened(80, 100)]
