"""The sandbox itself: what runs, what dies, what is left."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

import pytest

from pretrainctl.errors import CommandError, InputError, MissingError, SlurmError
from pretrainctl.sandbox import Sandbox, Shape, processes
from tests.sandbox.training_runs import wait_until


@pytest.fixture
def folder():
    """A folder that jobs write into."""
    path = Path(tempfile.mkdtemp(prefix="ptj-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def submit(sandbox: Sandbox, folder: Path, script: str, *options: str) -> str:
    """Submit a job that runs `script` by bash in `folder`; its id."""
    argv = ("sbatch", "--parsable", f"--chdir={folder}", "--output=job.log", *options, "--wrap", script)
    return sandbox.command(*argv).stdout.strip()


def job_state(sandbox: Sandbox, job: str) -> str:
    return sandbox.command("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.strip()


def pids(folder: Path, pattern: str, count: int) -> dict[str, int]:
    """File name -> pid, once `count` files that match are written in full."""

    def found() -> dict[str, int]:
        texts = {file.name: file.read_text() for file in folder.glob(pattern)}
        return {name: int(text) for name, text in texts.items() if text.endswith("\n")}

    return wait_until(lambda: found() if len(found()) == count else None, 20, f"{count} files {pattern}")


def alive(pid: int) -> bool:
    return pid in {one.pid for one in processes.scan()}


def test_up_again_starts_nothing_and_says_what_runs(sandbox):
    said = []
    before = sandbox.status()
    after = Sandbox(sandbox.root, say=said.append).up()
    assert after.up
    assert after.daemons == before.daemons
    assert [node.pid for node in after.nodes] == [node.pid for node in before.nodes]
    assert said == ["the sandbox is up already: 4 nodes, each claims 4 GPUs and 80 CPUs"]


def test_another_shape_is_refused_while_it_runs(sandbox):
    with pytest.raises(InputError, match="another shape"):
        sandbox.up(Shape(nodes=2))
    assert sandbox.status().up


def test_a_job_for_whole_nodes_of_a_large_machine_runs_and_is_in_the_history(sandbox, folder):
    script = "srun --ntasks-per-node=1 sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SLURM_CPUS_ON_NODE'"
    job = submit(sandbox, folder, script, "--nodes=4", "--exclusive", "--gres=gpu:4", "--cpus-per-task=80")
    wait_until(lambda: job_state(sandbox, job) == "COMPLETED", 20, "the job")
    said = sorted((folder / "job.log").read_text().splitlines())
    assert said == [f"node0{number} 0,1,2,3 80" for number in (1, 2, 3, 4)]

    def history() -> str:
        return sandbox.command("sacct", "-nPX", "-j", job, "-o", "state,nnodes,partition,account").stdout.strip()

    wait_until(lambda: history() == "COMPLETED|4|production|sandbox", 20, "the history")


def test_a_node_dies_with_all_that_runs_on_it_and_nothing_else(sandbox, folder):
    script = (
        "srun --nodes=2 --ntasks=2 sh -c '"
        'setsid sh -c "echo \\$\\$ > detached.$SLURMD_NODENAME; exec sleep 300" & '
        'env -i sh -c "echo \\$\\$ > bare.$0; exec sleep 300" & '
        "echo $$ > task.$SLURMD_NODENAME; wait'"
    ).replace("$0", "$SLURMD_NODENAME")
    submit(sandbox, folder, script, "--nodes=2", "--nodelist=node01,node02", "--no-kill")
    found = pids(folder, "*.node0*", 6)
    sandbox.kill_node("node02")
    assert {name for name, pid in found.items() if not alive(pid)} == {"task.node02", "detached.node02", "bare.node02"}
    states = {node.name: node for node in sandbox.status().nodes}
    assert states["node02"].pid is None
    assert all(states[name].pid for name in ("node01", "node03", "node04"))
    with pytest.raises(MissingError, match="node02"):
        sandbox.kill_node("node02")
    sandbox.revive_node("node02")
    job = submit(sandbox, folder, "hostname", "--nodelist=node02")
    wait_until(lambda: job_state(sandbox, job) == "COMPLETED", 20, "a job on the revived node")


def test_a_silent_node_keeps_its_connections_and_answers_nobody(sandbox, folder):
    code = (
        "import os, socket; s = socket.create_server(('127.0.0.1', 0)); "
        "f = open('port.new', 'w'); f.write(str(s.getsockname()[1]) + chr(10)); f.close(); "
        "os.rename('port.new', 'port'); c = s.accept()[0]\n"
        "while True: c.send(c.recv(1))"
    )
    (folder / "echo.py").write_text(code)
    submit(sandbox, folder, "srun python3 echo.py", "--nodelist=node03")
    port = pids(folder, "port", 1)["port"]
    with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
        connection.send(b"a")
        assert connection.recv(1) == b"a"
        sandbox.kill_node("node03", silent=True)
        connection.send(b"b")
        with pytest.raises(TimeoutError):  # neither an answer nor an end
            connection.recv(1)
        (node,) = [node for node in sandbox.status().nodes if node.name == "node03"]
        assert node.silent
        sandbox.revive_node("node03")
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    (node,) = [node for node in sandbox.status().nodes if node.name == "node03"]
    assert not node.silent


def test_a_node_that_cannot_start_says_why_and_does_not_wait(sandbox):
    shown = sandbox.command("scontrol", "show", "node", "node04", "--oneliner").stdout
    port = int(re.search(r" Port=(\d+)", shown)[1])
    sandbox.kill_node("node04")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        began = time.monotonic()
        with pytest.raises(SlurmError, match=str(port)):
            sandbox.revive_node("node04", timeout=300)
        assert time.monotonic() - began < 60
    sandbox.revive_node("node04")


def test_a_node_that_is_none_is_refused_with_those_that_are(sandbox):
    with pytest.raises(InputError) as error:
        sandbox.kill_node("node09")
    assert "node01, node02, node03, node04" in error.value.hint


@pytest.mark.parametrize("option", ["--time=31", "--nodes=3"])
def test_the_debug_queue_refuses_what_is_too_large_at_submit(sandbox, folder, option):
    with pytest.raises(CommandError) as error:
        submit(sandbox, folder, "hostname", "--qos=debug", option)
    assert "QOSMax" in error.value.stderr


def test_the_debug_queue_takes_one_job_of_a_user(sandbox, folder):
    job = submit(sandbox, folder, "sleep 100", "--qos=debug", "--nodes=2", "--time=30")
    with pytest.raises(CommandError) as error:
        submit(sandbox, folder, "hostname", "--qos=debug")
    assert "QOSMaxSubmitJobPerUserLimit" in error.value.stderr
    wait_until(lambda: job_state(sandbox, job) == "RUNNING", 20, "the first one")


def test_a_signal_to_a_step_reaches_every_process_of_it_and_not_the_batch_script(sandbox, folder):
    (folder / "told.sh").write_text('trap "echo $1 >> told" USR1; echo $$ > ready.$1; while :; do sleep 0.1; done\n')
    script = "bash told.sh batch & srun sh -c 'setsid bash told.sh detached & exec bash told.sh task'"
    job = submit(sandbox, folder, script)
    pids(folder, "ready.*", 3)
    sandbox.command("scancel", "--signal=USR1", f"{job}.0")
    wait_until(lambda: (folder / "told").exists() and len((folder / "told").read_text().split()) >= 2, 10, "signals")
    assert sorted((folder / "told").read_text().split()) == ["detached", "task"]


def test_the_high_queue_preempts_with_a_warning_to_the_tasks(sandbox, folder):
    (folder / "told.sh").write_text('trap "echo $1 >> told" TERM; echo $$ > ready.$1; while :; do sleep 0.1; done\n')
    script = "bash told.sh batch & srun --nodes=1 --ntasks=1 bash told.sh task"
    job = submit(sandbox, folder, script, "--nodes=4", "--exclusive")
    pids(folder, "ready.*", 2)
    submit(sandbox, folder, "hostname", "--partition=high", "--exclusive")
    wait_until((folder / "told").exists, 15, "SIGTERM in the task")
    assert (folder / "told").read_text() == "task\n"
    assert job_state(sandbox, job) == "RUNNING"


@pytest.fixture
def other(tmp_path):
    """A second sandbox beside the tests' own, in a folder that no socket's name could hold."""
    root = tmp_path / "a folder" / ("x" * 60)
    machine = Sandbox(root)
    yield machine
    machine.down()


def traces(machine: Sandbox) -> list[str]:
    """Every process of this machine, but us, that has the sandbox's folder in its environment or its command."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if int(entry.name) != os.getpid() and any(
            str(path).encode() in text for path in (machine.root, machine.layout.short)
        ):
            found.append(f"{entry.name} {text!r}")
    return found


def test_a_life_beside_another_sandbox(sandbox, other, folder):
    """Up, a crash, up, a broken database, up, down: each `up` works, nothing of it is ever left or mixed up."""
    began = time.monotonic()
    first = other.up(Shape(nodes=1, gpus=1))
    assert time.monotonic() - began < 15
    assert first.up
    assert first.cluster != sandbox.status().cluster
    said = []
    machine = Sandbox(other.root, say=said.append)

    submit(machine, folder, "echo $$ > job; setsid sleep 300 & wait")
    job = pids(folder, "job", 1)["job"]
    queued = submit(machine, folder, "touch started", "--dependency=singleton", "--job-name=wrap")
    for one in processes.scan():
        if (one.daemon or "").endswith(f"@{machine.root}") and one.name != "slurmstepd":
            os.kill(one.pid, signal.SIGKILL)
    assert wait_until(lambda: not machine.status().up, 5, "the crash")
    assert alive(job)
    assert machine.up().up
    assert not alive(job)
    assert any("a crash left behind" in line for line in said)
    assert queued not in machine.command("squeue", "-h", "-o", "%i").stdout.split()

    assert machine.down() > 4
    assert traces(machine) == []
    assert not machine.layout.short.is_symlink()
    assert not (folder / "started").exists()
    with (machine.root / "db" / "ibdata1").open("r+b") as file:
        file.write(os.urandom(200_000))
    assert machine.up().up
    assert any("cannot be read" in line for line in said)
    assert re.search(r"sandbox\|", machine.command("sacctmgr", "-nP", "show", "account").stdout)

    machine.down()
    assert traces(machine) == []
    assert machine.down() == 0
    assert sandbox.status().up
    assert all(node.state == "idle" for node in sandbox.status().nodes)
