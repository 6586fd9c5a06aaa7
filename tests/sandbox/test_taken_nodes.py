"""A node that Slurm takes from a running job while its processes live on: Slurm starts nothing there any more."""

from __future__ import annotations

import os
import signal

import pytest

from pretrainctl.sandbox import Sandbox
from tests.sandbox.training_runs import Site, TrainingRun, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")


def lose_slurmd(run: TrainingRun, sandbox: Sandbox, node: str) -> None:
    """End the slurmd of a node, and nothing else there, and wait until Slurm has taken the node from the job."""
    (slurmd,) = [known.pid for known in sandbox.status().nodes if known.name == node]
    os.kill(slurmd, signal.SIGKILL)

    def taken() -> bool:
        nodes = run.site.slurm("squeue", "-h", "--states=RUNNING", "-o", "%N").strip()
        return node not in run.site.slurm("scontrol", "show", "hostnames", nodes).split()

    wait_until(taken, 60, f"Slurm to take {node}", run=run)


def test_a_node_that_trains_is_lost_with_its_slurmd(site: Site, sandbox: Sandbox) -> None:
    sets = ["checkpoint.every_steps=50", "resources.spares=1"]
    run = site.launch("slurmd-of-a-rank", steps=5000, sets=sets)
    run.wait_for_step(60)
    lost = run.events("restart_started")[0].data["nodes"][0]
    lose_slurmd(run, sandbox, lost)
    wait_until(lambda: len(run.events("restart_started")) == 2, 30, "the next start", run=run)
    (ended,) = run.events("restart_ended")
    assert (ended.data["class"], ended.data["nodes"]) == ("node_failure", [lost])
    assert lost not in run.events("restart_started")[-1].data["nodes"]
    assert site.command("cancel", run.name).returncode == 0


def test_a_spare_that_was_taken_does_not_end_the_run(site: Site, sandbox: Sandbox) -> None:
    sets = ["checkpoint.every_steps=50", "resources.spares=2"]
    run = site.launch("slurmd-of-a-spare", steps=5000, sets=sets)
    run.wait_for_step(60)
    host = run.events("claimed")[0].message.split()[-1]
    trains = run.events("restart_started")[0].data["nodes"]
    (spare,) = {"node01", "node02", "node03", "node04"} - {host, *trains}
    lose_slurmd(run, sandbox, spare)
    sandbox.kill_node(trains[1])
    wait_until(lambda: run.samples()[-1]["restart"] > 0, 60, "a step of a later start", run=run)
    assert [event.data["class"] for event in run.events("restart_ended")] == ["node_failure"]
    assert set(run.events("restart_started")[-1].data["nodes"]) == {host, trains[0]}
    assert run.samples()[-1]["attempt"] == 1
    assert site.command("cancel", run.name).returncode == 0
