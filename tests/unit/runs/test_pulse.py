"""An attempt that says nothing any more, as others see it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pretrainctl.records import contract
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.runs.pulse import Pulse, tell_silence
from pretrainctl.slurm.states import read_state

JOB = Job(92, "a", StateMeaning("RUNNING", JobClass.RUNNING, alive=True))


@pytest.fixture
def alive(tmp_path: Path) -> Path:
    contract.attempt_dir(tmp_path, 2).mkdir(parents=True)
    return contract.attempt_dir(tmp_path, 2) / "alive"


def test_an_attempt_in_charge_is_heard_once_a_minute(tmp_path: Path, alive: Path) -> None:
    now = 0.0
    pulse = Pulse(tmp_path, 2, clock=lambda: now)
    touched = []
    for now in (0.0, 30.0, 61.0):  # noqa: B007 - the clock's
        alive.unlink(missing_ok=True)
        pulse.tick()
        touched.append(alive.exists())
    assert touched == [True, False, True]
    assert tell_silence(tmp_path, 2, "node01", JOB) == ""


def test_one_that_is_not_heard_for_long_is_told_with_what_to_do(tmp_path: Path, alive: Path) -> None:
    alive.touch()
    os.utime(alive, (time.time() - 1200,) * 2)
    told = tell_silence(tmp_path, 2, "node01", JOB)
    assert "nothing was heard of attempt 2 for 20m" in told
    assert "node01" in told
    assert f"`pretrainctl cancel {tmp_path.name}`, then `pretrainctl resume {tmp_path.name}`" in told


@pytest.mark.parametrize("silent", [0, 1200])
def test_a_suspended_job_is_told_as_such_and_nothing_is_to_be_done(tmp_path: Path, alive: Path, silent: int) -> None:
    alive.touch()
    os.utime(alive, (time.time() - silent,) * 2)
    told = tell_silence(tmp_path, 2, "node01", Job(92, "a", read_state("SUSPENDED")))
    assert told.startswith("job 92 is suspended")
    assert told.endswith("nothing is to be done")
    assert "cancel" not in told


def test_nothing_is_known_of_one_that_has_no_pulse_and_a_full_file_system_is_no_matter(tmp_path: Path) -> None:
    Pulse(tmp_path, 2).tick()
    assert tell_silence(tmp_path, 2, "node01", JOB) == ""
