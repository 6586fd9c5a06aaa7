from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from pretrainctl.sandbox import processes


class Zoo:
    """Processes that look like those of sandboxes; all are ended after the test."""

    def __init__(self, root):
        self.root = root
        self.conf = root / "etc" / "slurm.conf"
        self.children = []

    def start(self, *argv, root=None, daemon=None, **environment):
        if daemon is not None:
            environment[processes.DAEMON_VARIABLE] = f"{daemon}@{root or self.root}"
        child = subprocess.Popen(argv or ("sleep", "100"), env={"PATH": os.environ["PATH"], **environment})
        self.children.append(child)
        return child.pid

    def find(self, *names):
        return processes.members(processes.scan(), root=self.root, slurm_conf=self.conf, names=names or None)

    def pids(self, *names):
        return {one.pid for one in self.find(*names)}


@pytest.fixture
def zoo(tmp_path):
    animals = Zoo(tmp_path)
    yield animals
    processes.kill(animals.find)
    for child in animals.children:
        child.kill()
        child.wait()


def ready(zoo, *names, count):
    """Wait until exec has given the processes their environment."""
    assert processes.wait_until(lambda: len(zoo.find(*names)) == count, 10.0), zoo.find(*names)


def test_daemons_and_detached_processes_of_a_node_are_found_by_their_environment(zoo):
    slurmd = zoo.start(daemon="node01")
    task = zoo.start(SLURMD_NODENAME="node01", SLURM_CONF=str(zoo.conf))
    zoo.start(daemon="node02")
    zoo.start(SLURMD_NODENAME="node02", SLURM_CONF=str(zoo.conf))
    ready(zoo, count=4)
    assert zoo.pids("node01") == {slurmd, task}


def test_another_sandbox_or_another_slurm_is_left_alone(zoo, tmp_path):
    mine = zoo.start(daemon="node01")
    zoo.start(root=tmp_path / "other", daemon="node01")
    zoo.start(SLURMD_NODENAME="node01", SLURM_CONF="/etc/slurm/slurm.conf")
    zoo.start(SLURMD_NODENAME="node01")
    zoo.start(SLURM_CONF=str(zoo.conf))  # a user's shell after `sandbox env`
    ready(zoo, count=1)
    assert zoo.pids() == zoo.pids("node01") == {mine}


def test_children_without_any_mark_belong_to_their_parent(zoo, tmp_path):
    told = tmp_path / "pid"
    parent = zoo.start(
        *("sh", "-c", f"env -i /bin/sh -c '/bin/sleep 100 & echo $! > {told}.new; mv {told}.new {told}; wait'; :"),
        daemon="node01",
    )
    assert processes.wait_until(told.exists, 10.0)
    grandchild = int(told.read_text())
    ready(zoo, "node01", count=3)
    assert {parent, grandchild} < zoo.pids("node01")
    assert processes.kill(lambda: zoo.find("node01")) == 3
    assert grandchild not in {one.pid for one in processes.scan()}


def test_a_child_with_the_mark_of_another_node_is_not_its_parents(zoo):
    zoo.start(
        *("sh", "-c", "SLURMD_NODENAME=node02 sleep 100; :"),
        daemon=None,
        SLURMD_NODENAME="node01",
        SLURM_CONF=str(zoo.conf),
    )
    ready(zoo, "node02", count=1)
    assert not zoo.pids("node01") & zoo.pids("node02")


def test_kill_kills_at_once_and_only_these(zoo):
    victim, other = zoo.start(daemon="node01"), zoo.start(daemon="node02")
    ready(zoo, count=2)
    assert processes.kill(lambda: zoo.find("node01")) == 1
    assert zoo.children[0].wait(5) == -signal.SIGKILL
    assert victim not in zoo.pids()
    assert other in zoo.pids()


def test_freeze_stops_and_leaves_no_one_running(zoo):
    zoo.start(sys.executable, "-c", "import subprocess as s; s.run(['sleep', '100'])", daemon="node01")
    ready(zoo, count=2)
    assert len(processes.freeze(zoo.find)) == 2
    assert all(one.stopped for one in zoo.find())


def test_a_process_that_forks_all_the_time_is_killed_with_all_its_children(zoo):
    zoo.start("sh", "-c", "while :; do sleep 50 & sleep 0.02; done", daemon="node01")
    assert processes.wait_until(lambda: len(zoo.find()) > 5, 10.0)
    processes.kill(zoo.find)
    assert not zoo.find()


def test_a_pid_that_belongs_to_a_later_process_is_not_signalled(zoo):
    zoo.start(daemon="node01")
    ready(zoo, count=1)
    (one,) = zoo.find()
    processes.send(replace(one, start=one.start - 1), signal.SIGKILL)
    assert zoo.children[0].poll() is None
    processes.send(one, signal.SIGKILL)
    assert zoo.children[0].wait(5) == -signal.SIGKILL
    processes.send(one, signal.SIGKILL)  # gone: no error


def test_the_caller_is_never_its_own_victim(zoo, monkeypatch):
    # /proc/self/environ is what the process was started with: ask a child that calls for itself
    code = (
        "import pathlib, sys; from pretrainctl.sandbox import processes as p; "
        f"print(p.kill(lambda: p.members(p.scan(), root=pathlib.Path({str(zoo.root)!r}), "
        f"slurm_conf=pathlib.Path({str(zoo.conf)!r}), names=['node01'])))"
    )
    environment = {**os.environ, "SLURMD_NODENAME": "node01", "SLURM_CONF": str(zoo.conf)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, timeout=30)
    assert done.stdout.strip() == b"0"


def test_names_with_brackets_and_spaces_are_read(zoo, tmp_path):
    program = tmp_path / "a) b (c"
    program.symlink_to("/bin/sleep")
    zoo.start(str(program), "100", daemon="node01")
    ready(zoo, count=1)
    (one,) = zoo.find()
    assert one.name == "a) b (c"
    assert one.parent == os.getpid()


def test_children_are_killed_before_their_parents(zoo, monkeypatch):
    """Else a stopped process group whose parent dies is let go by the kernel, and says a last word."""
    zoo.start(*("bash", "-c", "bash -c 'sleep 100 & wait' & wait"), daemon="node01")
    ready(zoo, "node01", count=3)
    told = []

    def send(process, number, really=processes.send):
        if number is signal.SIGKILL:
            told.append(process)
        really(process, number)

    monkeypatch.setattr(processes, "send", send)
    assert processes.kill(lambda: zoo.find("node01")) == 3
    below, middle, top = told
    assert (below.parent, middle.parent) == (middle.pid, top.pid)
