"""Nodes without a mount: a slurmd in a mount namespace of its own, where an empty folder lies over the file system."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pretrainctl.sandbox import Sandbox, daemons
from tests.sandbox.test_nodes import listed, nodes_of
from tests.sandbox.training_runs import Site, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")


@contextlib.contextmanager
def hidden(sandbox: Sandbox, node: str, folder: Path, empty: Path) -> Iterator[None]:
    """Boot a node that sees `empty` in place of `folder`; it is dead afterwards, for the next to boot it anew."""
    with apart(sandbox, node, first=f"mount --bind '{empty}' '{folder}'"):
        yield


@contextlib.contextmanager
def apart(sandbox: Sandbox, node: str, *, first: str = "true") -> Iterator[None]:
    """Boot a node with mounts of its own, after `first`; it is dead afterwards."""
    layout = sandbox.layout
    sandbox.kill_node(node)
    env = {**daemons.client_environment(layout), daemons.DAEMON_VARIABLE: f"{node}@{layout.root}"}
    slurmd = f"exec {shutil.which('slurmd', path=env['PATH'])} -D -b -N {node}"
    argv = ["setsid", "--fork", "unshare", "--mount", "sh", "-c", f"{first} && {slurmd}"]
    said = layout.log / f"{node}.out"
    with said.open("wb") as log:
        subprocess.run(argv, env=env, cwd=layout.short, stdout=log, stderr=log, check=True, timeout=10)
    try:
        wait_until(
            lambda: "slurmd started on" in said.read_text() and is_idle(sandbox, node),
            30,
            f"{node} with mounts of its own",
        )
        yield
    finally:
        sandbox.kill_node(node)


def is_idle(sandbox: Sandbox, node: str) -> bool:
    return sandbox.command("sinfo", "-h", "-N", "-n", node, "-o", "%T").stdout.split()[0] == "idle"


def lose(sandbox: Sandbox, node: str, folder: Path, empty: Path) -> None:
    """Let a node that stands `apart` see `empty` in place of `folder` from now on."""
    (slurmd,) = (one.pid for one in sandbox.status().nodes if one.name == node)
    argv = ["nsenter", "-t", str(slurmd), "-m", "mount", "--bind", str(empty), str(folder)]
    subprocess.run(argv, check=True, timeout=10)


def test_a_spare_that_lost_a_mount_since_its_test_is_left_out(site: Site, sandbox: Sandbox, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may make no mount namespace")
    empty = tmp_path / "empty"
    empty.mkdir()
    with apart(sandbox, "node04"):
        run = site.launch("lost-mount", steps=5000, sets=["resources.spares=2", "checkpoint.every_steps=20"])
        run.wait_for_step(25)
        assert nodes_of(run) == [["node02", "node03"]], run.story()
        lose(sandbox, "node04", site.folder / "data", empty)
        sandbox.kill_node("node03")
        wait_until(lambda: len(run.events("restart_started")) == 3, 60, "the third start", run=run)
        run.wait_for_step(run.step() + 10)
    assert nodes_of(run)[1:] == [["node02", "node04"], ["node01", "node02"]], run.story()
    lost, failed = run.events("restart_ended")[:2]
    assert lost.data["class"] == "node_failure"
    assert (failed.data["class"], failed.data["nodes"]) == ("boot_failure", ["node04"]), run.story()
    assert "node04" in listed(site)
    assert site.command("cancel", run.name).returncode == 0


def test_nodes_without_a_mount_are_left_out_and_the_run_goes_on(site: Site, sandbox: Sandbox, tmp_path: Path) -> None:
    """The batch host of the first job does not see the checkpoints, a node of the second not the data."""
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may make no mount namespace")
    saved, empty = tmp_path / "saved", tmp_path / "empty"
    saved.mkdir()
    empty.mkdir()
    sets = ["resources.spares=1", f"checkpoint.directory={saved / 'checkpoints'}"]
    with hidden(sandbox, "node01", saved, empty), hidden(sandbox, "node04", site.folder / "data", empty):
        run = site.launch("mounts", steps=20, sets=sets)
        run.wait_for_finish()
    first, second = run.events("nodes_tested")
    owner = saved / "checkpoints" / "owner.json"
    assert first.data["unfit"] == {"node01": f"paths: {owner} is not seen there, and on 2 other nodes"}, run.story()
    data = site.folder / "data" / "quickstart.bin"
    words = f"paths: {data} and 1 more are not seen there, and on 2 other nodes"
    assert second.data["unfit"] == {"node04": words}, run.story()
    ended = run.events("attempt_ended")[0].message
    assert ended == "the batch host node01 does not see the checkpoints, and other nodes do"
    assert [set(nodes) for nodes in nodes_of(run)] == [{"node02", "node03"}], run.story()
    assert {node: entry["cause"] for node, entry in listed(site).items()} == {
        "node01": "node_test",
        "node04": "node_test",
    }
