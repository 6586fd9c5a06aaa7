"""Which checkpoint directory a new run may have, and what a refused launch leaves behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.errors import CheckpointError, SlurmError, UnreadableError
from pretrainctl.frameworks.checkpoint_owner import own, read_owner
from pretrainctl.records import codec
from pretrainctl.records.launch import CheckpointLayout, SrunShape
from pretrainctl.records.run import RunRecord
from pretrainctl.runs import ledger
from pretrainctl.slurm.parse import Submission
from pretrainctl.workflows import launch as launching
from pretrainctl.workflows.attempt.restarts import open_gate
from pretrainctl.workflows.take_checkpoints import refuse_taken
from tests.unit.records.test_token_index import write_tokens


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The folder of another run, whose checkpoints lie in `ckpt`."""
    folder = tmp_path / "runs" / "other"
    (folder / "events").mkdir(parents=True)
    codec.write(folder / "run.json", RunRecord("other", "other-1", "other-1", "sandbox", 0.0, "u", {}, {}, {}))
    own(tmp_path / "ckpt", "other-1", folder)
    (tmp_path / "ckpt" / "global_step10").mkdir()
    return folder


def test_a_new_or_empty_directory_is_free(tmp_path: Path) -> None:
    assert refuse_taken(tmp_path / "none", adopt=False) is None
    assert refuse_taken(tmp_path, adopt=False) is None
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_of_nobody_are_taken_only_on_purpose(tmp_path: Path) -> None:
    (tmp_path / "global_step10").mkdir()
    with pytest.raises(CheckpointError, match="holds checkpoints already, the newest global_step10") as caught:
        refuse_taken(tmp_path, adopt=False)
    assert "checkpoint.adopt=true" in caught.value.hint
    assert refuse_taken(tmp_path, adopt=True) is None


@pytest.mark.parametrize("adopt", [False, True])
def test_those_of_a_run_that_goes_on_are_never_taken(tmp_path: Path, other: Path, adopt: bool) -> None:
    ledger.append(other, "submitted", "submitted job 1", data={"job_id": 1})
    with pytest.raises(CheckpointError, match=f"belong to another run: {other}") as caught:
        refuse_taken(tmp_path / "ckpt", adopt=adopt)
    assert "name another checkpoint.directory" in caught.value.hint


def test_a_stopped_run_whose_attempt_has_not_ended_still_has_them(tmp_path: Path, other: Path) -> None:
    (other / "attempts" / "0001").mkdir(parents=True)
    ledger.append(other, "claimed", "claimed", attempt=1, data={"job_id": 1})
    ledger.append(other, "stop_requested", "stop asked for")
    with pytest.raises(CheckpointError, match="belong to another run"):
        refuse_taken(tmp_path / "ckpt", adopt=True)
    ledger.append(other, "attempt_ended", "stopped", attempt=1, data={"action": "stop"})
    assert refuse_taken(tmp_path / "ckpt", adopt=True) == read_owner(tmp_path / "ckpt")


@pytest.mark.parametrize("end", ["finished", "gone"])
def test_those_of_a_run_that_is_over_are_taken_on_purpose(tmp_path: Path, other: Path, end: str) -> None:
    if end == "gone":
        shutil.rmtree(other)
    else:
        ledger.append(other, "finished", "the target was reached")
    with pytest.raises(CheckpointError, match="which is over") as caught:
        refuse_taken(tmp_path / "ckpt", adopt=False)
    assert "checkpoint.adopt=true" in caught.value.hint
    assert refuse_taken(tmp_path / "ckpt", adopt=True).run_id == "other-1"


def test_a_ledger_that_cannot_be_read_proves_nothing(tmp_path: Path, other: Path) -> None:
    (other / "events" / "000001.json").write_text("")
    with pytest.raises(CheckpointError, match="belong to another run"):
        refuse_taken(tmp_path / "ckpt", adopt=True)


# --- launch ---


class Queue:
    """Stands where the Slurm client stands: gives job numbers, or raises what it is told to."""

    def __init__(self) -> None:
        self.number = 0
        self.error: BaseException | None = None

    def cluster_name(self) -> str:
        return "test"

    def submit(self, *_: object, **__: object) -> Submission:
        if self.error is not None:
            raise self.error
        self.number += 1
        return Submission(self.number)


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue()
    monkeypatch.chdir(tmp_path)
    write_tokens(tmp_path / "data" / "quickstart", 1000)
    monkeypatch.setattr(launching, "_slurm_for", lambda _plan: ("", made))
    return made


def launch(name: str, *settings: str) -> Path:
    sets = ["checkpoint.directory=" + str(Path("ckpt").absolute()), *settings]
    made = launching.launch("quickstart", "sandbox", set_values=sets, name=name, confirm=lambda *_: True)
    assert made is not None
    return made.run.path


def test_the_second_launch_into_one_directory_is_refused_and_leaves_nothing(tmp_path: Path, queue: Queue) -> None:
    first = launch("first")
    with pytest.raises(CheckpointError, match=f"belong to another run: {first}"):
        launch("second")
    assert queue.number == 1
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["first"]
    assert read_owner(tmp_path / "ckpt").run_dir == first


def test_a_refused_launch_gives_the_directory_back(tmp_path: Path, queue: Queue) -> None:
    queue.error = SlurmError("Slurm refused the job: no", status=1)
    with pytest.raises(SlurmError):
        launch("first")
    assert read_owner(tmp_path / "ckpt") is None
    assert not (tmp_path / "runs").exists()
    queue.error = None
    finished = launch("second")
    ledger.append(finished, "finished", "the target was reached")
    queue.error = SlurmError("Slurm refused the job: no", status=1)
    with pytest.raises(SlurmError):
        launch("third", "checkpoint.adopt=true")
    assert read_owner(tmp_path / "ckpt").run_dir == finished
    queue.error = None
    assert read_owner(tmp_path / "ckpt").run_dir != launch("third", "checkpoint.adopt=true")


@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interrupted_launch_is_a_stopped_run(tmp_path: Path, queue: Queue, end: BaseException) -> None:
    queue.error = end
    with pytest.raises(type(end)):
        launch("first")
    events = ledger.read_events(tmp_path / "runs" / "first")
    assert [event.kind for event in events] == ["made", "submitting", "stopped"]


# --- the attempt ---


def attempt_of(folder: Path, checkpoints: Path) -> SimpleNamespace:
    launch = SimpleNamespace(
        run_id="mine", checkpoint=CheckpointLayout("deepspeed", checkpoints, 1, "bf16", 2), srun=SrunShape(2, 1, 1)
    )
    run = SimpleNamespace(path=folder, restart_dirs=list)
    return SimpleNamespace(run=run, launch=launch, number=1, event=lambda *_: None)


def test_no_start_resumes_from_what_another_run_owns(tmp_path: Path, other: Path) -> None:
    with pytest.raises(CheckpointError, match="belong to another run"):
        open_gate(attempt_of(tmp_path / "runs" / "mine", tmp_path / "ckpt"), 0)
    assert (tmp_path / "ckpt" / "global_step10").is_dir(), "nor does it set anything of it aside"


def test_a_start_takes_a_directory_that_nobody_took(tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    assert open_gate(attempt_of(tmp_path / "mine", tmp_path / "ckpt"), 0) is None
    assert read_owner(tmp_path / "ckpt").run_id == "mine"
    with pytest.raises(UnreadableError):
        open_gate(attempt_of(tmp_path / "mine", tmp_path / "not mounted" / "ckpt"), 0)
    assert not (tmp_path / "not mounted").exists()
