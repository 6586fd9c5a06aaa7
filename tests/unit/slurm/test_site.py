"""What scontrol says of a site: mixed units, values with `=`, limits that are none, and what preemption means."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.errors import SlurmError
from pretrainctl.slurm.site import Preemption, parse_config, parse_partitions, preemption, read_seconds
from pretrainctl.units import Limit

TEXT = (Path(__file__).resolve().parents[2] / "data/slurm/scontrol_config_and_partitions.txt").read_text()
CONFIG, PARTITIONS = TEXT.split("$ scontrol show partition")


@pytest.fixture
def config():
    return parse_config(CONFIG)


@pytest.fixture
def partitions():
    return parse_partitions(PARTITIONS)


def test_the_production_partition(partitions):
    gpu = partitions["gpu-h100"]
    assert (gpu.max_time, gpu.default_time, gpu.grace) == (172800.0, Limit.NOT_SET, 120.0)
    assert gpu.nodes == ("gpua01", "gpua02", "gpua03", "gpub01", "gpub03", "gpub04")
    assert gpu.gpus == {"h100": 24}
    assert gpu.qos == ("paid", "free")
    assert gpu.preempt_mode == ("CANCEL",)
    assert (gpu.default_memory_per_node, gpu.max_memory_per_node, gpu.max_nodes) == (None, None, None)
    assert gpu.takes_jobs


def test_the_scavenged_partition(partitions):
    scavenge = partitions["scavenge"]
    assert (scavenge.max_time, scavenge.default_time, scavenge.grace) == (Limit.NO_LIMIT, 120.0, 0.0)
    assert len(scavenge.nodes) == 3
    assert (scavenge.default_memory_per_cpu, scavenge.max_memory_per_node) == (4096, 385300)
    assert "REQUEUE" in scavenge.preempt_mode
    assert scavenge.qos is None
    assert not scavenge.takes_jobs


def test_the_configuration(config):
    seconds = {name: read_seconds(config[name]) for name in ("KillWait", "OverTimeLimit", "PreemptExemptTime")}
    assert seconds == {"KillWait": 30.0, "OverTimeLimit": 0.0, "PreemptExemptTime": 3600.0}
    assert read_seconds(config["MinJobAge"]) == 300.0
    assert config["SLURM_VERSION"] == "23.11.10"
    assert read_seconds("whenever") is Limit.UNKNOWN


def test_a_preempted_job_comes_back_only_where_the_partition_requeues(config, partitions):
    assert preemption(partitions["gpu-h100"], config) == Preemption(comes_back=False, seconds_to_save=150.0, known=True)
    assert preemption(partitions["scavenge"], config) == Preemption(comes_back=True, seconds_to_save=30.0, known=True)


def test_where_the_qos_decides_nothing_is_counted_on(config, partitions):
    by_qos = {**config, "PreemptType": "preempt/qos"}
    assert preemption(partitions["scavenge"], by_qos) == Preemption(comes_back=False, seconds_to_save=0.0, known=False)


def test_one_line_a_partition_reads_the_same(partitions):
    lines = "\n".join(" ".join(part.split()) for part in PARTITIONS.split("\n\n") if part.strip())
    assert parse_partitions(lines) == partitions


def test_an_untyped_count_of_gpus():
    found = parse_partitions("PartitionName=a State=UP TRES=cpu=4,gres/gpu=8 Nodes=n[1-2]")
    assert found["a"].gpus == {"": 8}


def test_what_is_no_configuration_is_an_error():
    with pytest.raises(SlurmError, match="nothing that can be read"):
        parse_config("slurm_load_ctl_conf error: Unable to contact slurm controller")
