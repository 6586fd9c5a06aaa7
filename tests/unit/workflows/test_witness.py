"""A job without its batch host is ended though Slurm does not take the first cancel, and told once."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.errors import SlurmError
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import Failure, Request
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.launch import LivenessRule
from pretrainctl.records.run import AttemptRecord
from pretrainctl.records.sample import Sample
from pretrainctl.runs import ledger
from pretrainctl.runs.state import fold
from pretrainctl.workflows.attempt import witness as module
from pretrainctl.workflows.attempt.witness import end_headless_job
from pretrainctl.workflows.exclusions import list_of


class Slurm:
    """Refuses the first cancel."""

    def __init__(self) -> None:
        self.cancelled: list[int] = []
        self.away = True

    def jobs(self, ids: list[int]) -> dict[int, Job]:
        return {number: Job(number, "run", StateMeaning("RUNNING", JobClass.RUNNING, alive=True)) for number in ids}

    def queued(self, _name: str) -> list[Job]:
        return []

    def cancel(self, ids: list[int]) -> None:
        if self.away:
            self.away = False
            raise SlurmError("unable to contact slurm controller")
        self.cancelled += ids


def identity(folder: Path) -> SimpleNamespace:
    """What `run.json` says of the run and its cluster."""
    names = {"name": "run", "job_name": "run", "cluster": "leonardo", "slurm_cluster": "boost"}
    return SimpleNamespace(**names, node_list=str(folder / "nodes"))


def stand_in(monkeypatch: pytest.MonkeyPatch, folder: Path, record: AttemptRecord, slurm: Slurm) -> None:
    """Let the witness find a run with this one attempt, and ask this Slurm."""
    run = SimpleNamespace(
        path=folder,
        record=identity(folder),
        launch=lambda: SimpleNamespace(liveness=LivenessRule(silent_after=4.0)),
        attempts=lambda: [record],
    )
    monkeypatch.setattr(module, "RunFolder", lambda _path: run)
    monkeypatch.setattr(module, "Slurm", lambda: slurm)


def test_a_cancel_that_failed_is_given_again_and_the_event_is_written_once(tmp_path: Path) -> None:
    (tmp_path / "attempts" / "0001").mkdir(parents=True)
    ledger.append(tmp_path, "claimed", "claimed", attempt=1, data={"job_id": 7})
    run = SimpleNamespace(path=tmp_path, record=identity(tmp_path))
    record, slurm = AttemptRecord(1, 7, 0, "node01", 1, ("node01", "node02"), 0.0), Slurm()
    with pytest.raises(SlurmError):
        end_headless_job(run, record, slurm, "closed")
    assert end_headless_job(run, record, slurm, "closed")
    assert slurm.cancelled == [7]
    assert [event.kind for event in ledger.read_events(tmp_path, 0)] == ["batch_host_lost"]
    (entry,) = list_of(run).read()[0].values()
    assert (entry.node, entry.cause, entry.job_id) == ("node01", "node_failure", 7)
    assert not end_headless_job(run, record, slurm, "closed", is_there=lambda: True)
    assert slurm.cancelled == [7]


def test_the_last_try_before_the_cancel_is_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "attempts" / "0001").mkdir(parents=True)
    ledger.append(tmp_path, "claimed", "claimed", attempt=1, data={"job_id": 7})
    record, slurm, tries = AttemptRecord(1, 7, 0, "node01", 1, ("node01", "node02"), 0.0), Slurm(), []
    slurm.away = False
    stand_in(monkeypatch, tmp_path, record, slurm)
    monkeypatch.setattr(module, "ask", lambda *_where, timeout: tries.append(timeout) or "silent")
    monkeypatch.setenv("SLURMD_NODENAME", "node02")
    module.witness(tmp_path, 1, "localhost", 1, "silent", turn=0)
    assert slurm.cancelled == [7]
    assert tries == [2.0, 1.0]


@pytest.mark.parametrize("refused", [True, False], ids=["slurm refused the cancel", "slurm took it"])
def test_a_host_that_is_back_after_a_cancel_that_failed_was_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    class Deaf(Slurm):
        """Takes a cancel, and says that it did not."""

        def jobs(self, ids: list[int]) -> dict[int, Job]:
            return {} if not (self.away or refused) else super().jobs(ids)

    (tmp_path / "attempts" / "0001").mkdir(parents=True)
    ledger.append(tmp_path, "claimed", "claimed", attempt=1, data={"job_id": 7})
    record, slurm, answers = AttemptRecord(1, 7, 0, "node01", 1, ("node01", "node02"), 0.0), Deaf(), ["silent"] * 2
    stand_in(monkeypatch, tmp_path, record, slurm)
    monkeypatch.setattr(module, "ask", lambda *_where, timeout: answers.pop() if answers else None)
    module.witness(tmp_path, 1, "localhost", 1, "silent", turn=0)
    assert slurm.cancelled == []
    kinds = [event.kind for event in ledger.read_events(tmp_path, 0)]
    assert kinds == ["batch_host_lost", "batch_host_back"][: 1 + refused]
    (attempt,) = fold(ledger.read_events(tmp_path)).attempts
    assert attempt.lost_host == ({} if refused else {"node01": "silent"})


@pytest.mark.parametrize("told", [False, True], ids=["nobody told slurm", "slurm was told late"])
def test_an_attempt_that_ended_on_a_host_that_cannot_say_so_is_ended_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    class Late(Slurm):
        asked = 0

        def jobs(self, ids: list[int]) -> dict[int, Job]:
            self.asked += 1
            return {} if told and self.asked > 3 else super().jobs(ids)

    (tmp_path / "attempts" / "0001").mkdir(parents=True)
    ledger.append(tmp_path, "claimed", "claimed", attempt=1, data={"job_id": 7})
    ledger.append(tmp_path, "attempt_ended", "told to end", attempt=1, data={"action": "hand_over", "class": "unknown"})
    record, slurm = AttemptRecord(1, 7, 0, "node01", 1, ("node01", "node02"), 0.0), Late()
    slurm.away = False
    stand_in(monkeypatch, tmp_path, record, slurm)
    monkeypatch.setattr(module, "ask", lambda *_where, timeout: "closed")
    monkeypatch.setattr(module, "_END_IS_TOLD", 0.5)
    begun = time.monotonic()
    module.witness(tmp_path, 1, "localhost", 1, "closed", turn=0)
    assert slurm.cancelled == ([] if told else [7])
    assert [event.kind for event in ledger.read_events(tmp_path, 0)] == ([] if told else ["batch_host_lost"])
    assert told or time.monotonic() - begun > 0.5


@pytest.mark.parametrize("failed", [False, True], ids=["no step", "a rank failed"])
def test_ranks_that_cannot_save_are_not_waited_for(tmp_path: Path, *, failed: bool) -> None:
    folder = contract.restart_dir(tmp_path, 1, 0)
    folder.mkdir(parents=True)
    (tmp_path / "control").mkdir()
    ledger.append(tmp_path, "claimed", "claimed", attempt=1, data={"job_id": 7})
    data = {"restart": 0, "nodes": ["node02", "node03"]}
    ledger.append(tmp_path, "restart_started", "started", attempt=1, data=data)
    if failed:
        codec.write(folder / "failure.json", Failure(rank=1, node="node03", status=1, time=0.0))
        (folder / "metrics.jsonl").write_text(json.dumps(vars(Sample(1, 512, 2.0, 1.0, 1e-3, 0.1, 0.0))) + "\n")
    run = SimpleNamespace(path=tmp_path, record=identity(tmp_path), restarts=lambda _attempt: [0])
    slurm = Slurm()
    slurm.away = False
    record = AttemptRecord(1, 7, 0, "node01", 1, ("node01", "node02", "node03"), 0.0)
    begun = time.monotonic()
    assert end_headless_job(run, record, slurm, "silent")
    assert slurm.cancelled == [7]
    assert time.monotonic() - begun < 60
    assert codec.read(Request, contract.request_file(tmp_path)).reason == "batch_host_lost"


def test_ranks_of_a_host_that_is_back_are_not_asked_to_leave(tmp_path: Path) -> None:
    contract.restart_dir(tmp_path, 1, 0).mkdir(parents=True)
    ledger.append(tmp_path, "claimed", "claimed", attempt=1, data={"job_id": 7})
    data = {"restart": 0, "nodes": ["node02", "node03"]}
    ledger.append(tmp_path, "restart_started", "started", attempt=1, data=data)
    run, slurm = SimpleNamespace(path=tmp_path, record=identity(tmp_path), restarts=lambda _attempt: [0]), Slurm()
    record = AttemptRecord(1, 7, 0, "node01", 1, ("node01", "node02", "node03"), 0.0)
    assert not end_headless_job(run, record, slurm, "silent", is_there=lambda: True)
    assert not contract.request_file(tmp_path).exists()
    assert ledger.read_events(tmp_path, 0) == []
