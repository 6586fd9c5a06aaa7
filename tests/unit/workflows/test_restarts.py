"""An attempt whose job Slurm has ended, or that another one has followed, starts nothing more."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.errors import SupersededError
from pretrainctl.records import contract
from pretrainctl.records.job import Job
from pretrainctl.records.run import Action, Diagnosis
from pretrainctl.runs import ledger
from pretrainctl.runs.fence import raise_fence
from pretrainctl.slurm.states import read_state
from pretrainctl.workflows.attempt import restarts
from pretrainctl.workflows.attempt.patience import Patience
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


def test_a_pause_hears_that_people_stopped_the_run_whatever_became_of_its_fence(tmp_path: Path) -> None:
    attempt, patience = Attempt(tmp_path, "RUNNING"), Patience(Signals(), clock=lambda: 0.0)
    patience.pause = lambda _seconds: True  # type: ignore[method-assign]
    watch, crash = SimpleNamespace(note_dead=tuple), Diagnosis("application_error", "it failed")
    contract.fence_file(tmp_path).write_text("")
    assert restarts._wait(attempt, watch, patience, crash, 60.0) is None  # type: ignore[arg-type]
    ledger.append(tmp_path, "stop_requested", "stop asked for")
    decision = restarts._wait(attempt, watch, patience, crash, 60.0)  # type: ignore[arg-type]
    assert decision is not None
    assert decision.action is Action.STOP
