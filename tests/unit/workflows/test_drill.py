"""The drill's judgement, on records as runs write them."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

from pretrainctl.cli.drill import show_row, verdict
from pretrainctl.cli.main import main
from pretrainctl.errors import DrillError, InputError
from pretrainctl.metrics.series import read_series
from pretrainctl.records import codec
from pretrainctl.records.run import Event
from pretrainctl.records.sample import PhaseChange, Sample, Saved
from pretrainctl.workflows.drill import program, ranks
from pretrainctl.workflows.drill import run as drilling
from pretrainctl.workflows.drill.place import Site
from pretrainctl.workflows.drill.run import choose, listed
from pretrainctl.workflows.drill.verdict import Expectation, Record, Row, judge, measure, resumed, told_as

STRUCK = 116.5
NODE = Expectation(classes=frozenset({"node_failure"}))
SEQUENCE = itertools.count(1)


def event(kind: str, at: float, attempt: int = 1, **data: object) -> Event:
    return Event(kind, attempt, next(SEQUENCE), at, "node01", f"{kind} happened", data=data)


def start(folder: Path, restart: int, begun: float, steps: range) -> Path:
    """A start that does a step a second from two seconds on, and saves every ten steps."""
    file = folder / "attempts" / "0001" / f"restart-{restart}" / "metrics.jsonl"
    file.parent.mkdir(parents=True)
    records: list[object] = [PhaseChange("start", 0, begun)]
    for second, step in enumerate(steps, 2):
        records.append(Sample(step, step * 512, 3.0, 1.0, 1e-3, 1.0, begun + second))
        if step % 10 == 0:
            records.append(Saved(f"global_step{step}", step, 0.1, begun + second + 0.2))
    file.write_text("".join(json.dumps(codec.to_json(record)) + "\n" for record in records))
    return file


def record(folder: Path, *, first: int = 11, gate: int = 10) -> Record:
    """A run whose node died after step 14, at 116.5 s, and that went on."""
    series = read_series([start(folder, 0, 100.0, range(1, 15)), start(folder, 1, 120.0, range(first, 21))])
    return Record(
        events=[
            event("checkpoint_gate", 99.0, restart=0, resume_step=None),
            event("restart_started", 99.5, restart=0),
            event("node_dead", 117.5, node="node02"),
            event("restart_ended", 117.7, **{"class": "node_failure", "restart": 0}),
            event("checkpoint_gate", 118.0, restart=1, resume_step=gate),
            event("restart_started", 118.2, restart=1),
            event("restart_ended", 140.0, **{"class": "finished", "restart": 1}),
            event("finished", 140.5),
        ],
        series=series,
        struck=STRUCK,
        target=20,
        every=10,
        weights="a",
        expected_weights="a",
    )


def test_a_run_that_went_on_as_it_must(tmp_path: Path) -> None:
    good = record(tmp_path)
    assert judge(good, NODE) == []
    noticed, again = measure(good)
    assert (noticed, again) == (1.0, pytest.approx(120.0 + 6 - STRUCK)), "step 15 is the first that nobody had done"
    assert resumed(good.series, good.events) == "11 after 10"
    assert told_as(good.events) == "node_failure"
    undisturbed = replace(good, events=[event for event in good.events if event.data.get("class") != "node_failure"])
    undisturbed = replace(undisturbed, struck=130.0)
    assert measure(undisturbed) == (None, None), "an end that would have come anyway tells of no fault"


@pytest.mark.parametrize(
    ("change", "expected", "says"),
    [
        ({"queued": [7]}, NODE, "left in the queue: 7"),
        ({"weights": "b"}, NODE, "not those of an undisturbed run"),
        ({"weights": None}, NODE, "no digest"),
        ({"target": 60}, NODE, "finished at step 20 of 60"),
        ({"damaged": frozenset({10})}, NODE, "the last complete checkpoint was that of step 0"),
        ({}, Expectation(classes=frozenset({"hang"})), "told as node_failure, finished, not hang"),
        ({}, Expectation(twice=0), "4 steps were done twice; 0 may be"),
        ({}, Expectation(starts=1), "started 2 times; 1 are enough"),
        ({}, Expectation("stopped"), "it had to stop, and finished"),
    ],
)
def test_what_makes_a_row_fail(tmp_path: Path, change: dict, expected: Expectation, says: str) -> None:
    (problem,) = judge(replace(record(tmp_path), **change), expected)
    assert says in problem


def test_a_run_that_did_not_end(tmp_path: Path) -> None:
    good = record(tmp_path)
    (problem,) = judge(replace(good, events=good.events[:-1]), NODE)
    assert problem.startswith("it did not finish")
    (problem,) = judge(replace(good, events=good.events[:-1]), Expectation("stopped"))
    assert problem == "it had to stop, and did not"


@pytest.mark.parametrize(("first", "gate"), [(12, 11), (1, 0), (12, 10)])
def test_a_resume_elsewhere_than_after_the_last_complete_checkpoint(tmp_path: Path, first: int, gate: int) -> None:
    problems = judge(record(tmp_path, first=first, gate=gate), NODE)
    assert problems[0] == (
        f"attempt 1, restart 1 began with step {first}; the last complete checkpoint was that of step 10"
    )


def test_a_save_that_was_whole_before_its_line_was_written(tmp_path: Path) -> None:
    """A node may fall silent between the last shard of step 14 and the line that says that it is saved."""
    found = record(tmp_path, first=15, gate=14)
    assert judge(replace(found, every=7), NODE) == []
    assert judge(found, NODE) != []


def test_a_stop_must_have_its_class(tmp_path: Path) -> None:
    good = record(tmp_path)
    stopped = replace(good, events=[*good.events[:-1], event("stopped", 141.0, **{"class": "divergence"})])
    assert judge(stopped, Expectation("stopped", stop=frozenset({"divergence"}))) == []
    assert told_as(stopped.events) == "divergence"
    (problem,) = judge(stopped, Expectation("stopped", stop=frozenset({"user_cancel"})))
    assert "not as user_cancel" in problem


def test_faults_are_chosen_by_name(tmp_path: Path) -> None:
    everything, own = listed(None), listed("leonardo")
    assert {"rank-killed", "user-scancel"} <= {fault.name for fault in own} < {fault.name for fault in everything}
    assert [fault.name for fault in choose(["user-scancel", "rank-killed", "user-scancel"], None)] == [
        "user-scancel",
        "rank-killed",
    ]
    assert choose([], None) == everything
    with pytest.raises(InputError, match=r"no fault 'rank-kiled'") as caught:
        choose(["rank-kiled"], None)
    assert "rank-killed" in caught.value.hint
    with pytest.raises(InputError, match=r"more than an own job"):
        choose(["node-killed"], "leonardo")


def test_a_row_shows_why_it_failed_and_where_its_run_lies() -> None:
    failed = Row("nan", "fail", noticed=0.25, reason="it had to stop", path="/runs/nan")
    line, why, where = show_row(failed).splitlines()
    assert line.split() == ["nan", "0.2", "s", "-", "-", "-", "-", "fail"]
    assert (why.strip(), where.strip()) == ("it had to stop", "/runs/nan")
    assert show_row(Row("nan", "pass", again=8.0, resumed="11 after 10", path="/runs/nan")).count("\n") == 0


def test_the_drill_fails_where_one_row_does_and_where_none_could_be_played() -> None:
    well, ill, none = Row("a", "pass"), Row("b", "fail"), Row("c", "skipped")
    verdict([well, none])
    with pytest.raises(DrillError, match=r"1 passed, 1 failed, 1 skipped: b"):
        verdict([well, ill, none])
    with pytest.raises(DrillError, match=r"0 passed, 0 failed, 1 skipped"):
        verdict([none])
    with pytest.raises(InputError, match="nothing was played"):
        verdict([])


def test_only_the_rank_of_the_run_is_found(tmp_path: Path) -> None:
    def rank(number: str, module: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PRETRAINCTL_RUN_DIR": str(tmp_path), "RANK": number}
        code = "import sys; print(flush=True); sys.stdin.read()"
        started = subprocess.Popen(
            [sys.executable, "-c", code, module], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert started.stdout is not None
        started.stdout.readline()
        return started

    started = [rank("0", "pretrainctl.trainer"), rank("1", "pretrainctl.trainer"), rank("1", "a-shell")]
    try:
        assert ranks.find(tmp_path, 1) == started[1].pid
        assert ranks.find(tmp_path, 2) is None
        assert ranks.find(tmp_path / "other", 1) is None
    finally:
        for one in started:
            one.communicate()


def test_a_fault_that_comes_once_is_of_one_rank_and_leaves_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["program", "crash-at-start", "none.json", "--once", str(tmp_path / "mark")])
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(RuntimeError, match="before the first step"):
        program.main()
    assert (tmp_path / "mark").exists()


def test_a_slow_save_is_slow_at_its_step_only_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[str] = []
    slept: list[float] = []
    torch = types.ModuleType("torch")
    torch.save = lambda _what, where: saved.append(where)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(program.time, "sleep", slept.append)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(
        program._Ill,
        "chosen",
        argparse.Namespace(kind="slow-save", at=20, seconds=9.0, pace=0.0, once=tmp_path / "mark"),
        raising=False,
    )
    reporter = program._Ill()
    for step in (10, 20, 20, 30):
        reporter.step(step - 1, 0, 3.0, 1.0, 1e-3, 0.1)
        reporter.phase("checkpoint", step)
        torch.save({}, "zero_pp_rank_1_optim_states.pt")
    assert (len(saved), slept) == (4, [9.0])


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--cluster", "nonsense", "--yes"], 2, "nonsense"),
        (["--folder", "/dev/null"], 2, "is no folder to work in"),
        (["--folder", "."], 2, "holds runs already"),
    ],
)
def test_what_is_refused_says_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    says: str,
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drilling.importlib.util, "find_spec", lambda _name: object())
    monkeypatch.setattr(sys, "argv", ["pretrainctl", "drill", "--only", "nan", *arguments])
    if "--cluster" in arguments:
        sys.argv[3] = "rank-killed"
    with pytest.raises(SystemExit) as caught:
        main()
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (status, "")
    assert says in err
    assert "run folders" not in err
    assert "node-hours" not in err


def test_one_fault_on_a_cluster_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    monkeypatch.setattr(drilling, "find_site", lambda cluster: Site(cluster, ""))
    desk = drilling.Desk(row=print, say=said.append, confirm=lambda _: False)
    assert drilling.drill(choose(["rank-killed"], "leonardo"), tmp_path, cluster="leonardo", desk=desk) == []
    assert said == [
        "1 fault on leonardo, in a job of its own of 2 nodes: about 0.1 node-hours, at most 0.5",
    ]
