"""Where runs stand: found under several roots, with one question to Slurm for all of them."""

from __future__ import annotations

import getpass
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from pretrainctl.cli import view
from pretrainctl.cli.run import status as status_command
from pretrainctl.errors import LedgerError, SlurmError
from pretrainctl.metrics.series import read_series
from pretrainctl.records import codec
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.run import AttemptRecord, RunRecord
from pretrainctl.runs import ledger
from pretrainctl.slurm.sinfo import parse_sinfo
from pretrainctl.workflows import status


class Queue:
    """Stands where the Slurm client stands; `jobs` is what it knows."""

    asked: ClassVar[list[list[int]]]
    jobs_known: ClassVar[dict[int, Job]]
    away: ClassVar[bool]

    def jobs(self, ids: Sequence[int]) -> dict[int, Job]:
        if self.away:
            raise SlurmError("unable to contact slurm controller")
        self.asked.append(list(ids))
        return {job: self.jobs_known[job] for job in ids if job in self.jobs_known}

    def queued(self, name: str) -> list[Job]:
        return [job for job in self.jobs_known.values() if job.name == name and (job.is_waiting or job.is_running)]


def job(number: int, kind: JobClass, name: str = "a", **more: object) -> Job:
    return Job(number, name, StateMeaning(kind.name, kind, alive=True), **more)


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    made = [tmp_path / "mine", tmp_path / "group"]
    for root in made:
        root.mkdir()
    monkeypatch.setenv("PRETRAINCTL_RUNS", ":".join(map(str, made)))
    monkeypatch.setattr(status, "reach", lambda _run: Queue())
    monkeypatch.setattr(Queue, "asked", [], raising=False)
    monkeypatch.setattr(Queue, "jobs_known", {}, raising=False)
    monkeypatch.setattr(Queue, "away", False, raising=False)
    return made


def run(root: Path, name: str, launch: dict[str, object], *jobs: int) -> Path:
    folder = root / name
    (folder / "bundle").mkdir(parents=True)
    codec.write(folder / "run.json", RunRecord(name, name, name, "sandbox", 0.0, "u", {}, {}, {}))
    (folder / "bundle" / "launch.json").write_text(json.dumps(launch))
    for number in jobs:
        ledger.append(folder, "submitted", f"submitted job {number}", data={"job_id": number})
    return folder


@pytest.fixture
def launch(pytestconfig: pytest.Config) -> dict[str, object]:
    return json.loads(
        (pytestconfig.rootpath / "tests" / "golden" / "quickstart-on-sandbox" / "launch.json").read_text()
    )


def test_runs_of_all_roots_cost_one_question(roots: list[Path], launch: dict[str, object]) -> None:
    run(roots[0], "a", launch, 1)
    run(roots[1], "b", launch, 2, 3)
    run(roots[1], "c", launch, 4)
    Queue.jobs_known = {
        1: job(1, JobClass.RUNNING, nodes=("node01",)),
        3: job(3, JobClass.PENDING, "b", reason="Resources", expected_start=5.0),
        4: job(4, JobClass.RUNNING, "of-another-cluster"),
    }
    found = {one.name: one for one in status.survey().runs}
    assert Queue.asked == [[1, 2, 3, 4]]
    assert {name: one.phase for name, one in found.items()} == {"a": "starting", "b": "queued", "c": "no_job"}
    assert (found["b"].job_id, found["b"].reason, found["b"].expected_start) == (3, "Resources", 5.0)


def test_a_stopped_run_whose_job_still_runs_is_stopping_and_its_dead_nodes_are_told(
    roots: list[Path], launch: dict[str, object]
) -> None:
    folder = run(roots[0], "a", launch, 1)
    (folder / "attempts" / "0001").mkdir(parents=True)
    ledger.append(folder, "claimed", "claimed", attempt=1, data={"job_id": 1})
    ledger.append(folder, "node_dead", "node02 is dead", attempt=1, data={"node": "node02"})
    ledger.append(folder, "stop_requested", "stop asked for")
    Queue.jobs_known = {1: job(1, JobClass.RUNNING, nodes=("node01", "node02"))}
    (found,) = status.survey().runs
    assert (found.phase, found.nodes, found.dead_nodes) == ("stopping", ("node01",), ("node02",))


def test_a_folder_that_is_named_and_missing_is_said(roots: list[Path], launch: dict[str, object]) -> None:
    roots[0].rmdir()
    run(roots[1], "b", launch)
    found = status.survey()
    assert [one.name for one in found.runs] == ["b"]
    assert str(roots[0]) in found.problems[0]


def test_what_slurm_cannot_say_is_unknown(roots: list[Path], launch: dict[str, object]) -> None:
    run(roots[0], "a", launch, 1)
    Queue.away = True
    found = status.survey()
    assert found.runs[0].phase == "unknown"
    assert "unable to contact" in found.problems[0]


def test_one_unreadable_run_does_not_hide_the_others(roots: list[Path], launch: dict[str, object]) -> None:
    run(roots[0], "a", launch, 1)
    broken = run(roots[0], "b", launch, 2)
    (broken / "events" / "000001.json").write_text("")
    found = status.survey()
    assert [one.name for one in found.runs] == ["a"]
    assert "000001.json cannot be read" in found.problems[0]
    with pytest.raises(LedgerError):
        status.survey("b")


def test_finished_and_stopped_runs_are_so_whatever_is_queued(roots: list[Path], launch: dict[str, object]) -> None:
    done = run(roots[0], "a", launch, 1)
    ledger.append(done, "finished", "the target was reached")
    stopped = run(roots[0], "b", launch, 2)
    ledger.append(stopped, "stop_requested", "stop asked for")
    assert [one.phase for one in status.survey().runs] == ["finished", "stopped"]
    assert Queue.asked == [[2]], "nothing is asked about a finished run"


ODD = [
    '{"kind":"step","step":"x","loss":"abc"}',
    '{"kind":"step","step":7,"tokens":null,"loss":Infinity,"time":NaN}',
    '{"kind":"step","step":7,"tokens":true,"loss":"abc","time":[1]}',
    '{"kind":"step","step":Infinity,"tokens":-1,"loss":{},"time":-Infinity}',
    '{"kind":"step","step":1e999,"loss":1e999,"time":1e999}',
    '{"kind":"step","step":' + "9" * 400 + ',"loss":' + "9" * 400 + "}",
    "[" * 100_000,
    "[]",
    "null",
    '"step"',
    "\0\0",
    None,
]


@pytest.mark.parametrize("line", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("as_json", [False, True])
def test_an_odd_line_of_metrics_is_no_value_and_hides_no_other_run(
    roots: list[Path],
    launch: dict[str, object],
    line: str | None,
    as_json: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(roots[0], "good", launch, 1)
    metrics = run(roots[0], "odd", launch, 2) / "attempts" / "0001" / "restart-0" / "metrics.jsonl"
    if line is None:
        metrics.mkdir(parents=True)
    else:
        metrics.parent.mkdir(parents=True)
        metrics.write_text(line + "\n")
    for name in (None, "odd"):
        status_command(name, as_json=as_json)
        shown = capsys.readouterr().out
        if as_json:
            read = json.loads(shown, parse_constant=pytest.fail)
            odd = read if name else read[1]
            assert odd["step"] in {None, 7}
            assert (odd["tokens"], odd["loss"], odd["last_sample_time"]) == (None, None, None)
        else:
            assert "odd" in shown


@pytest.mark.parametrize("line", [line for line in ODD if line is not None], ids=range(len(ODD) - 1))
def test_an_odd_line_ends_no_reading_of_metrics(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    good = '{"kind":"step","step":1,"tokens":2,"loss":3.0,"grad_norm":1,"lr":1,"seconds":1,"time":1}'
    saved = '{"kind":"saved","tag":"a","step":1e999,"seconds":1,"time":1}'
    path.write_text(f"{good}\n{line}\n{saved}\n{good}\n")
    read = read_series([path])
    assert read.broken_lines == 2
    assert list(read.step) == [1]


def test_json_has_no_nan_and_is_utf_8(capsys: pytest.CaptureFixture[str]) -> None:
    view.print_json({"a": [float("nan"), {"b": float("-inf")}, 1.5], "c": "\udcff ü"})
    shown = capsys.readouterr().out
    assert json.loads(shown, parse_constant=pytest.fail) == {"a": [None, {"b": None}, 1.5], "c": "\udcff ü"}
    shown.encode()


@pytest.mark.parametrize("began", [True, False])
def test_scancel_of_all_jobs_is_a_stop_that_the_ledger_does_not_know_yet(
    roots: list[Path], launch: dict[str, object], began: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(roots[0], "a", launch, 1, 2)
    run(roots[1], "b", launch, 3)
    if began:
        (folder / "attempts" / "0001").mkdir(parents=True)
        ledger.append(folder, "claimed", "claimed", attempt=1, data={"job_id": 1})
    gone = StateMeaning(f"CANCELLED by {os.getuid()}", JobClass.USER_CANCEL, alive=False, cancelled_by=os.getuid())
    Queue.jobs_known = {1: Job(1, "a", gone), 2: Job(2, "a", gone)}
    status_command(None)
    out, err = capsys.readouterr()
    (line,) = [line for line in out.splitlines() if line.startswith("a ")]
    assert "stopped" in line
    assert f"CANCELLED by {getpass.getuser()}" in line
    assert "a: its jobs were cancelled with scancel: nothing goes on until `pretrainctl resume a`" in err
    assert "no_job: nothing of it is in the queue; `pretrainctl reconcile b` looks into it" in err


@pytest.mark.parametrize(
    ("spares", "there", "told"),
    [
        (1, 3, None),
        (
            1,
            2,
            "needs 3 nodes (2, and 1 spare), and 2 of production are in service: `pretrainctl stop --save a`, then ",
        ),
        (1, 1, "needs 3 nodes (2, and 1 spare), and 1 of production are in service"),
        (0, 1, "needs 2 nodes, and 1 of production are in service"),
        (3, 3, "--set resources.spares=1` lets it start"),
    ],
)
def test_a_job_that_waits_for_more_nodes_than_are_in_service(
    roots: list[Path],
    launch: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    spares: int,
    there: int,
    told: str | None,
) -> None:
    run(roots[0], "a", launch | {"spares": spares, "srun": {**launch["srun"], "nodes": 2}}, 1)  # type: ignore[dict-item]
    run(roots[0], "b", launch, 2)
    states = [f"production*|node0{n}|{'idle' if n < there else 'down*'}|(null)|none\n" for n in range(6)]
    states += ["other|node09|idle|(null)|none\n"]
    nodes = tuple(parse_sinfo("".join(states)).values())
    monkeypatch.setattr(Queue, "partition_nodes", lambda _self, name: (nodes, name), raising=False)
    Queue.jobs_known = {1: job(1, JobClass.PENDING, partition="production", reason="Resources")}
    warnings = status.survey("a").runs[0].warnings
    assert (warnings == ()) == (told is None)
    assert told is None or told in warnings[0]
    assert ("lets it start" in "".join(warnings)) == (there >= 2 and told is not None)
    assert [found.warnings for found in status.survey().runs] == [(), ()], "one question to Slurm for all"
    Queue.jobs_known = {1: job(1, JobClass.PENDING, partition="production", reason="Dependency")}
    assert status.survey("a").runs[0].warnings == ()


def test_one_that_waits_makes_it_no_stop(roots: list[Path], launch: dict[str, object]) -> None:
    run(roots[0], "a", launch, 1, 2)
    gone = StateMeaning("CANCELLED by 7", JobClass.USER_CANCEL, alive=False, cancelled_by=7)
    Queue.jobs_known = {1: job(1, JobClass.PENDING), 2: Job(2, "a", gone)}
    (found,) = status.survey().runs
    assert (found.phase, found.warnings) == ("queued", ())


def test_a_chained_job_that_was_cancelled_is_a_stop_where_nothing_is_alive(
    roots: list[Path], launch: dict[str, object]
) -> None:
    folder = run(roots[0], "a", launch, 1)
    (folder / "attempts" / "0001").mkdir(parents=True)
    ledger.append(folder, "claimed", "claimed", attempt=1, data={"job_id": 1})
    ledger.append(folder, "chained", "queued chained job 2", attempt=1, data={"job_id": 2})
    done = StateMeaning("COMPLETED", JobClass.FINISHED, alive=False)
    gone = StateMeaning("CANCELLED by 7", JobClass.USER_CANCEL, alive=False, cancelled_by=7)
    Queue.jobs_known = {1: Job(1, "a", done), 2: Job(2, "a", gone)}
    assert status.survey().runs[0].phase == "stopped"


def test_a_resume_that_has_not_queued_its_job_yet_is_not_stopped_by_what_was_cancelled_before(
    roots: list[Path], launch: dict[str, object]
) -> None:
    folder = run(roots[0], "a", launch, 1)
    (folder / "attempts" / "0001").mkdir(parents=True)
    ledger.append(folder, "claimed", "claimed", attempt=1, data={"job_id": 1})
    gone = StateMeaning("CANCELLED by 7", JobClass.USER_CANCEL, alive=False, cancelled_by=7)
    Queue.jobs_known = {1: Job(1, "a", gone)}
    assert status.survey().runs[0].phase == "stopped"
    ledger.append(folder, "resume_requested", "resume asked for")
    assert status.survey().runs[0].phase == "no_job"


PHASE = '{"kind":"phase","phase":"%s","step":0,"time":%f}\n'
STEP = '{"kind":"step","step":1,"tokens":1,"loss":1.0,"grad_norm":1.0,"lr":1.0,"seconds":1.0,"time":1.0}\n'


@pytest.mark.parametrize(
    ("metrics", "log", "phase", "sign"),
    [
        (None, None, "starting", ""),
        (None, "", "starting", ""),
        (PHASE % ("start", 1.7e9), "", "starting", "phase start"),
        (PHASE % ("start", 1.7e9) + PHASE % ("load", 1.8e9), "", "starting", "phase load"),
        (PHASE % ("start", 1.7e9), "compiling", "starting", "a line in its log (phase start)"),
        (PHASE % ("start", 1.7e9) + STEP, "", "running", ""),
        (None, "a program that reports nothing", "running", ""),
    ],
)
def test_a_first_start_says_for_how_long_and_the_last_sign_of_life(
    roots: list[Path],
    launch: dict[str, object],
    capsys: pytest.CaptureFixture[str],
    metrics: str | None,
    log: str | None,
    phase: str,
    sign: str,
) -> None:
    folder = run(roots[0], "a", launch, 1)
    start = folder / "attempts" / "0001" / "restart-0"
    start.mkdir(parents=True)
    codec.write(start.parent / "attempt.json", AttemptRecord(1, 1, 0, "node01", 1, ("node01",), 0.0))
    for name, text in (("metrics.jsonl", metrics), ("training.log", log)):
        if text is not None:
            (start / name).write_text(text)
    ledger.append(folder, "claimed", "claimed", attempt=1, data={"job_id": 1})
    began = ledger.append(folder, "restart_started", "restart 0", attempt=1, data={"restart": 0, "nodes": ["node01"]})
    Queue.jobs_known = {1: job(1, JobClass.RUNNING)}
    (found,) = status.survey().runs
    assert (found.phase, found.sign) == (phase, sign)
    assert found.started == (began.time if phase == "starting" else None)
    status_command("a")
    shown = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("phase"))
    assert ("starting for " in shown) == (phase == "starting")
    if phase == "starting":
        assert f"last sign of life: {sign or 'none yet'}" in shown
        assert not sign or " ago" in shown
        assert ("hung after 5m00s without a sign, not before" in shown) == bool(sign), "as the attempt has it"
    ledger.append(folder, "restart_ended", "failed", attempt=1, data={"restart": 0, "class": "gpu_oom"})
    assert status.survey().runs[0].phase == "running"


def test_a_later_start_is_starting_until_its_own_first_step(roots: list[Path], launch: dict[str, object]) -> None:
    folder = run(roots[0], "a", launch, 1)
    for index in (0, 1):
        start = folder / "attempts" / "0001" / f"restart-{index}"
        start.mkdir(parents=True)
        (start / "metrics.jsonl").write_text(PHASE % ("start", time.time()) + (STEP if index == 0 else ""))
        codec.write(start.parent / "attempt.json", AttemptRecord(1, 1, 0, "node01", 1, ("node01",), 0.0))
        ledger.append(folder, "claimed", "claimed", attempt=1, data={"job_id": 1})
        ledger.append(folder, "restart_started", "x", attempt=1, data={"restart": index, "nodes": ["node01"]})
    Queue.jobs_known = {1: job(1, JobClass.RUNNING)}
    (found,) = status.survey().runs
    assert (found.phase, found.step, found.sign) == ("starting", 1, "phase start")
    ledger.append(folder, "stop_requested", "stop asked for")
    assert status.survey().runs[0].phase == "stopping"


def test_a_job_is_starting_from_its_first_moment(
    roots: list[Path], launch: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(roots[0], "a", launch, 1)
    Queue.jobs_known = {1: job(1, JobClass.RUNNING)}
    start = folder / "attempts" / "0001" / "restart-0"

    def claimed() -> None:
        start.parent.mkdir(parents=True)
        codec.write(start.parent / "attempt.json", AttemptRecord(1, 1, 0, "node01", 1, ("node01",), 0.0))
        ledger.append(folder, "claimed", "claimed", attempt=1, data={"job_id": 1})

    for happens in (lambda: None, claimed, start.mkdir):
        happens()
        (found,) = status.survey().runs
        assert (found.phase, found.started) == ("starting", None)
        status_command("a")
        assert "phase                starting: its program was not started yet\n" in capsys.readouterr().out
    ledger.append(folder, "restart_started", "x", attempt=1, data={"restart": 0, "nodes": ["node01"]})
    assert status.survey().runs[0].started is not None
    (start / "metrics.jsonl").write_text(STEP)
    assert status.survey().runs[0].phase == "running"
    # The job of an earlier attempt has ended, and the next one has not come to its attempt yet.
    ledger.append(folder, "attempt_ended", "over", attempt=1, data={"action": "hand_over", "class": "time_limit"})
    ledger.append(folder, "submitted", "submitted job 2", data={"job_id": 2})
    Queue.jobs_known = {2: job(2, JobClass.RUNNING)}
    assert status.survey().runs[0].phase == "starting"


def test_the_last_event_is_none_of_an_attempt_that_has_the_run_no_more(
    roots: list[Path], launch: dict[str, object]
) -> None:
    folder = run(roots[0], "a", launch, 1)

    def says(kind: ledger.EventKind, message: str, attempt: int, **data: object) -> None:
        ledger.append(folder, kind, message, attempt=attempt, data=data)
        time.sleep(0.01)  # the clock orders these

    says("claimed", "job 1", 1, job_id=1)
    says("cancel_requested", "cancelled by command", 0)
    says("note", "late", 1)
    assert status.survey().runs[0].last_event == "cancelled by command; late", "it has the run still"
    says("resume_requested", "resume asked for", 0)
    says("submitted", "submitted job 2", 0, job_id=2)
    says("note", "later", 1)
    assert status.survey().runs[0].last_event == "submitted job 2"
    says("claimed", "job 2", 2, job_id=2)
    says("note", "latest", 1)
    assert status.survey().runs[0].last_event == "job 2"
    says("refused", "not mine", 3)
    assert status.survey().runs[0].last_event == "not mine"


def test_a_suspended_job_is_nothing_to_act_on(roots: list[Path], launch: dict[str, object]) -> None:
    folder = run(roots[0], "a", launch, 1)
    attempt = folder / "attempts" / "0001"
    attempt.mkdir(parents=True)
    codec.write(attempt / "attempt.json", AttemptRecord(1, 1, 0, "node01", 1, ("node01",), 0.0))
    ledger.append(folder, "claimed", "job 1", attempt=1, data={"job_id": 1})
    (attempt / "alive").touch()
    os.utime(attempt / "alive", (time.time() - 1260,) * 2)
    Queue.jobs_known = {1: Job(1, "a", StateMeaning("SUSPENDED", JobClass.RUNNING, alive=True), nodes=("node01",))}
    (warning,) = status.survey().runs[0].warnings
    assert warning.startswith("job 1 is suspended")
    assert "cancel" not in warning
