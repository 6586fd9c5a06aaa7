"""Too few nodes for a chained job: it waits for them, and starts when they are back."""

from __future__ import annotations

import pytest

from pretrainctl.sandbox import Sandbox
from tests.sandbox.training_runs import Site, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")


def test_a_chained_job_that_needs_the_dead_nodes_starts_when_they_are_back(site: Site, sandbox: Sandbox) -> None:
    run = site.launch("needs-them-all", steps=60, sets=["checkpoint.every_steps=10", "resources.spares=2"])
    run.wait_for_step(12)
    host = run.events("claimed")[0].message.split()[-1]
    dead = [node for node in ("node01", "node02", "node03", "node04") if node != host]
    for node in dead:
        sandbox.kill_node(node)
    run.wait_for("attempt_ended", 90)
    (job,) = {event.data["job_id"] for event in run.events("chained") if event.attempt == 1}
    wait_until(lambda: f"{job} PD" in site.slurm("squeue", "-h", "-o", "%A %t"), 60, "the chained job to wait")
    for node in dead:
        sandbox.revive_node(node)
    run.wait_for_finish()
    assert run.events("claimed")[-1].data["job_id"] == job


def test_reconcile_frees_a_job_that_slurm_holds_for_its_nodes(site: Site) -> None:
    sleeper = site.slurm(*("sbatch", "--parsable", "-N4", "--exclusive", "-o", "/dev/null", "--wrap=sleep 600")).strip()
    run = site.launch("held", steps=20)
    (job,) = run.jobs()
    site.slurm("scontrol", "update", f"JobId={job}", "ExcNodeList=node[01-03]")
    site.slurm("scancel", sleeper)
    wait_until(lambda: "BadConstraints" in site.slurm("squeue", "-h", "-o", "%r"), 90, "Slurm to hold it")
    done = site.command("reconcile", run.name)
    assert done.returncode == 0, done.stderr
    assert f"job {job} was held (BadConstraints)" in done.stdout
    run.wait_for_finish()
