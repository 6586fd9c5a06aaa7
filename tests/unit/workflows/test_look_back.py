"""What the attempt that goes on asks Slurm about the one before it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.launch import RecoveryRule
from pretrainctl.records.run import AttemptRecord
from pretrainctl.runs import ledger
from pretrainctl.workflows.look_back import look_back


class Slurm:
    """Knows jobs that run, and ones that a node's failure ended."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def jobs(self, ids: list[int]) -> dict[int, Job]:
        self.asked += ids
        ended = StateMeaning("NODE_FAIL", JobClass.NODE_FAILURE, alive=False)
        return {number: Job(number, "run", ended) for number in ids}


def run(path: Path, *jobs: int) -> SimpleNamespace:
    records = [AttemptRecord(n, job, 0, "node01", 1, ("node01",), 0.0) for n, job in enumerate(jobs, 1)]
    for record in records:
        (path / "attempts" / f"{record.attempt:04d}").mkdir(parents=True)
        ledger.append(path, "claimed", "claimed", attempt=record.attempt, data={"job_id": record.job_id})
    return SimpleNamespace(
        path=path,
        attempts=lambda: records,
        restarts=lambda _attempt: [],
        launch=lambda: SimpleNamespace(recovery=RecoveryRule()),
    )


def test_slurm_is_asked_how_the_job_before_ended(tmp_path: Path) -> None:
    slurm = Slurm()
    past = look_back(run(tmp_path, 7, 8), slurm, before=2)
    assert slurm.asked == [7]
    assert past is not None
    assert past.diagnosis.failure_class == "node_failure"


def test_a_job_that_slurm_requeued_is_not_asked_about_itself(tmp_path: Path) -> None:
    # It runs: its end would be waited for in vain.
    slurm = Slurm()
    past = look_back(run(tmp_path, 7, 7), slurm, before=2)
    assert slurm.asked == []
    assert past is not None
    assert past.stop is None
