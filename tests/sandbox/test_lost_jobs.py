"""Jobs that end, or run on, before their attempt begins: nothing of the run is there to notice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pretrainctl.sandbox import Sandbox
from pretrainctl.sandbox.daemons import client_environment
from pretrainctl.sandbox.processes import DAEMON_VARIABLE
from tests.sandbox.training_runs import Site, TrainingRun, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")

WAIT = 'while [ -e "${BASH_SOURCE[0]}" ]; do sleep 0.1; done\n'


@pytest.fixture
def prolog(sandbox: Sandbox, tmp_path: Path) -> Iterator[Path]:
    """A file that Slurm's prolog sources on the batch host of each job, where it is there."""
    orders = tmp_path / "orders.sh"
    script = tmp_path / "prolog.sh"
    script.write_text(f"#!/bin/bash\nif [ -e {orders} ]; then . {orders}; fi\nexit 0\n")
    script.chmod(0o755)
    conf = sandbox.layout.slurm_conf
    before = conf.read_text()
    conf.write_text(f"{before}Prolog={script}\n")
    sandbox.command("scontrol", "reconfigure")
    yield orders
    conf.write_text(before)
    sandbox.command("scontrol", "reconfigure")


def entries(site: Site) -> dict[str, str]:
    """What each node of the exclusion list is listed for."""
    done = site.command("nodes", "list", "--cluster", "sandbox", "--json")
    assert done.returncode == 0, done.stderr
    return {node["node"]: node["cause"] for node in json.loads(done.stdout)["nodes"]}


def goes_on(site: Site, run: TrainingRun, node: str) -> None:
    """The run is not stopped, and trains off the node."""
    run.wait_for("restart_started", 60)
    assert node not in run.events("restart_started")[0].data["nodes"], run.story()
    assert run.status()["phase"] in {"starting", "running", "finished"}
    site.command("cancel", run.name)


def test_a_job_that_lost_its_batch_host_before_the_claim_is_ended(site: Site, sandbox: Sandbox, prolog: Path) -> None:
    prolog.write_text(WAIT)  # the job runs, and its script has not begun
    run = site.launch("lost-host", steps=2000)
    shown = wait_until(lambda: run.status()["job_state"] == "RUNNING" and run.status(), 30, "the job", run=run)
    host = shown["nodes"][0]
    assert shown["warnings"] == []
    sandbox.kill_node(host)
    prolog.unlink()
    # As Slurm does by itself when the node has not answered for long.
    site.slurm("scontrol", "update", f"nodename={host}", "state=down", "reason=dead")
    shown = run.status()
    assert (shown["phase"], len(shown["nodes"])) == ("starting", 1), "--no-kill keeps the job"
    assert f"has lost its batch host {host} (before an attempt began)" in shown["warnings"][0]
    assert not run.events("claimed")
    said = site.command("reconcile", run.name)
    assert f"cancelled job {shown['job_id']}" in said.stdout, said.stdout + said.stderr
    assert entries(site)[host] == "node_failure"
    goes_on(site, run, host)


def test_a_prolog_that_fails_is_no_cancel(site: Site, prolog: Path) -> None:
    prolog.write_text(f"mv {prolog} {prolog}.done && exit 1\n")
    run = site.launch("bad-prolog", steps=2000)
    (job,) = (event.data["job_id"] for event in run.events("submitted"))
    wait_until(lambda: "CANCELLED" in site.slurm("sacct", "-nXj", str(job), "-o", "State"), 30, "the end", run=run)
    shown = wait_until(lambda: (s := run.status())["warnings"] and s, 20, "a warning", run=run)
    assert shown["phase"] == "no_job"
    assert "the prolog failed on " in shown["warnings"][0]
    found = json.loads(site.command("doctor", run.name, "--json").stdout)
    assert (found["class"], len(found["nodes"])) == ("boot_failure", 1)
    (host,) = found["nodes"]
    said = site.command("reconcile", run.name)
    assert f"the prolog failed on {host} (Slurm: Prolog error)" in said.stdout, said.stdout + said.stderr
    assert entries(site)[host] == "boot_failure"
    goes_on(site, run, host)


def test_where_a_prolog_ends_the_chained_job_the_one_after_it_goes_on(
    site: Site, sandbox: Sandbox, prolog: Path
) -> None:
    run = site.launch("bad-prolog-later", steps=400, sets=["chain.jobs=3", "checkpoint.every_steps=10"])
    run.wait_for_step(23)
    first, *queued = (event.data["job_id"] for event in (*run.events("submitted"), *run.events("chained")))
    assert len(queued) == 2
    prolog.write_text(f"mv {prolog} {prolog}.done && exit 1\n")
    host = run.events("claimed")[0].message.split()[-1]
    sandbox.kill_node(next(node for node in run.events("restart_started")[0].data["nodes"] if node != host))
    run.wait_for_finish()
    assert [event.data["job_id"] for event in run.events("claimed")] == [first, queued[1]], run.story()
    run.assert_goes_on(2, every=10)
    run.wait_for_an_empty_queue()


def test_a_person_s_scancel_before_the_claim_is_a_stop(site: Site, prolog: Path) -> None:
    prolog.write_text(WAIT)
    run = site.launch("scancel-early", steps=2000)
    (job,) = (event.data["job_id"] for event in run.events("submitted"))
    wait_until(lambda: run.status()["job_state"] == "RUNNING", 30, "the job", run=run)
    site.slurm("scancel", str(job))
    prolog.unlink()
    wait_until(lambda: run.status()["phase"] == "stopped", 60, "the stop", run=run)
    assert "nothing goes on until `resume`" in site.command("reconcile", run.name).stdout
    assert json.loads(site.command("doctor", run.name, "--json").stdout)["class"] == "user_cancel"


def test_a_scancel_of_all_chained_jobs_ends_the_run_with_its_job(site: Site, sandbox: Sandbox) -> None:
    run = site.launch("scancel-chain", steps=4000, sets=["chain.jobs=3", "checkpoint.every_steps=10"])
    run.wait_for_step(12)
    chained = [event.data["job_id"] for event in run.events("chained")]
    assert len(chained) == 2
    assert run.status()["warnings"] == []
    site.slurm("scancel", *map(str, chained))
    shown = wait_until(lambda: (s := run.status())["warnings"] and s, 30, "a warning", run=run)
    assert shown["phase"] == "running"
    assert f"nothing goes on after job {shown['job_id']}: the chained jobs" in shown["warnings"][0]
    assert "nothing goes on after job" in site.command("reconcile", run.name).stdout
    host = run.events("claimed")[0].message.split()[-1]
    sandbox.kill_node(next(node for node in run.events("restart_started")[0].data["nodes"] if node != host))
    run.wait_for("attempt_ended")
    wait_until(lambda: run.status()["phase"] == "stopped", 60, "the stop", run=run)
    said = site.command("reconcile", run.name).stdout
    assert f"stopped: job {chained[-1]} was cancelled before it began" in said
    run.wait_for_an_empty_queue()
    assert run.status()["phase"] == "stopped"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide a folder from one node")
@pytest.mark.parametrize("ahead", [False, True])
def test_a_node_that_ends_each_job_at_once_gets_no_later_one(
    site: Site, sandbox: Sandbox, tmp_path: Path, ahead: bool
) -> None:
    """The file system of pretrainctl's Python is not mounted there. Jobs that were queued ahead all go to it."""
    name = sandbox.status().nodes[0].name
    sandbox.kill_node(name)
    _boot_without(sandbox, name, Path(sys.prefix), tmp_path)
    run = site.launch(
        f"black-hole-{ahead}", steps=2000, sets=["chain.strategy=prequeued", "chain.jobs=3"] if ahead else []
    )
    jobs = [str(event.data["job_id"]) for event in run.events("submitted")]
    assert len(jobs) == (3 if ahead else 1)
    states = ("sacct", "-nXj", ",".join(jobs), "-o", "State")
    wait_until(lambda: site.slurm(*states).count("FAILED") == len(jobs), 60, "the end", run=run)
    shown = wait_until(lambda: (s := run.status())["warnings"] and s, 20, "a warning", run=run)
    assert f"exit status 127 on {name}" in shown["warnings"][0]
    found = json.loads(site.command("doctor", run.name, "--json").stdout)
    assert (found["class"], found["nodes"], found["confidence"]) == ("boot_failure", [name], "low")
    assert any("No such file or directory" in line for line in found["evidence"])
    said = site.command("reconcile", run.name)
    assert f"exit status 127 on {name}" in said.stdout, said.stdout + said.stderr
    assert entries(site)[name] == "boot_failure"
    goes_on(site, run, name)
    run.wait_for_an_empty_queue()
    sandbox.kill_node(name)
    sandbox.revive_node(name)


def _boot_without(sandbox: Sandbox, name: str, hidden: Path, scratch: Path) -> None:
    """Boot a node on which a folder is empty."""
    environment = client_environment(sandbox.layout) | {DAEMON_VARIABLE: f"{name}@{sandbox.root}"}
    slurmd = shutil.which("slurmd", path=environment["PATH"])
    empty = scratch / "empty"
    empty.mkdir()
    script = 'mount --bind "$1" "$2" && exec "$3" -D -b -N "$4"'
    with (sandbox.layout.log / f"{name}.out").open("wb") as log:
        subprocess.run(
            [*("setsid", "--fork", "unshare", "--mount", "sh", "-c", script, "sh"), empty, hidden, str(slurmd), name],
            env=environment,
            cwd=sandbox.layout.short,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=10,
            check=True,
        )
    wait_until(lambda: sandbox.status().nodes[0].pid, 10, "the node")
    sandbox.revive_node(name)
