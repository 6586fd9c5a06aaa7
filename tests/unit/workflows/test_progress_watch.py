"""The watch over the progress: what it follows, what it asks the nodes, and when it calls a hang."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pretrainctl.records import codec
from pretrainctl.records.contract import restart_dir
from pretrainctl.records.launch import HangRule, SrunShape
from pretrainctl.records.progress import Hang, RankReport
from pretrainctl.workflows.attempt import progress_watch
from pretrainctl.workflows.attempt.progress_watch import ProgressWatch

RULE = HangRule(start=100, start_per_node=0, step=20, checkpoint=60, evaluation=200)
NODES = ("node02", "node03")


class Clock:
    """Moves when told, when slept by, and a little with each look at it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Listener:
    """Answers for the nodes with what `reports` has."""

    def __init__(self) -> None:
        self.reports: dict[str, list[RankReport]] = {}
        self.asked: list[dict[str, Any]] = []
        self.deaf = False

    def all_silent(self) -> bool:
        return self.deaf

    def ask(self, question: dict[str, Any]) -> None:
        self.asked.append(question)

    def answers(self) -> dict[str, Any]:
        return {node: {"ranks": codec.to_json(reports)} for node, reports in self.reports.items()}


class Attempt:
    """As much of an attempt as the watch sees; keeps its events."""

    def __init__(self, run_dir: Path) -> None:
        self.number = 1
        self.launch = SimpleNamespace(hang=RULE, srun=SrunShape(2, 1, 1), signal_lead=10)
        restarts = [(1, index, restart_dir(run_dir, 1, index)) for index in range(2)]
        self.run = SimpleNamespace(
            path=run_dir,
            bundle=run_dir / "bundle",
            restart_dirs=lambda: [entry for entry in restarts if entry[2].exists()],
        )
        self.events: list[tuple[str, str]] = []

    def event(self, kind: str, message: str, _data: object = None) -> None:
        self.events.append((kind, message))


class Case:
    """A second restart of a run, its watch, and the program that writes lines."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.listener, self.attempt = Clock(), Listener(), Attempt(folder)
        self.folder = restart_dir(folder, 1, 1)
        self.folder.mkdir(parents=True)
        (folder / "bundle").mkdir()
        self.watch: ProgressWatch | None = None

    def begin(self, *, trainer: bool = True) -> Case:
        if trainer:
            (self.attempt.run.bundle / "training.json").touch()
        self.watch = ProgressWatch(self.attempt, self.listener, self.folder, 1, NODES, clock=self.clock)
        return self

    def write(self, **entry: Any) -> None:
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"kind": "step", "time": 0.0, **entry}) + "\n")

    def steps(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            self.write(step=step)
            assert self.wait(1.0) is None

    def wait(self, seconds: float) -> Hang | None:
        """Look as the attempt does, five times a second, until it is a hang or so much time has passed."""
        assert self.watch is not None
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += 0.2
            hang = self.watch.tick()
            if hang is not None:
                return hang
        return None

    def stuck(self, age: float, *, states: str = "ST") -> None:
        for rank, (node, state) in enumerate(zip(NODES, states, strict=True)):
            stack = 'Current thread 0x1 (most recent call first):\n  File "a.py", line 1 in all_reduce\n'
            report = RankReport(rank, 7, state, "futex", 9, 8, "step", age, stack if state == "S" else "")
            self.listener.reports[node] = [report]


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    made = Case(tmp_path)
    monkeypatch.setattr(progress_watch.time, "sleep", made.clock.sleep)
    return made


def test_a_hang_in_a_step_names_the_rank_and_its_node(case: Case) -> None:
    case.begin().steps(1, 8)
    case.stuck(age=30.0)
    begun = case.clock.now
    hang = case.wait(60)
    assert hang is not None
    assert 19 < case.clock.now - begun < 22, "a second had passed since the last step"
    assert (hang.phase, hang.step, hang.ranks, hang.nodes) == ("step", 8, (1,), ("node03",))
    assert hang.limit < hang.seconds < hang.limit + 3
    assert hang.message.endswith("behind: rank 1 on node03, stopped (state T)")
    assert [entry["stacks"] for entry in case.listener.asked] == [False, True]
    assert case.attempt.events == [("hang", hang.message)]
    assert case.watch is not None
    case.watch.record(hang)
    assert codec.read(Hang, case.folder / "hang.json") == hang
    stacks = (case.folder / "stacks.txt").read_text()
    assert "=== rank 0 on node02\nCurrent thread" in stacks
    assert "=== rank 1 on node03\n(no stack)" in stacks


def test_lines_that_are_lost_are_no_hang_while_the_ranks_go_on(case: Case) -> None:
    case.begin().steps(1, 8)
    case.stuck(age=0.5, states="SS")
    assert case.wait(200) is None
    assert [kind for kind, _ in case.attempt.events] == ["note"], "said once"
    assert not any(entry["stacks"] for entry in case.listener.asked), "no rank was signalled"
    case.stuck(age=30.0)
    assert case.wait(40) is not None, "and when they stop, it is one"


def test_nodes_that_do_not_answer_hide_no_hang(case: Case) -> None:
    case.begin().steps(1, 8)
    begun = case.clock.now
    hang = case.wait(60)
    assert hang is not None
    assert case.clock.now - begun < RULE.step + 3
    assert (hang.ranks, hang.facts) == ((), ("no node could say where its ranks stand",))


def test_where_no_node_is_heard_of_at_all_it_takes_twice_as_long(case: Case) -> None:
    case.begin().steps(1, 8)
    case.listener.deaf = True
    assert case.wait(2 * RULE.step - 4) is None
    assert case.wait(6) is not None


def test_a_rank_without_a_process_is_told_from_a_node_that_does_not_answer(case: Case) -> None:
    case.begin().steps(1, 8)
    case.stuck(age=30.0, states="SS")
    case.listener.reports["node03"] = []
    hang = case.wait(60)
    assert hang is not None
    assert (hang.ranks, hang.nodes) == ((1,), ("node03",))


def test_a_line_that_comes_while_the_nodes_are_asked_is_in_time(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.begin().steps(1, 8)
    case.stuck(age=30.0)
    asked = case.listener.ask

    def ask(question: dict[str, Any]) -> None:
        asked(question)
        if question["stacks"]:
            case.write(step=9)

    monkeypatch.setattr(case.listener, "ask", ask)
    assert case.wait(25) is None
    assert case.attempt.events == []


def test_the_reference_trainer_is_watched_before_its_first_line(case: Case) -> None:
    case.begin()
    assert case.wait(95) is None
    hang = case.wait(20)
    assert hang is not None
    assert (hang.phase, hang.step) == ("start", 0)


def test_of_a_program_that_never_reports_nothing_is_known(case: Case) -> None:
    case.begin(trainer=False)
    assert case.wait(500) is None
    assert case.listener.asked == []


def test_a_program_that_reported_before_is_watched_from_its_start(case: Case) -> None:
    before = restart_dir(case.attempt.run.path, 1, 0)
    before.mkdir()
    (before / "metrics.jsonl").write_text(
        "".join(f'{{"kind": "step", "step": {n}, "time": {n * 9}}}\n' for n in range(9))
    )
    case.begin(trainer=False)
    assert case.wait(120) is not None


def test_what_earlier_restarts_took_counts(case: Case) -> None:
    before = restart_dir(case.attempt.run.path, 1, 0)
    before.mkdir()
    lines = [f'{{"kind": "step", "step": {n}, "time": {n * 9}, "pad": "{"x" * 900}"}}\n' for n in range(3000)]
    (before / "metrics.jsonl").write_text("".join(lines) + '{"torn')
    case.begin().steps(1, 8)
    assert case.wait(60) is None
    hang = case.wait(30)
    assert hang is not None
    assert (hang.limit, "8 times the 9.0 s" in hang.message) == (72.0, True)


def test_a_file_system_that_is_away_is_no_hang(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert case.begin().watch is not None
    case.steps(1, 8)
    read = case.watch._read

    def broken(then: Callable[[], None]) -> Callable[[], bytes]:
        def fail() -> bytes:
            then()
            return read()

        return fail

    def refuse() -> None:
        raise OSError(5, "Input/output error")

    def hang() -> None:
        case.clock.now += 40

    for fault in (refuse, hang):
        monkeypatch.setattr(case.watch, "_read", broken(fault))
        assert case.wait(300) is None
        monkeypatch.setattr(case.watch, "_read", read)
        assert case.wait(18) is None, "after it the ranks have their time again"
        case.write(step=9)
    assert case.listener.asked == []


def test_ranks_that_wait_for_a_file_system_are_waited_for_as_long_as_the_attempt_waits(case: Case) -> None:
    case.begin().steps(1, 8)
    case.stuck(age=5000.0, states="SD")
    (report,) = case.listener.reports["node03"]
    case.listener.reports["node03"] = [dataclasses.replace(report, waits_in="rpc_wait_bit_killable")]
    assert case.wait(890) is None
    assert [kind for kind, _ in case.attempt.events] == ["note"]
    assert "rank 1: waiting for a file system" in case.attempt.events[0][1]
    hang = case.wait(20)
    assert hang is not None
    assert "held in the kernel (state D, rpc_wait_bit_killable)" in hang.message


def test_the_time_in_which_the_attempt_itself_was_away_does_not_count(case: Case) -> None:
    case.begin().steps(1, 8)
    assert case.wait(15) is None
    case.clock.now += 500  # the whole job was suspended, say
    assert case.wait(2) is None
    assert case.wait(10) is not None


def test_looks_are_seldom_and_read_only_what_is_new(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert case.begin().watch is not None
    looks = []
    read = case.watch._read
    monkeypatch.setattr(case.watch, "_read", lambda: looks.append(read()) or looks[-1])
    case.steps(1, 30)
    assert len(looks) <= 30 / progress_watch._SHORTEST_PAUSE
    assert sum(map(len, looks)) == (case.folder / "metrics.jsonl").stat().st_size
