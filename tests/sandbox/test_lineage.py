"""What a run trains with is changed between two attempts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from tests.sandbox.training_runs import Site, TrainingRun, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")


def stopped(site: Site, name: str) -> TrainingRun:
    """A run that was stopped after some steps."""
    run = site.launch(name, steps=3000, sets=["checkpoint.every_steps=10"])
    run.wait_for_step(20)
    assert site.command("stop", "--save", name).returncode == 0
    run.wait_for("attempt_ended")
    run.wait_for_an_empty_queue()
    return run


def set_rate(run: TrainingRun, rate: float) -> None:
    path = run.folder / "bundle" / "training.json"
    settings = json.loads(path.read_text())
    settings["optimizer"]["lr"] = rate
    path.write_text(json.dumps(settings))


def attempt_process(run: TrainingRun) -> int:
    """The pid of the attempt, which is the batch script's own process."""
    words = [b"pretrainctl", b"attempt", str(run.folder).encode()]
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdigit() and (path / "cmdline").read_bytes().split(b"\0")[-4:-1] == words:
                return int(path.name)
    raise AssertionError(f"no process of the attempt; {run.story()}")


def lineage(run: TrainingRun, attempt: int) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((run.folder / f"attempts/{attempt:04d}/lineage.json").read_text())
    return found


def test_a_bundle_that_was_edited_stops_the_resume_until_it_is_accepted(site: Site) -> None:
    run = stopped(site, "edited")
    before = lineage(run, 1)
    assert set(before["digests"]) == {"recipe", "profile", "settings", "code", "environment", "data"}
    assert before["unknown"] == {}
    assert "python.torch" in before["facts"]
    last = run.step()

    assert site.command("resume", run.name).returncode == 0, "nothing was changed"
    run.wait_for_step(last + 3)
    assert site.command("cancel", run.name).returncode == 0
    run.wait_for_an_empty_queue()

    set_rate(run, 0.0123)
    refused = site.command("resume", run.name)
    assert refused.returncode == 6
    assert "training.optimizer.lr 0.002 -> 0.0123" in refused.stderr
    assert "--accept" in refused.stderr
    assert not run.jobs()

    last = run.step()
    done = site.command("resume", "--accept", run.name)
    assert done.returncode == 0, done.stderr
    (accepted,) = run.events("change_accepted")
    assert accepted.data["changes"][0] == {
        "key": "training.optimizer.lr",
        "before": "0.002",
        "after": "0.0123",
        "alters": True,
    }
    run.wait_for_step(last + 3)
    assert site.command("cancel", run.name).returncode == 0


def test_a_chained_job_finds_the_change_and_stops(site: Site) -> None:
    run = site.launch("rewritten", steps=3000, sets=["checkpoint.every_steps=10"])
    run.wait_for_step(20)
    wait_until(lambda: len(run.jobs()) == 2, 60, "the chained job")
    data = site.folder / "data" / "quickstart.bin"
    kept = data.read_bytes()
    try:
        data.write_bytes(kept[:-2] + b"\1\1")
        os.kill(attempt_process(run), signal.SIGKILL)  # the job ends, and the chained one takes over
        wait_until(lambda: run.events("stopped"), 120, "the stop", run=run)
    finally:
        data.write_bytes(kept)
    (event,) = run.events("stopped")
    assert event.data["class"] == "changed"
    assert f"data.{data}.digest" in event.message
    run.wait_for_an_empty_queue()
    assert run.status()["phase"] == "failed"
    again = site.command("resume", run.name)
    assert again.returncode == 0, f"the data are what they were: {again.stderr}"
    assert "mtime" in again.stdout
    run.wait_for_step(run.step() + 3)
    assert site.command("cancel", run.name).returncode == 0


def test_another_value_at_a_resume(site: Site) -> None:
    run = stopped(site, "revised")
    last = run.step()
    unknown = site.command("resume", run.name, "--set", "training.optimiser.lr=1")
    assert (unknown.returncode, "unknown key 'optimiser'" in unknown.stderr) == (2, True)
    refused = site.command("resume", run.name, "--set", "training.optimizer.lr=0.001")
    assert (refused.returncode, "0.002 -> 0.001" in refused.stderr) == (6, True)
    assert not (run.folder / "plan.json").exists()
    done = site.command("resume", run.name, "--set", "resources.walltime=9m", "--set", "recovery.node_hours=40")
    assert done.returncode == 0, "a harmless change passes"
    assert "job.time" in done.stdout
    run.wait_for_step(last + 3)
    assert "0-00:09:00" in (Path(run.folder) / "bundle" / "job.sbatch").read_text()
    assert [event.data["since"] for event in run.events("lineage")] == [1]
    assert site.command("cancel", run.name).returncode == 0
