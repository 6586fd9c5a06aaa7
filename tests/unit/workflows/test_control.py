"""Stop and resume where the run folder, or the person, gets in the way."""

from __future__ import annotations

import getpass
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.errors import RunError
from pretrainctl.records import codec, contract
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.launch import CheckpointLayout, RecoveryRule
from pretrainctl.records.run import RunRecord
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold
from pretrainctl.workflows import control, reach


class Queue:
    """Stands where the Slurm client stands: job 1 runs, job 2 waits."""

    def __init__(self) -> None:
        self.cancelled: list[int] = []
        self.waiting = True

    def queued(self, name: str) -> list[Job]:
        states = {1: JobClass.RUNNING, 2: JobClass.PENDING}
        if not self.waiting:
            return []
        return [Job(number, name, StateMeaning(kind.name, kind, alive=True)) for number, kind in states.items()]

    def cancel(self, ids: list[int]) -> None:
        self.cancelled += ids


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue()
    monkeypatch.setattr(control, "reach_own", lambda _run: made)
    return made


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "a"
    (folder / "control").mkdir(parents=True)
    codec.write(folder / "run.json", RunRecord("a", "a-1", "a-1", "sandbox", 0.0, getpass.getuser(), {}, {}, {}))
    (folder / "attempts" / "0001").mkdir(parents=True)
    ledger.append(folder, "claimed", "claimed", attempt=1, data={"job_id": 1})
    return folder


def test_a_stop_asks_the_ranks_and_cancels_what_waits(run: Path, queue: Queue) -> None:
    assert control.stop(str(run)).message == "will save at the next step and end"
    assert codec.read(contract.Request, contract.request_file(run)).action == "save_and_exit"
    assert queue.cancelled == [2]


def test_a_stop_whose_request_cannot_be_written_is_a_stop_all_the_same(run: Path, queue: Queue) -> None:
    contract.request_file(run).mkdir()
    said = control.stop(str(run)).message
    assert "the request cannot be written: Is a directory" in said
    assert "within half a minute" in said
    assert queue.cancelled == [2]
    assert ledger.read_events(run, 0)[-1].kind == "stop_requested"


def test_a_save_that_cannot_be_asked_for_is_not_recorded(run: Path, queue: Queue) -> None:
    contract.request_file(run).mkdir()
    with pytest.raises(IsADirectoryError):
        control.save(str(run))
    assert ledger.read_events(run, 0) == []
    assert queue.cancelled == []


@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit(143)])
def test_a_resume_that_is_interrupted_leaves_a_stopped_run(
    run: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise end

    queue.waiting = False
    directory = run / "checkpoints"
    layout = CheckpointLayout("deepspeed", directory, 1, "bf16", 1)
    launch = SimpleNamespace(run_id="a-1", checkpoint=layout, recovery=RecoveryRule())
    monkeypatch.setattr(RunFolder, "launch", lambda _: launch)
    monkeypatch.setattr(RunFolder, "refuse_if_moved", lambda _: None)
    monkeypatch.setattr(control, "refuse_missing_program", lambda *_: None)
    monkeypatch.setattr(control, "queue_jobs", interrupted)
    for _ in range(2):
        with pytest.raises(type(end)):
            control.resume(str(run))
        assert fold(ledger.read_events(run)).stopped == "the resume was interrupted"
    monkeypatch.setattr(control, "queue_jobs", lambda *_: ((3,), ()))
    assert control.resume(str(run)).job_ids == (3,), "and no other resume seems to be at work"


@pytest.mark.parametrize("end", [control.stop, control.cancel])
def test_a_stop_while_a_launch_has_not_submitted_holds_when_it_does(
    run: Path, queue: Queue, end: Callable[[str], object]
) -> None:
    shutil.rmtree(run / "attempts")
    queue.waiting = False
    ledger.append(run, "made", "the run folder was made, and nothing was submitted")
    for _ in range(2):
        end(str(run))
    assert len(ledger.read_events(run)) == 2
    ledger.append(run, "submitting", "the launch submits the first job")
    assert fold(ledger.read_events(run)).stopped is not None


def test_a_finished_run_says_how_to_train_further(run: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = SimpleNamespace(checkpoint=CheckpointLayout("deepspeed", run / "checkpoints", 1, "bf16", 1))
    monkeypatch.setattr(RunFolder, "launch", lambda _: launch)
    ledger.append(run, "finished", "the target was reached")
    with pytest.raises(RunError, match="is finished: the target was reached") as caught:
        control.resume(str(run))
    assert f"checkpoint.directory={run}/checkpoints" in caught.value.hint
    assert "checkpoint.adopt=true" in caught.value.hint
    with pytest.raises(RunError) as caught:
        control.stop(str(run))
    assert caught.value.hint == ""
    assert queue.cancelled == []


ACTS = {
    "stop": control.stop,
    "save": control.save,
    "cancel": control.cancel,
    "resume": control.resume,
    "reach": lambda name: reach.reach_own(RunFolder(Path(name))),  # `reconcile`, and what nodes tell waiting jobs
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("moved", [False, True])
def test_nothing_is_done_to_a_run_from_a_copy_of_its_folder(run: Path, queue: Queue, act: str, *, moved: bool) -> None:
    (run / "bundle").mkdir()
    (run / "bundle" / "job.sbatch").write_text(f"#!/bin/bash\nexec python -m pretrainctl attempt {run}\n")
    copy = run.parent / "b"
    shutil.copytree(run, copy)
    if moved:
        shutil.rmtree(run)
    with pytest.raises(RunError, match=str(run)) as told:
        ACTS[act](str(copy))
    assert ("is a copy" in str(told.value)) != moved
    assert queue.cancelled == []
    assert ledger.read_events(copy, 0) == []
    assert not contract.request_file(copy).exists()


def test_a_run_may_be_told_by_a_link_to_its_folder(run: Path, queue: Queue) -> None:
    (run / "bundle").mkdir()
    (run / "bundle" / "job.sbatch").write_text(f"#!/bin/bash\nexec python -m pretrainctl attempt {run}\n")
    (run.parent / "b").symlink_to(run)
    control.stop(str(run.parent / "b"))
    assert queue.cancelled == [2]
