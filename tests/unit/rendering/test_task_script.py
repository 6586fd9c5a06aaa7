"""task.sh as it runs: who a task is, signals, exit statuses, the record of the first failure."""

from __future__ import annotations

import json
import signal
import socket
import stat
import sys
import time
from pathlib import Path

import pytest

from pretrainctl.records import codec
from pretrainctl.records.contract import Failure

SHOW = """
import json, os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
print(json.dumps({"argv": sys.argv[1:], **{name: os.environ.get(name) for name in names}}))
"""
LISTEN = """
import pathlib, signal, sys, time
seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append("TERM"))
signal.signal(signal.SIGUSR1, lambda *_: seen.append("USR1"))
flag, status = pathlib.Path(sys.argv[1]), int(sys.argv[2])
flag.with_suffix(".ready").touch()
end = time.monotonic() + 20
while not seen and time.monotonic() < end:
    time.sleep(0.01)
flag.write_text(" ".join(seen))
time.sleep(1.5)
sys.exit(status)
"""


def wait_for(path: Path, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear within {seconds} s"
        time.sleep(0.01)


def test_each_task_knows_its_own_rank_and_gets_its_arguments_byte_for_byte(make_run):
    arguments = ["--run-name", "my run", 'a "b" $c', "it's", "", "*", "-n", "a\nb", "naïve ☃", "$(exit 3)", "\\"]
    run = make_run(sys.executable, "-c", SHOW, *arguments)
    tasks = [run.start(rank, 4, MASTER_ADDR="node00") for rank in range(4)]
    said = []
    for task in tasks:
        out, err = task.communicate(timeout=30)
        assert task.returncode == 0, err.decode()
        said.append(json.loads(out))
    assert [one["RANK"] for one in said] == ["0", "1", "2", "3"]
    assert {one["WORLD_SIZE"] for one in said} == {"4"}
    assert {one["LOCAL_RANK"] for one in said} == {"0"}
    assert {one["LOCAL_WORLD_SIZE"] for one in said} == {"1"}
    assert {one["MASTER_ADDR"] for one in said} == {"node00"}
    assert all(one["argv"] == arguments for one in said)


def test_local_world_size_is_the_ranks_of_a_node(make_run):
    run = make_run(sys.executable, "-c", SHOW, settings=["resources.tasks_per_node=2", "training.micro_batch=2"])
    out, _ = run.start(1, 4, SLURM_LOCALID="1").communicate(timeout=30)
    assert json.loads(out)["LOCAL_WORLD_SIZE"] == "2"
    assert json.loads(out)["LOCAL_RANK"] == "1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_reaches_the_program_at_once_and_the_script_lives_as_long_as_the_program(make_run, tmp_path, number):
    flag = tmp_path / "flag"
    run = make_run(sys.executable, "-c", LISTEN, str(flag), "42")
    task = run.start()
    wait_for(flag.with_suffix(".ready"))
    sent = time.monotonic()
    task.send_signal(number)
    wait_for(flag, 2.0)
    assert task.poll() is None, "the script ended before the program"
    task.communicate(timeout=30)
    assert flag.read_text() == number.name.removeprefix("SIG")
    assert task.returncode == 42
    assert time.monotonic() - sent >= 1.5


def test_many_signals_do_not_lose_the_exit_status(make_run, tmp_path):
    flag = tmp_path / "flag"
    run = make_run(sys.executable, "-c", LISTEN, str(flag), "75")
    task = run.start()
    wait_for(flag.with_suffix(".ready"))
    for number in (signal.SIGUSR1, signal.SIGTERM) * 5:
        task.send_signal(number)
        time.sleep(0.02)
    task.communicate(timeout=30)
    assert task.returncode == 75


@pytest.mark.parametrize(
    ("program", "status"),
    [
        (("bash", "-c", "exit 0"), 0),
        (("bash", "-c", "exit 42"), 42),
        (("bash", "-c", "exit 75"), 75),
        (("bash", "-c", "kill -TERM $$"), 143),
        (("bash", "-c", "kill -KILL $$"), 137),
        (("/nonexistent/program",), 127),
    ],
)
def test_the_exit_status_is_the_programs_and_the_first_failure_is_recorded(make_run, program, status):
    run = make_run(*program)
    before = time.time()
    task = run.start(3, 4)
    task.communicate(timeout=30)
    assert task.returncode == status
    record = run.restart / "failure.json"
    if status in (0, 75):
        assert not record.exists()
        return
    failure = codec.read(Failure, record)
    assert (failure.rank, failure.node, failure.status) == (3, "node03", status)
    assert before <= failure.time <= time.time()
    assert [path.name for path in run.restart.iterdir()] == ["failure.json"]


def test_the_first_of_several_failures_wins(make_run):
    run = make_run("bash", "-c", "exit $((RANK + 10))")
    for rank in (2, 0, 1):
        run.start(rank, 3).communicate(timeout=30)
    assert codec.read(Failure, run.restart / "failure.json").rank == 2


def test_a_full_log_disk_does_not_change_the_status(make_run, tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    run = make_run("bash", "-c", "echo step output; exit 42")
    text = (run.folder / "bundle" / "task.sh").read_text()
    assert "tee" not in text.split()
    run.restart.rmdir()  # the record cannot be written either
    with Path("/dev/full").open("wb") as full:
        task = run.start(stdout=full)
        task.communicate(timeout=30)
    assert task.returncode == 42


def test_a_program_of_ones_own_is_told_to_resume(make_run):
    program = {
        "argv": [sys.executable, "-c", SHOW, "--data", "{run_dir}/x"],
        "checkpoint": {"directory": "{run_dir}/ckpt"},
        "resume_arguments": ["--load", "{tag}", "tag={tag}, {run_dir}"],
    }
    run = make_run("true", settings=[f"program={json.dumps(program)}"])
    fresh, _ = run.start(PRETRAINCTL_RESUME_TAG="").communicate(timeout=30)
    assert json.loads(fresh)["argv"] == ["--data", f"{run.folder}/x"]
    tag = "global step & 20"
    again, _ = run.start(PRETRAINCTL_RESUME_TAG=tag).communicate(timeout=30)
    assert json.loads(again)["argv"][2:] == ["--load", tag, f"tag={tag}, {run.folder}"]
    assert run.launch.checkpoint.directory == run.folder / "ckpt"


def test_scripts_can_be_executed(make_run):
    run = make_run("true")
    for name in ("job.sbatch", "task.sh"):
        assert (run.folder / "bundle" / name).stat().st_mode & stat.S_IXUSR


TORCHRUN = """
import json, os, pathlib, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK")
out = pathlib.Path(sys.argv[1])
(out / os.environ["RANK"]).write_text(json.dumps({name: os.environ.get(name) for name in names}))
"""


def test_torchrun_starts_the_ranks_of_each_node_in_the_order_of_the_nodes(make_run, tmp_path):
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    run = make_run(
        *(sys.executable, "-c", TORCHRUN, str(ranks)),
        settings=["cluster.tasks.launcher=torchrun", "resources.tasks_per_node=2", "training.micro_batch=2"],
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    tasks = [run.start(node, 2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, OMP_NUM_THREADS="1") for node in range(2)]
    for task in tasks:
        _, err = task.communicate(timeout=120)
        assert task.returncode == 0, err.decode()
    said = {path.name: json.loads(path.read_text()) for path in ranks.iterdir()}
    assert sorted(said) == ["0", "1", "2", "3"]
    for rank, one in said.items():
        assert (one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"], one["MASTER_PORT"]) == ("4", "2", port)
        assert (int(one["GROUP_RANK"]), int(one["LOCAL_RANK"])) == divmod(int(rank), 2)


def test_torchrun_is_told_to_end_by_either_signal_and_its_ranks_with_it(make_run, tmp_path):
    flag = tmp_path / "flag"
    run = make_run(
        *(sys.executable, "-c", LISTEN, str(flag), "75"),
        settings=["cluster.tasks.launcher=torchrun", "resources.nodes=1", "training.micro_batch=8"],
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    task = run.start(0, 1, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    wait_for(flag.with_suffix(".ready"), 60)
    task.send_signal(signal.SIGUSR1)
    task.communicate(timeout=60)
    assert flag.read_text() == "TERM"
    assert codec.read(Failure, run.restart / "failure.json").rank == 0


@pytest.mark.parametrize("status", [0, 75])
@pytest.mark.parametrize("rank", [0, 3])
def test_a_task_that_ends_well_before_there_is_an_end_record_says_so(make_run, status, rank):
    run = make_run("bash", "-c", f"exit {status}")
    task = run.start(rank, 4)
    task.communicate(timeout=30)
    assert task.returncode == status
    left = codec.read(Failure, run.restart / "left.json")
    assert (left.rank, left.status) == (rank, status)
    assert not (run.restart / "failure.json").exists()


def test_ranks_that_end_one_by_one_around_the_end_record_say_nothing(make_run):
    run = make_run("bash", "-c", "exit 0")
    first = run.start(1, 4)
    time.sleep(0.5)
    (run.restart / "end.json").write_text("{}")
    late = run.start(2, 4)
    for task in (first, late):
        task.communicate(timeout=30)
        assert task.returncode == 0
    assert not list(run.restart.glob("*left*"))
