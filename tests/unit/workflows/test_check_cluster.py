"""A profile beside what scontrol says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pretrainctl.process import Completed
from pretrainctl.slurm.client import Slurm
from pretrainctl.workflows.check_cluster import Finding, check_cluster

TEXT = (Path(__file__).resolve().parents[2] / "data/slurm/scontrol_config_and_partitions.txt").read_text()
CONFIG, PARTITIONS = TEXT.split("$ scontrol show partition")


def machine(config=CONFIG, partitions=PARTITIONS):
    def run(argv, *, timeout, env, check):
        text = {"config": config, "partition": partitions}[argv[-1]]
        return Completed(tuple(argv), 0, text, "")

    return Slurm(run, {"PATH": ""})


@pytest.fixture
def profile(tmp_path):
    def write(*queues, gpus=4):
        path = tmp_path / "site.yaml"
        rows = [{"purpose": "production", "max_nodes": 6, "max_walltime": "2d", **row} for row in queues]
        path.write_text(json.dumps({"extends": "sandbox", "queues": rows, "node": {"gpus": gpus}}))
        return str(path)

    return write


def test_a_profile_that_fits_has_only_preemption_to_know_of(profile):
    name = profile({"name": "gpu", "partition": "gpu-h100", "qos": "paid"})
    assert check_cluster(name, machine()) == [
        Finding(
            "partition gpu-h100: preemption",
            "",
            "2m30s to save, then the job is gone (jobs of a run are --no-requeue: the chained job goes on)",
        )
    ]


def test_another_default_partition_is_named(profile):
    default = machine(partitions=PARTITIONS.replace("Default=NO", "Default=YES", 1))
    name = profile({"name": "gpu", "partition": "gpu-h100", "qos": "paid"})
    (found,) = [one for one in check_cluster(name, default) if one.place == "default partition"]
    assert found.profile == "production"
    assert found.machine in PARTITIONS
    Path(name).write_text(json.dumps({**json.loads(Path(name).read_text()), "default_partition": found.machine}))
    assert not any(one.place == "default partition" for one in check_cluster(name, default))


def test_every_difference_is_named(profile):
    name = profile(
        {"name": "a", "partition": "gpu-h100", "qos": "gold", "max_nodes": 8, "max_walltime": "3d"},
        {"name": "b", "partition": "gpu-h100", "max_nodes": "unknown", "max_walltime": "unknown"},
        {"name": "c", "partition": "scavenge", "max_nodes": 3},
        {"name": "d", "partition": "gpu-h200"},
        gpus=8,
    )
    found = {(finding.place, finding.profile, finding.machine) for finding in check_cluster(name, machine())}
    assert found >= {
        ("queue a: qos", "gold", "partition gpu-h100 allows paid, free"),
        ("queue a: max_nodes", "8", "at most 6"),
        ("queue a: max_walltime", "3d00h", "at most 2d00h"),
        ("queue b: max_nodes", "unknown", "at most 6"),
        ("queue b: max_walltime", "unknown", "at most 2d00h"),
        ("partition gpu-h100: GPUs", "8 a node", "24 on 6 nodes ({'h100': 24})"),
        ("partition scavenge: state", "UP", "DRAIN"),
        ("queue d: partition", "gpu-h200", "not there; there are: gpu-h100, scavenge"),
    }


def test_where_the_qos_decides_it_is_said(profile):
    by_qos = CONFIG.replace("preempt/partition_prio", "preempt/qos")
    (finding,) = check_cluster(profile({"name": "gpu", "partition": "gpu-h100"}), machine(by_qos))
    assert "sacctmgr show qos" in finding.machine


def test_without_preemption_nothing_is_said_of_it(profile):
    off = CONFIG.replace("PreemptMode             = CANCEL", "PreemptMode             = OFF")
    assert check_cluster(profile({"name": "gpu", "partition": "gpu-h100"}), machine(off)) == []
