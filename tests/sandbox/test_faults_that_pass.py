"""Faults that pass by themselves: the run waits them out, and says what it waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from pretrainctl.sandbox import Sandbox
from tests.sandbox.test_slurm_away import start_controller
from tests.sandbox.training_runs import Site, TrainingRun, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")


@contextmanager
def unwritable(path: Path) -> Iterator[None]:
    """Nothing can be made or renamed in a folder, nor a file written, by root neither."""
    subprocess.run(["chattr", "+i", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)


@contextmanager
def no_launch_record(run: TrainingRun, _sandbox: Sandbox) -> Iterator[None]:
    record = run.folder / "bundle" / "launch.json"
    aside = record.rename(record.with_suffix(".aside"))
    yield
    aside.rename(record)


@contextmanager
def no_room_for_the_claim(run: TrainingRun, _sandbox: Sandbox) -> Iterator[None]:
    with unwritable(run.folder / "attempts"):
        yield


@contextmanager
def no_room_for_the_fence(run: TrainingRun, _sandbox: Sandbox) -> Iterator[None]:
    with unwritable(run.folder / "control"):
        yield


@contextmanager
def no_controller(_run: TrainingRun, sandbox: Sandbox) -> Iterator[None]:
    pid = sandbox.status().daemons["slurmctld"]
    assert pid is not None
    os.kill(pid, signal.SIGTERM)  # it saves what it knows: after a SIGKILL it would start the job once more
    yield
    start_controller(sandbox)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (no_launch_record, "waiting for launch.json"),
        (no_room_for_the_claim, "waiting for a place for this attempt"),
        (no_room_for_the_fence, "waiting for the fence"),
        (no_controller, "no chained job: "),
    ],
)
def test_what_is_away_at_the_start_of_an_attempt_is_waited_for(
    site: Site,
    sandbox: Sandbox,
    fault: Callable[[TrainingRun, Sandbox], AbstractContextManager[None]],
    said: str,
) -> None:
    run = site.launch(fault.__name__.replace("_", "-"), steps=60, sets=["checkpoint.every_steps=10"])
    run.wait_for_step(12)
    first, second = run.jobs()
    site.slurm("scancel", "--batch", "--signal=USR1", str(min(first, second)))
    log = run.folder / "attempts" / f"slurm-{max(first, second)}.out"
    wait_until(log.exists, 60, "the chained job to start", pause=0.01)
    with fault(run, sandbox):
        wait_until(lambda: said in log.read_text(), 60, f"{said!r} in the job's log: {log.read_text()}")
        time.sleep(10)
    run.wait_for_finish()
    assert not run.events("refused"), run.story()
    assert {event.attempt for event in run.events("claimed")} == {1, 2}, run.story()
    assert len(run.events("chained")) == 2, run.story()
    wait_until(lambda: not run.jobs(), 30, "the queue to be empty")


def test_a_checkpoint_folder_that_cannot_be_written_for_a_while_stops_nothing(site: Site) -> None:
    run = site.launch("no-write", steps=60, sets=["checkpoint.every_steps=10"])
    run.wait_for_step(12)
    with unwritable(run.folder / "checkpoints"):
        ended = run.wait_for("restart_ended", 60)
        assert ended.data["class"] == "filesystem", run.story()
        assert "could not be written" in ended.message
        time.sleep(15)
    run.wait_for_finish()
    assert run.events("decided")[0].message.endswith("after a pause of 30 s")
