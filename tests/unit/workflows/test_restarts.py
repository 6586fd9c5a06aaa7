"""An attempt whose job Slurm has ended, or that another one has followed, starts nothing more."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.errors import SupersededError
from pretrainctl.records import contract
from pretrainctl.records.job import Job
from pretrainctl.records.run import Action
from pretrainctl.runs.fence import raise_fence
from pretrainctl.slurm.states import read_state
from pretrainctl.workflows.attempt import restarts
from pretrainctl.workflows.attempt.restarts import train
from pretrainctl.workflows.attempt.signals import Signals


class Attempt:
    """Attempt 1 of a run, with a stand-in for Slurm that shows its job in a state, or knows no such job."""

    def __init__(self, folder: Path, state: str) -> None:
        contract.control_dir(folder).mkdir()
        raise_fence(folder, 1, 0)
        self.number, self.run = 1, SimpleNamespace(path=folder)
        self.record = SimpleNamespace(job_id=7)
        self.signals = Signals()
        self.slurm = SimpleNamespace(jobs=lambda ids: {7: Job(7, "a", read_state(state))} if state else {})
        self.launch = SimpleNamespace(
            srun=SimpleNamespace(nodes=2), checkpoint=SimpleNamespace(directory=folder / "checkpoints")
        )


WATCH = SimpleNamespace(poll=lambda _seconds: None)
NODES = SimpleNamespace(usable=lambda: ("n1", "n2"))


@pytest.mark.parametrize("state", ["CANCELLED by 0", "COMPLETING", "TIMEOUT", "NODE_FAIL"])
def test_a_job_that_slurm_has_ended_is_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setattr(restarts, "gate", lambda *_: pytest.fail("the checkpoints are no longer ours"))
    decision, kind = train(Attempt(tmp_path, state), WATCH, None, NODES)  # type: ignore[arg-type]
    assert (decision.action, kind) == (Action.HAND_OVER, "node_failure")
    assert decision.reason == f"Slurm has ended job 7 of this attempt: {state}"


@pytest.mark.parametrize("state", ["RUNNING", ""])
def test_the_checkpoints_of_a_newer_attempt_are_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(restarts, "gate", lambda *_: pytest.fail("the checkpoints are no longer ours"))
    attempt = Attempt(tmp_path, state)
    raise_fence(tmp_path, 2, 0)
    with pytest.raises(SupersededError, match="attempt 2 has the run"):
        train(attempt, WATCH, None, NODES)  # type: ignore[arg-type]
