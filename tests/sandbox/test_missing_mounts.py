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
    layout = sandbox.layout
    sandbox.kill_node(node)
    env = {**daemons.client_environment(layout), daemons.DAEMON_VARIABLE: f"{node}@{layout.root}"}
    slurmd = f"exec {shutil.which('slurmd', path=env['PATH'])} -D -b -N {node}"
    argv = ["setsid", "--fork", "unshare", "--mount", "sh", "-c", f"mount --bind '{empty}' '{folder}' && {slurmd}"]
    said = layout.log / f"{node}.out"
    with said.open("wb") as log:
        subprocess.run(argv, env=env, cwd=layout.short, stdout=log, stderr=log, check=True, timeout=10)
    try:
        wait_until(
            lambda: "slurmd started on" in said.read_text() and is_idle(sandbox, node), 30, f"{node} without {folder}"
        )
        yield
    finally:
        sandbox.kill_node(node)


def is_idle(sandbox: Sandbox, node: str) -> bool:
    return sandbox.command("sinfo", "-h", "-N", "-n", node, "-o", "%T").stdout.split()[0] == "idle"


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
