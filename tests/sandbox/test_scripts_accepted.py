"""The scripts for the supercomputers, given to a real Slurm of that size, whose nodes are down but for one."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pretrainctl.sandbox import Sandbox, Shape
from pretrainctl.slurm.parse import parse_scontrol

GOLDEN = Path(__file__).parents[1] / "golden"
SCRIPTS = sorted(path for path in GOLDEN.glob("*-on-*/job.sbatch") if not path.parent.name.endswith("-on-sandbox"))
LARGEST = 128
"""Nodes of the largest job among them."""
OF_THE_SANDBOX = ("--partition=production", "--qos=normal", "--account=sandbox")
"""These names stand in for those that only the site has."""


@pytest.fixture(scope="module")
def large() -> Iterator[Sandbox]:
    """A cluster with nodes as large as the largest of the sites', one of which is there."""
    root = Path(tempfile.mkdtemp(prefix="ptl-", dir="/tmp"))
    machine = Sandbox(root)
    try:
        machine.up(Shape(nodes=1, gpus=4, cpus=288, down_nodes=LARGEST - 1))
        yield machine
    finally:
        machine.down()
        shutil.rmtree(root, ignore_errors=True)


def directives(script: Path) -> dict[str, str]:
    found = re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", script.read_text(), re.MULTILINE)
    return {name: value.strip('"') for name, value in found}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)
def test_slurm_takes_every_directive_as_it_is_meant(large: Sandbox, script: Path) -> None:
    given = directives(script)
    assert given.keys() >= {"partition", "account", "nodes", "time", "signal", "no-requeue", "no-kill", "open-mode"}
    done = large.command(
        *("sbatch", "--parsable", "--hold", "--chdir=/tmp", "--output=/dev/null", *OF_THE_SANDBOX, str(script)),
        check=False,
    )
    assert done.status == 0, done.stderr
    assert "ignored" not in done.stderr, done.stderr
    job = done.stdout.strip()
    (shown,) = parse_scontrol(large.command("scontrol", "--oneliner", "show", "job", job).stdout)
    large.command("scancel", job)
    assert shown["NumNodes"].split("-")[0] == given["nodes"]
    assert shown["NtasksPerN:B:S:C"].split(":")[0] == given["ntasks-per-node"]
    assert shown["CPUs/Task"] == given["cpus-per-task"]
    assert shown["TimeLimit"] == re.sub(r"^0-", "", given["time"])
    assert shown["Requeue"] == "0"
    assert shown["JobName"] == given["job-name"]
    if "gres" in given:
        assert shown["TresPerNode"] == f"gres:{given['gres']}"
    if "exclusive" in given:
        assert shown["OverSubscribe"] == "NO"
