"""Unfit, slow and listed nodes on a real Slurm.

All nodes are one machine: what ails one of them alone is done in the Python that trains, by a wrapper around it that
knows on which node it runs.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import pytest

from pretrainctl.sandbox import Sandbox
from pretrainctl.slurm.nodes import expand
from tests.sandbox.test_faults_that_pass import unwritable
from tests.sandbox.training_runs import Site, TrainingRun, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")


def training_python(folder: Path, node: str, line: str) -> str:
    """A setting: the Python that trains, which on `node` first does a line of shell."""
    path = folder / "python"
    path.write_text(f'#!/bin/bash\nif [ "$SLURMD_NODENAME" = {node} ]; then\n{line}\nfi\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return f"cluster.python.training={path}"


def excluded(site: Site, job: int) -> set[str]:
    """The nodes that a job in the queue avoids, as Slurm has it."""
    shown = site.slurm("scontrol", "-o", "show", "job", str(job))
    return set(expand(shown.partition("ExcNodeList=")[2].split()[0]))


def nodes_of(run: TrainingRun) -> list[list[str]]:
    return [event.data["nodes"] for event in run.events("restart_started")]


def listed(site: Site, *options: str) -> dict[str, dict[str, object]]:
    done = site.command("nodes", "list", "--cluster", "sandbox", "--json", *options)
    assert done.returncode == 0, done.stderr
    return {node["node"]: node for node in json.loads(done.stdout)["nodes"]}


def test_a_node_that_fails_its_test_is_left_out_listed_and_avoided_by_the_chained_job(
    site: Site, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with unwritable(scratch):
        python = training_python(tmp_path, "node02", f"export TMPDIR={scratch}")
        run = site.launch("unfit", steps=20, sets=[python])
        run.wait_for_finish()
    first, second = run.events("nodes_tested")
    assert list(first.data["unfit"]) == ["node02"], run.story()
    assert f"{scratch} cannot be written" in first.data["unfit"]["node02"]
    assert (second.data["unfit"], second.data["slow"]) == ({}, {}), run.story()
    (nodes,) = nodes_of(run)
    assert "node02" not in nodes
    assert [event.data["node"] for event in run.events("node_listed")] == ["node02"]
    entry = listed(site)["node02"]
    assert (entry["cause"], entry["count"], entry["run"], entry["active"]) == ("node_test", 1, "unfit", True)
    report = site.command("nodes", "report", "--cluster", "sandbox").stdout
    assert f"job {entry['job_id']}: node_test: tmpdir: {scratch} cannot be written" in report
    again = site.launch("after-unfit", steps=20)
    assert again.events("submitted")[0].data["exclude"] == ["node02"]
    again.wait_for_finish()
    assert "node02" not in {node for nodes in nodes_of(again) for node in nodes}


def test_a_spare_stands_in_for_an_unfit_node_and_for_a_slow_one(site: Site, tmp_path: Path) -> None:
    slow = "[[ $1 == */probe.py ]] && export PYTHONMALLOC=malloc_debug  # an interpreter that is 1.8 times as slow"
    run = site.launch("slow", steps=10, sets=[training_python(tmp_path, "node02", slow), "resources.spares=2"])
    run.wait_for_finish()
    (tested,) = run.events("nodes_tested")
    assert list(tested.data["slow"]) == ["node02"], run.story()
    assert nodes_of(run) == [["node03", "node04"]], run.story()
    assert listed(site) == {}, "slow is not broken"
    python = training_python(tmp_path, "node03", "export TMPDIR=/nowhere")
    unfit = site.launch("unfit-with-spare", steps=10, sets=[python, "resources.spares=1"])
    unfit.wait_for_finish()
    assert (len(unfit.events("claimed")), nodes_of(unfit)) == (1, [["node01", "node02"]]), unfit.story()
    assert list(listed(site)) == ["node03"]


def test_the_list_leaves_a_job_enough_nodes_and_that_of_another_cluster_is_not_used(
    site: Site, sandbox: Sandbox
) -> None:
    with contextlib.ExitStack() as afterwards:
        sleeper = site.slurm(*("sbatch", "--parsable", "-N4", "--exclusive", "-o", "/dev/null", "--wrap=sleep 600"))
        afterwards.callback(site.slurm, "scancel", sleeper.strip())
        run = site.launch("capped", steps=10)
        (job,) = run.jobs()
        site.slurm("scontrol", "update", f"JobId={job}", "ExcNodeList=node01")
        done = site.command("nodes", "exclude", "node[02-03]", "--reason", "tried", "-c", "sandbox", "--for", "1h")
        assert done.returncode == 0, done.stderr
        assert f"told job {job} of capped" in done.stderr
        assert len(excluded(site, job) & {"node02", "node03"}) == 1, "two of four must be left"
        assert "node01" in excluded(site, job), "a person's own stays"
        there = next(iter((site.folder / "runs" / ".nodes").iterdir()))
        (entry, _) = sorted(there.glob("node0*.json"))
        other = json.loads(entry.read_text()) | {"slurm_cluster": "elsewhere", "node": "node04"}
        (there / "node04-0.json").write_text(json.dumps(other))
        assert set(listed(site)) == {"node02", "node03"}
        done = site.command("nodes", "list", "--cluster", "sandbox")
        assert "node04-0.json is of sandbox@elsewhere, and is not used here" in done.stderr
        done = site.command("nodes", "forgive", "node[02-03]", "-c", "sandbox")
        assert done.returncode == 0, done.stderr
        assert excluded(site, job) == {"node01"}
        assert set(listed(site)) == set()
        assert set(listed(site, "--all")) == {"node02", "node03"}, "what was forgiven is there to be seen"
    run.wait_for_finish()


def test_reconcile_frees_a_held_job_and_keeps_what_a_person_excluded(site: Site) -> None:
    sleeper = site.slurm(*("sbatch", "--parsable", "-N4", "--exclusive", "-o", "/dev/null", "--wrap=sleep 600")).strip()
    run = site.launch("held-by-both", steps=10)
    (job,) = run.jobs()
    done = site.command("nodes", "exclude", "node[01-02]", "--reason", "tried", "-c", "sandbox")
    assert done.returncode == 0, done.stderr
    site.slurm("scontrol", "update", f"JobId={job}", "ExcNodeList=node[01-02],node04")
    site.slurm("scancel", sleeper)
    wait_until(lambda: "BadConstraints" in site.slurm("squeue", "-h", "-o", "%r"), 90, "Slurm to hold it")
    done = site.command("reconcile", run.name)
    assert f"job {job} was held (BadConstraints)" in done.stdout, done.stderr
    run.wait_for_finish()
    (nodes,) = nodes_of(run)
    assert "node04" not in nodes
