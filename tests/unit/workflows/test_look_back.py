"""The look back at an attempt that is over, by its folder and Slurm's word."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from pretrainctl.errors import CheckpointError
from pretrainctl.frameworks.checkpoint_gate import check
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import End
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.run import Action, AttemptRecord, RunRecord
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows.look_back import expected_checkpoint, look_back

NODES = ["node01", "node02"]
CASCADE = "0: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:22448"


class Slurm:
    """Says that the attempt's job ran to the end of its script."""

    def jobs(self, ids: list[int]) -> dict[int, Job]:
        return {number: Job(number, "a-1", StateMeaning("COMPLETED", JobClass.FINISHED, alive=False)) for number in ids}


@pytest.fixture
def run(tmp_path: Path, pytestconfig: pytest.Config) -> RunFolder:
    """One attempt with one restart, in which rank 0 saw its peer go."""
    golden = pytestconfig.rootpath / "tests" / "golden" / "quickstart-on-sandbox" / "launch.json"
    (tmp_path / "bundle").mkdir()
    codec.write(tmp_path / "run.json", RunRecord("a", "a", "a-1", "sandbox", 0.0, "u", {}, {}, {}))
    (tmp_path / "bundle" / "launch.json").write_text(golden.read_text())
    folder = contract.restart_dir(tmp_path, 1, 0)
    folder.mkdir(parents=True)
    codec.write(folder.parent / "attempt.json", AttemptRecord(1, 7, 0, "node01", 1, tuple(NODES), 0.0))
    (folder / "training.log").write_text(f"{CASCADE}\n")
    failure = {"rank": 0, "node": "node01", "status": 1, "time": 1.0}
    (folder / "failure.json").write_text(json.dumps(failure))
    for kind, data in (("claimed", {"job_id": 7}), ("restart_started", {"restart": 0, "nodes": NODES})):
        ledger.append(tmp_path, kind, kind, attempt=1, data=data)  # type: ignore[arg-type]
    return RunFolder(tmp_path)


@pytest.mark.parametrize(("dead", "expected"), [("node02", "node_failure"), ("node03", "application_error")])
def test_a_node_that_the_attempt_noticed_dead_is_why_it_ended_if_it_trained(
    run: RunFolder, dead: str, expected: str
) -> None:
    ledger.append(run.path, "node_dead", "dead", attempt=1, data={"node": dead, "how": "closed"})
    past = look_back(run, Slurm())  # type: ignore[arg-type]
    assert past is not None
    assert past.diagnosis.failure_class == expected, past.diagnosis


@pytest.mark.parametrize("back", ["told", "wrote late", None])
def test_a_user_s_cancel_after_a_batch_host_was_lost_by_mistake_is_a_stop(run: RunFolder, back: str | None) -> None:
    class Cancelled:
        def jobs(self, ids: list[int]) -> dict[int, Job]:
            gone = StateMeaning("CANCELLED by 1000", JobClass.USER_CANCEL, alive=False)
            return {number: Job(number, "a-1", gone) for number in ids}

    contract.restart_dir(run.path, 1, 0).joinpath("failure.json").unlink()
    lost = {"attempt": 1, "job_id": 7, "node": "node01", "how": "silent"}
    event = ledger.append(run.path, "batch_host_lost", "lost", data=lost)
    if back == "told":
        ledger.append(run.path, "batch_host_back", "back", data={"attempt": 1})
    late = ledger.append(run.path, "note", "trains on", attempt=1)
    if back == "wrote late":
        file = next((run.path / "attempts" / "0001" / "events").glob(f"{late.sequence:06d}.json"))
        codec.write(file, dataclasses.replace(late, time=event.time + 700.0))
    past = look_back(run, Cancelled())  # type: ignore[arg-type]
    assert past is not None
    assert past.diagnosis.failure_class == ("node_failure" if back is None else "user_cancel")
    assert (past.stop is None) == (back is None)


def test_a_job_that_slurm_began_anew_is_not_asked_for_its_end(run: RunFolder) -> None:
    class Asked:
        def jobs(self, _ids: list[int]) -> dict[int, Job]:
            raise AssertionError("the job runs: its end would be waited for in vain")

    (run.path / "attempts" / "0001" / "restart-0" / "failure.json").unlink()
    (run.path / "attempts" / "0002").mkdir()
    record = AttemptRecord(2, 7, 1, "node01", 1, tuple(NODES), 1.0)
    codec.write(run.path / "attempts" / "0002" / "attempt.json", record)
    past = look_back(run, Asked(), before=2)  # type: ignore[arg-type]
    assert past is not None
    assert (past.attempt, past.diagnosis.failure_class, past.stop) == (1, "preempted", None)


def test_a_program_that_reached_less_than_the_launch_asks_for_stops_the_run(run: RunFolder) -> None:
    folder = contract.restart_dir(run.path, 1, 0)
    codec.write(folder / "end.json", End("reached", 5, 2560, None, "", 1.0))
    past = look_back(run, Slurm())  # type: ignore[arg-type]
    assert past is not None
    assert past.stop is not None
    assert (past.diagnosis.failure_class, past.stop.action) == ("config", Action.STOP)
    assert "step 5" in past.stop.reason
    assert f"step {run.launch().target_steps}" in past.stop.reason


def test_a_save_that_only_the_end_record_tells_of_is_missed(run: RunFolder, tmp_path: Path) -> None:
    assert expected_checkpoint(run) == {"expected": False, "last_saved_step": None, "claimed": None, "refused": {}}
    end = contract.restart_dir(run.path, 1, 0) / "end.json"
    codec.write(end, End("checkpointed", 5, 2560, "global_step5", "stop", 1.0))
    wanted = expected_checkpoint(run)
    assert wanted == {"expected": True, "last_saved_step": 5, "claimed": "global_step5", "refused": {}}
    layout = dataclasses.replace(run.launch().checkpoint, directory=tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"says that global_step5 was saved, which is not there.*no tag at all"):
        check(layout.directory, layout, **wanted)
    codec.write(end, End("checkpointed", 6, 3072, None, "stop", 1.0))
    assert not expected_checkpoint(run)["expected"], "it names no save of this start"
