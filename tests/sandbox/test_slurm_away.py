"""A Slurm that does not answer: nothing is made or lost, wishes are kept, and the run's own Slurm alone is asked."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from pretrainctl.sandbox import Sandbox, daemons, layout
from tests.sandbox.training_runs import Site, TrainingRun, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")


def start_controller(sandbox: Sandbox) -> None:
    """Only the controller, as a site does: `up` after a crash would end all jobs."""
    settings = layout.load(sandbox.layout)
    assert settings is not None
    daemons.start_daemon(sandbox.layout, settings, "slurmctld", say=print)


def kill_controller(sandbox: Sandbox) -> None:
    pid = sandbox.status().daemons["slurmctld"]
    assert pid is not None
    os.kill(pid, signal.SIGTERM)  # it saves what it knows: after a SIGKILL it would give a job's number once more
    wait_until(lambda: sandbox.status().daemons["slurmctld"] is None, 10, "the controller to end")


@pytest.fixture
def controller(sandbox: Sandbox) -> Iterator[Sandbox]:
    """The sandbox; its controller is back at the end."""
    yield sandbox
    if sandbox.status().daemons["slurmctld"] is None:
        start_controller(sandbox)


def launch(site: Site, name: str) -> TrainingRun:
    run = site.launch(name, steps=5000, sets=["checkpoint.every_steps=10"])
    run.wait_for_step(12)
    return run


def test_a_stop_reaches_the_ranks_and_reconcile_settles_the_queue(site: Site, controller: Sandbox) -> None:
    run = launch(site, "stop-without-slurm")
    kill_controller(controller)
    done = site.command("stop", "--save", run.name)
    assert done.returncode == 5, done.stderr
    assert "is recorded" in done.stderr
    wait_until(lambda: run.samples("saved")[-1]["step"] == run.step() and run.step() > 12, 60, "the save")
    assert site.command("reconcile", run.name).returncode == 5
    done = site.command("status", run.name, "--json")
    assert json.loads(done.stdout)["phase"] == "stopped", "whatever Slurm could say"
    assert "Slurm could not be asked" in done.stderr
    start_controller(controller)
    assert site.command("reconcile").returncode == 0
    run.wait_for_an_empty_queue()
    assert run.status()["phase"] == "stopped"


def test_a_cancel_is_obeyed_without_slurm_and_reconcile_settles_the_queue(site: Site, controller: Sandbox) -> None:
    run = launch(site, "cancel-without-slurm")
    kill_controller(controller)
    assert site.command("cancel", run.name).returncode == 5
    assert site.command("resume", run.name).returncode == 5
    # The attempt finds the wish in the ledger; where it could not, `reconcile` would cancel its job.
    start_controller(controller)
    assert site.command("reconcile").returncode == 0
    run.wait_for_an_empty_queue()
    assert site.command("reconcile").returncode == 0
    assert run.status()["phase"] == "stopped"
    step = run.step()
    time.sleep(5.0)
    assert (run.step(), run.jobs()) == (step, [])


def test_a_launch_onto_a_controller_that_is_away_makes_nothing(site: Site, controller: Sandbox) -> None:
    kill_controller(controller)
    done = site.command("launch", "quickstart", "--cluster", "sandbox", "--name", "nobody-there", "--yes")
    assert done.returncode in {3, 5}, done.stderr
    assert not (site.folder / "runs" / "nobody-there").exists()


def test_test_only_asks_and_submits_nothing(site: Site) -> None:
    words = ("launch", "quickstart", "--cluster", "sandbox", "--name", "only-asked", "--test-only")
    done = site.command(*words)
    assert done.returncode == 0, done.stderr
    assert "to start at" in done.stdout
    too_many = site.command(*words, "--set", "resources.spares=6")
    assert too_many.returncode == 5
    assert "not available" in too_many.stderr
    assert not (site.folder / "runs" / "only-asked").exists()
    assert site.slurm("squeue", "-h") == ""


def test_a_run_of_another_cluster_is_left_alone(site: Site) -> None:
    run = launch(site, "elsewhere")
    record = run.folder / "run.json"
    text = record.read_text()
    cluster = json.loads(text)["slurm_cluster"]
    record.write_text(text.replace(cluster, "another"))
    for verb in ("cancel", "reconcile", "resume"):
        done = site.command(verb, run.name)
        assert done.returncode in {5, 6}, done.stderr
        assert f"the Slurm cluster another; this host speaks to {cluster}" in done.stderr
    record.write_text(text)
    assert not run.events("cancel_requested") or site.command("cancel", run.name).returncode == 0


def test_a_sandbox_that_is_not_up_is_said_with_the_way_there(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = {**site.environment, "PRETRAINCTL_SANDBOX": str(tmp_path_factory.mktemp("none"))}
    done = dataclasses.replace(site, environment=elsewhere).command(
        "launch", "quickstart", "--cluster", "sandbox", "--name", "no-sandbox", "--yes"
    )
    assert done.returncode == 3
    assert "is not up" in done.stderr
    assert "pretrainctl sandbox up" in done.stderr
