"""The Slurm client on a real Slurm: what the unit tests recorded is what it says."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from pretrainctl import process
from pretrainctl.errors import CommandError, SlurmError
from pretrainctl.records.job import JobClass
from pretrainctl.slurm.client import Slurm
from pretrainctl.slurm.nodes import expand, fold
from pretrainctl.slurm.refusals import RefusalClass, Retry, read_refusal
from pretrainctl.slurm.sinfo import NodeCondition

SHORT = ("--time=00:10:00", "--output=/dev/null")


def wait_for(condition, timeout, what):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {timeout} s")


@pytest.fixture
def slurm(sandbox):
    return Slurm(env=sandbox.environment())


@pytest.fixture
def sleeper(tmp_path):
    script = tmp_path / "my job.sh"
    script.write_text("#!/bin/bash\nsleep 300\n", encoding="utf-8")
    return script


@pytest.fixture
def name(request):
    return f"{request.node.name}-{os.getpid()}"


def running(slurm, job_id):
    return wait_for(lambda: slurm.jobs([job_id])[job_id].state.job_class is JobClass.RUNNING, 30, f"job {job_id} runs")


def test_a_job_from_submit_to_cancel(sandbox, slurm, sleeper, name):
    before = time.time()
    job_id = slurm.submit(sleeper, job_name=name, options=[*SHORT, "--nodes=2"]).job_id
    running(slurm, job_id)
    # The time zone of whoever asks does not matter.
    job = Slurm(env={**sandbox.environment(), "TZ": "XYZ-5"}).jobs([job_id])[job_id]
    assert before - 2 < job.submit <= job.start < time.time() + 2
    assert (job.name, job.partition, job.time_limit, job.end) == (name, "production", 600.0, None)
    assert (len(job.nodes), job.uid) == (2, os.getuid())
    assert [one.job_id for one in slurm.queued(name)] == [job_id]

    slurm.cancel([job_id])
    wait_for(lambda: slurm.queued(name) == [], 30, "the job leaves the queue")
    cancelled = wait_for(
        lambda: [
            job
            for job in slurm.jobs(names=[name]).values()
            if job.state.cancelled_by is not None and job.end is not None
        ],
        30,
        "accounting knows who cancelled it",
    )
    assert [(job.job_id, job.state.job_class) for job in cancelled] == [(job_id, JobClass.USER_CANCEL)]
    slurm.cancel([job_id])  # again: no error
    assert slurm.jobs([987654]) == {}


def test_a_pending_job_says_why_and_when(slurm, sleeper, name):
    first = slurm.submit(sleeper, job_name=name, options=[*SHORT, "--nodes=4", "--exclusive"]).job_id
    running(slurm, first)
    second = slurm.submit(sleeper, job_name=name, options=[*SHORT, "--nodes=2", "--exclusive"]).job_id
    job = wait_for(
        lambda: next(
            (job for job in slurm.queued(name) if job.job_id == second and job.expected_start is not None), None
        ),
        60,
        "backfill has a start for the pending job",
    )
    assert job.state.job_class is JobClass.PENDING
    assert (job.start, job.nodes) == (None, ())
    assert job.reason
    assert slurm.exclude(second, ["node04"]) == ()
    assert slurm.exclude(second, ["node03"]) == ()
    assert slurm.exclude(second, ["node02"]) == ("node02",), "two must be left"
    shown = slurm._show_fields(second)[0]["ExcNodeList"]
    assert set(expand(shown)) == {"node03", "node04"}


@pytest.mark.parametrize(
    ("options", "refusal_class"),
    [
        (["--partition=bosst"], RefusalClass.PARTITION),
        (["--account=nobody"], RefusalClass.ACCOUNT),
        (["--qos=debug", "--time=10:00:00"], RefusalClass.TIME_LIMIT),
        (["--qos=debug", "--nodes=3"], RefusalClass.TOO_LARGE),
        (["--nodes=2", "--gres=gpu:99"], RefusalClass.IMPOSSIBLE),
        (["--no-such-option"], RefusalClass.SCRIPT),
    ],
)
def test_refusals_are_told_apart(slurm, sleeper, name, options, refusal_class):
    with pytest.raises(SlurmError) as caught:
        slurm.submit(sleeper, job_name=name, options=[*SHORT, *options])
    assert read_refusal(caught.value.stderr).refusal_class is refusal_class
    assert caught.value.hint
    assert slurm.queued(name) == []


def test_the_limit_of_submitted_jobs_asks_for_patience(slurm, sleeper, name):
    slurm.submit(sleeper, job_name=name, options=[*SHORT, "--qos=debug"])
    with pytest.raises(SlurmError, match="QOSMaxSubmitJobPerUserLimit") as caught:
        slurm.submit(sleeper, job_name=name, options=[*SHORT, "--qos=debug"])
    assert read_refusal(caught.value.stderr).retry is Retry.LATER
    assert len(slurm.queued(name)) == 1


def test_test_only_submits_nothing(slurm, sleeper, name):
    assert "to start at" in slurm.test_only(sleeper, [*SHORT, f"--job-name={name}"])
    with pytest.raises(SlurmError):
        slurm.test_only(sleeper, [*SHORT, "--nodes=5"])
    assert slurm.queued(name) == []


def test_an_answer_that_is_lost_does_not_make_a_second_job(sandbox, sleeper, name):
    def losing(argv, **settings):
        done = process.run(argv, **settings)
        if argv[0] == "sbatch":
            raise CommandError("sbatch did not answer within 180 s")
        return done

    slurm = Slurm(losing, sandbox.environment())
    submission = slurm.submit(sleeper, job_name=name, options=SHORT)
    assert [job.job_id for job in slurm.queued(name)] == [submission.job_id]


def test_the_variables_of_an_outer_allocation_do_not_reach_the_job(sandbox, sleeper, name):
    outer = {
        "SLURM_JOB_ID": "16413634",
        "SLURM_MEM_PER_CPU": "8192",
        "SLURM_CPUS_PER_TASK": "16",
        "SBATCH_PARTITION": "interactive",
        "SLURM_TIME_FORMAT": "relative",
        "SQUEUE_FORMAT": "%i",
    }
    slurm = Slurm(env={**sandbox.environment(), **outer})
    job_id = slurm.submit(sleeper, job_name=name, options=SHORT).job_id
    job = slurm.jobs([job_id])[job_id]
    assert job_id != 16413634
    assert (job.partition, job.name) == ("production", name)
    assert job.submit is not None


def test_a_requeued_job_has_two_starts(sandbox, slurm, sleeper, name):
    job_id = slurm.submit(sleeper, job_name=name, options=[*SHORT, "--requeue"]).job_id
    running(slurm, job_id)
    wait_for(lambda: job_id in slurm.history([job_id]), 30, "accounting knows the start")
    sandbox.command("scontrol", "requeue", str(job_id))
    first, second = wait_for(
        lambda: len(starts := slurm.history([job_id]).get(job_id, [])) == 2 and starts, 30, "accounting has two"
    )
    assert (first.state.job_class, first.state.alive) == (JobClass.REQUEUED, False)
    assert (second.state.job_class, second.restart, second.start) == (JobClass.PENDING, 1, None)
    assert slurm.jobs([job_id])[job_id].state.alive


def test_node_lists_are_what_slurm_says(sandbox):
    names = ["gn8", "gn9", "gn010", "gn011", "as01r1b01", "as01r1b02", "node01-ib", "node02-ib", "c1", "alpha"]
    for text in (fold(names), "foo-[10-11]-[01-02]", "overlap_[1-3,2-4]", "gn[8-11]", "n[9-010]", "a[1-2],"):
        shown = sandbox.command("scontrol", "show", "hostnames", text).stdout.split()
        assert list(expand(text)) == shown
    assert list(expand(fold(names))) == names


INSIDE = """
import json, os, subprocess, sys, time
from pathlib import Path
from pretrainctl import process
from pretrainctl.records.launch import SrunShape
from pretrainctl.slurm.client import Slurm
from pretrainctl.slurm.environment import step_environment
from pretrainctl.slurm.nodes import expand
from pretrainctl.slurm.steps import beats_argv, training_argv

folder, nodes, job = Path(sys.argv[1]), expand(os.environ["SLURM_JOB_NODELIST"]), int(os.environ["SLURM_JOB_ID"])
slurm, env, shape = Slurm(), step_environment(os.environ), SrunShape(2, 4, 20)
report = {"nodes": nodes}

def until(condition, timeout):
    end = time.monotonic() + timeout
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()

def start(argv, name):
    with (folder / name).open("wb") as log:
        return process.start(argv, env=env, stdout=log.fileno(), stderr=log.fileno())

tell = ["bash", "-c", 'echo "$SLURM_PROCID $SLURMD_NODENAME $SLURM_NTASKS $SLURM_CPUS_PER_TASK"; exec sleep $0']
beat = ["bash", "-c", "echo $SLURMD_NODENAME; exec sleep 120"]
beats = start(beats_argv(nodes, step_name="beats", task=beat), "beats")
first = start(training_argv(shape, nodes[:2], step_name="train-0", task=[*tell, "120"]), "first")
report["both"] = until(lambda: {"beats", "train-0"} <= set(slurm.step_ids(job)), 30)
# The next restart starts while the last one is still there, and while the beats go on.
second = start(training_argv(shape, nodes[1:], step_name="train-1", task=[*tell, "2"]), "second")
report["second"] = second.wait(30)
process.run(["scancel", "--signal=KILL", slurm.step_ids(job)["train-0"]], timeout=30, env=env)
report["first"] = first.wait(30)
report["beats_alive"] = beats.poll() is None
report["left"] = sorted(slurm.step_ids(job))
beats.stop()
(folder / "report.json.tmp").write_text(json.dumps(report))
(folder / "report.json.tmp").rename(folder / "report.json")
"""


@pytest.mark.parametrize("memory", ["--exclusive", "--mem=0"])
def test_slurm_steps_beside_each_other_in_one_job(slurm, tmp_path, name, memory):
    (tmp_path / "inside.py").write_text(INSIDE, encoding="utf-8")
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/bash\n"
        "#SBATCH --nodes=3 --ntasks-per-node=4 --cpus-per-task=20 --gres=gpu:4 --no-kill\n"
        f"exec {sys.executable} {tmp_path}/inside.py {tmp_path}\n",
        encoding="utf-8",
    )
    options = [SHORT[0], f"--output={tmp_path}/out", memory]
    job_id = slurm.submit(script, job_name=name, options=options).job_id
    ended = wait_for(
        lambda: (tmp_path / "report.json").exists() or slurm.jobs([job_id])[job_id].state.alive is False,
        90,
        "the job reports",
    )
    assert ended
    assert (tmp_path / "report.json").exists(), (tmp_path / "out").read_text(encoding="utf-8")
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["both"]
    assert report["second"] == 0
    assert report["first"] not in (0, None)
    assert report["beats_alive"]
    assert {"beats"} <= set(report["left"])
    assert "train-0" not in report["left"]
    nodes = report["nodes"]
    assert set(nodes) <= set((tmp_path / "beats").read_text(encoding="utf-8").split())
    lines = (tmp_path / "second").read_text(encoding="utf-8").splitlines()
    ranks = sorted(line.partition(": ")[2] for line in lines)
    assert ranks == [f"{rank} {nodes[1 + rank // 4]} 8 20" for rank in range(8)]


def test_a_job_that_loses_a_node_goes_on_as_one_start(sandbox, slurm, tmp_path, name):
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\nwhile [ ! -e {tmp_path}/stop ]; do sleep 0.2; done\n", encoding="utf-8")
    job_id = slurm.submit(script, job_name=name, options=[*SHORT, "--nodes=3", "--no-kill", "--no-requeue"]).job_id
    running(slurm, job_id)
    nodes = slurm.jobs([job_id])[job_id].nodes
    assert not any(state.condition.broken for state in slurm.node_states(nodes).values())
    sandbox.kill_node(nodes[2])
    wait_for(lambda: slurm.node_states(nodes)[nodes[2]].condition is NodeCondition.DOWN, 60, "Slurm notices")
    assert slurm.jobs([job_id])[job_id].state.job_class is JobClass.RUNNING
    (Path(tmp_path) / "stop").touch()
    (start,) = wait_for(
        lambda: (starts := slurm.history([job_id]).get(job_id, [])) and starts[-1].state.alive is False and starts,
        30,
        "accounting knows the end",
    )
    assert start.state.job_class is JobClass.FINISHED
    assert (start.nodes, start.restart) == (nodes, 0)
    assert abs(start.elapsed - (start.end - start.start)) <= 1
