"""A node looks at its ranks: real processes, one stopped, one that catches no signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pretrainctl.liveness import ranks
from pretrainctl.liveness.ranks import look_at_ranks
from pretrainctl.records.contract import ATTEMPT_VARIABLE, RESTART_VARIABLE, RUN_DIR_VARIABLE

TOP = Path(__file__).parents[3]
REPORTS = """
from pretrainctl.telemetry import Reporter
reporter = Reporter()
reporter.phase("start", 0)
reporter.step(4, 512, 1.0, 1.0, 1.0, 1.0)
"""
WAIT = """
import time
def wait_here():
    print("ready", flush=True)
    time.sleep(100)
wait_here()
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a rank of attempt 2, restart 1, on this node, and returns when it says that it is ready."""
    monkeypatch.setenv("SLURMD_NODENAME", "node01")
    monkeypatch.setattr(ranks, "_ANSWER_PATIENCE", 20.0)  # the machine may be busy
    started: list[subprocess.Popen[str]] = []

    def start(rank: int, program: str = REPORTS + WAIT, **other: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            RUN_DIR_VARIABLE: str(tmp_path),
            ATTEMPT_VARIABLE: "2",
            RESTART_VARIABLE: "1",
            "RANK": str(rank),
            "PYTHONPATH": str(TOP),
            **other,
        }
        started.append(
            subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        )
        assert started[-1].stdout is not None
        assert started[-1].stdout.readline() == "ready\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)


def look(tmp_path: Path, *, stacks: bool = True) -> dict[int, ranks.RankReport]:
    return {report.rank: report for report in look_at_ranks(str(tmp_path), 2, 1, stacks=stacks)}


def test_ranks_say_how_far_they_are_and_where_they_stand(tmp_path: Path, start: Start) -> None:
    alive, stopped = start(0), start(3)
    stop(stopped)
    found = look(tmp_path)
    assert sorted(found) == [0, 3]
    assert (found[0].pid, found[0].step, found[0].phase, found[0].count) == (alive.pid, 4, "step", 2)
    assert 0 < found[0].age < 300
    assert 'in wait_here\n  File "<string>"' in found[0].stack
    assert (found[3].state, found[3].step, found[3].stack) == ("T", 4, "")
    assert alive.poll() is None, "it was only asked"
    again = look(tmp_path)
    assert again[0].stack.count("wait_here") == 1, "what it said before is not said again"


def test_only_stamps_are_read_where_no_stacks_are_asked_for(tmp_path: Path, start: Start) -> None:
    start(0)
    assert look(tmp_path, stacks=False)[0].stack == ""


def test_other_runs_restarts_and_nodes_are_left_alone(tmp_path: Path, start: Start) -> None:
    start(0, **{RESTART_VARIABLE: "0"})
    start(1, **{RUN_DIR_VARIABLE: str(tmp_path / "another")})
    start(2, SLURMD_NODENAME="node02")
    assert look(tmp_path) == {}


def test_a_rank_that_would_die_of_the_signal_is_not_signalled(tmp_path: Path, start: Start) -> None:
    forgets = REPORTS + "import signal; signal.signal(signal.SIGUSR2, signal.SIG_DFL)\n" + WAIT
    plain, forgetful = start(0, WAIT), start(1, forgets)
    found = look(tmp_path)
    assert [(one.count, one.stack) for one in found.values()] == [(0, ""), (2, "")]
    assert (plain.poll(), forgetful.poll()) == (None, None)


def test_a_rank_that_never_answers_is_not_waited_for(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "_ANSWER_PATIENCE", 0.3)
    start(0, REPORTS + "import signal; signal.signal(signal.SIGUSR2, lambda *_: None)\n" + WAIT)
    begun = time.monotonic()
    assert look(tmp_path)[0].stack == ""
    assert 0.3 < time.monotonic() - begun < 10


def test_of_a_rank_and_its_children_the_rank_is_taken(tmp_path: Path, start: Start) -> None:
    forks = REPORTS + "import os, time\nif os.fork() == 0:\n    time.sleep(100)\n" + WAIT
    rank = start(0, forks)
    try:
        assert look(tmp_path, stacks=False)[0].pid == rank.pid
    finally:
        (child,) = Path(f"/proc/{rank.pid}/task/{rank.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)


def test_py_spy_is_asked_of_a_rank_that_does_not_answer(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = tmp_path / "py-spy"
    spy.write_text('#!/bin/sh\necho "Thread $4 (idle): \\"MainThread\\""\necho "    batch (samples.py:61)"\n')
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    stopped = start(0)
    stop(stopped)
    assert look(tmp_path)[0].stack == f'Thread {stopped.pid} (idle): "MainThread"\n    batch (samples.py:61)\n'
