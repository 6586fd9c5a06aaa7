from __future__ import annotations

import os
import signal

import pytest

from pretrainctl.records import codec
from pretrainctl.records.contract import (
    RUN_DIR_VARIABLE,
    Request,
    control_dir,
    request_file,
)
from pretrainctl.telemetry import Requests, requests


@pytest.fixture
def run_dir(run_dir):
    control_dir(run_dir).mkdir()
    return run_dir


@pytest.fixture
def clock(monkeypatch):
    """Time that moves when the test says so."""
    now = [100.0]
    monkeypatch.setattr(requests.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture(autouse=True)
def handlers():
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def ask(run_dir, number, *, action="save", attempt=3, reason="save"):
    codec.write(request_file(run_dir), Request(action, attempt, reason, number, 0.0))


def test_a_request_is_answered_once(run_dir, clock):
    watcher = Requests()
    assert watcher.poll() is None
    ask(run_dir, 1)
    clock[0] += 1
    request = watcher.poll()
    assert (request.action, request.number) == ("save", 1)
    clock[0] += 1
    assert watcher.poll() is None
    ask(run_dir, 1)
    clock[0] += 1
    assert watcher.poll() is None
    ask(run_dir, 2, action="save_and_exit", reason="time_limit")
    clock[0] += 1
    assert watcher.poll().reason == "time_limit"


def test_it_looks_twice_a_second_at_most(run_dir, clock):
    watcher = Requests()
    assert watcher.poll() is None
    ask(run_dir, 1)
    clock[0] += 0.4
    assert watcher.poll() is None
    clock[0] += 0.2
    assert watcher.poll().number == 1


@pytest.mark.parametrize("attempt", [2, 4])
def test_requests_of_other_attempts_are_ignored(run_dir, clock, attempt):
    watcher = Requests()
    ask(run_dir, 9, attempt=attempt)
    assert watcher.poll() is None
    ask(run_dir, 1)
    clock[0] += 1
    assert watcher.poll().number == 1


def test_only_rank_0_looks_at_the_file(run_dir, clock, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    ask(run_dir, 1)
    assert Requests().poll() is None


@pytest.mark.parametrize("text", ["", "{", '{"action": "dance"}', "[]"])
def test_an_unreadable_request_is_said_once_and_ignored(run_dir, clock, capsys, text):
    watcher = Requests()
    request_file(run_dir).write_text(text)
    for _ in range(2):
        assert watcher.poll() is None
        clock[0] += 1
    assert capsys.readouterr().err.count("cannot be read") == 1
    ask(run_dir, 1)
    assert watcher.poll().number == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_signal_asks_for_save_and_exit_on_every_rank(run_dir, monkeypatch, number, rank):
    monkeypatch.setenv("RANK", rank)
    watcher = Requests()
    os.kill(os.getpid(), number)
    for _ in range(2):
        request = watcher.poll()
        assert (request.action, request.reason, request.attempt) == ("save_and_exit", "signal", 3)


def test_a_signal_counts_outside_a_run_too(monkeypatch):
    monkeypatch.delenv(RUN_DIR_VARIABLE, raising=False)
    watcher = Requests()
    assert watcher.poll() is None
    os.kill(os.getpid(), signal.SIGTERM)
    assert watcher.poll().action == "save_and_exit"
