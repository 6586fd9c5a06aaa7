"""Faults that pass by themselves: the run waits them out, and says what it waits for."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from pretrainctl.sandbox import Sandbox
from tests.sandbox.test_slurm_away import start_controller
from tests.sandbox.training_runs import Site, TrainingRun, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")


@contextmanager
def unwritable(path: Path) -> Iterator[None]:
    """Nothing can be made, renamed or removed in a folder; root minds no mode, but an attribute."""
    if os.geteuid() == 0:
        forbid, allow = ["chattr", "+i", str(path)], ["chattr", "-i", str(path)]
    else:
        forbid, allow = ["chmod", "555", str(path)], ["chmod", "755", str(path)]
    subprocess.run(forbid, check=True)
    try:
        yield
    finally:
        subprocess.run(allow, check=True)


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


def hand_over(site: Site, name: str) -> tuple[TrainingRun, Path]:
    """A run whose first job has just handed over: the log is that of the chained job, which has just begun."""
    run = site.launch(name, steps=60, sets=["checkpoint.every_steps=10"])
    run.wait_for_step(12)
    first, second = sorted(run.jobs())
    site.slurm("scancel", "--batch", "--signal=USR1", str(first))
    log = run.folder / "attempts" / f"slurm-{second}.out"
    wait_until(log.exists, 60, "the chained job to start", pause=0.01)
    return run, log


def assert_went_on(run: TrainingRun) -> None:
    """In the chained job itself: nothing was lost, nothing was done twice."""
    run.wait_for_finish()
    assert not run.events("refused"), run.story()
    assert [event.attempt for event in run.events("claimed")] == [1, 2], run.story()
    assert len(run.events("chained")) == 2, run.story()
    run.wait_for_an_empty_queue()


SAME_PATIENCE = pytest.mark.every_stage("the same patience")
SLOW_SBATCH = pytest.mark.every_stage("sbatch itself waits two minutes for a controller")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (no_room_for_the_claim, "waiting for a place for this attempt"),
        pytest.param(no_launch_record, "waiting for launch.json", marks=SAME_PATIENCE),
        pytest.param(no_room_for_the_fence, "waiting for the fence", marks=SAME_PATIENCE),
        pytest.param(no_controller, "no chained job: ", marks=SLOW_SBATCH),
    ],
)
def test_what_is_away_at_the_start_of_an_attempt_is_waited_for(
    site: Site,
    sandbox: Sandbox,
    fault: Callable[[TrainingRun, Sandbox], AbstractContextManager[None]],
    said: str,
) -> None:
    run, log = hand_over(site, fault.__name__.replace("_", "-"))
    with fault(run, sandbox):
        wait_until(lambda: said in log.read_text(), 60, f"{said!r} in the job's log")
        time.sleep(10)
    assert_went_on(run)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_file_system_that_is_full_at_the_start_of_an_attempt_is_waited_for(site: Site, tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "small", str(tmp_path)], check=True)
    try:
        small = dataclasses.replace(site, environment={**site.environment, "PRETRAINCTL_RUNS": str(tmp_path)})
        run, _ = hand_over(small, "full")
        filler = tmp_path / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        time.sleep(15)
        assert len(run.events("claimed")) == 1
        filler.unlink()
        assert_went_on(run)
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


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
