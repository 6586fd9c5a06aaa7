from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone

import pytest

from pretrainctl.errors import SlurmError
from pretrainctl.records.job import JobClass
from pretrainctl.slurm.nodes import expand
from pretrainctl.slurm.parse import (
    parse_moment,
    parse_sacct,
    parse_sbatch,
    parse_scontrol,
    parse_squeue,
    parse_steps,
    scontrol_job,
)
from pretrainctl.units import parse_size

UTC = timezone.utc


def test_a_job_requeued_under_its_own_id_is_several_starts_of_one_job(data):
    jobs = parse_sacct(data("sacct_requeued.txt"), UTC)
    assert list(jobs) == [735929]
    starts = jobs[735929]
    assert [(start.restart, start.state.text, start.elapsed) for start in starts] == [
        (0, "REQUEUED", 3889.0),
        (1, "NODE_FAIL", 4473.0),
        (2, "COMPLETED", 6122.0),
    ]
    assert [[step.step for step in start.steps] for start in starts] == [
        ["batch", "extern", "0"],
        ["batch", "1"],
        ["batch", "2"],
    ]
    assert [start.nodes for start in starts] == [
        ("gn011", "gn012", "gn013", "gn014"),
        ("gn011", "gn012", "gn013", "gn020"),
        ("gn011", "gn013", "gn020", "gn021"),
    ]
    assert sum(start.elapsed for start in starts) == 14484
    assert [after.start - before.end for before, after in itertools.pairwise(starts)] == [872, 956]
    assert starts[-1].state.job_class is JobClass.FINISHED
    assert not any(start.state.alive for start in starts)
    assert starts[1].state.job_class is JobClass.NODE_FAILURE


def test_starts_and_steps_are_sorted_out_by_time_not_by_the_order_of_lines(data):
    header, *lines = data("sacct_requeued.txt").splitlines()
    # Slurm steps come after their job here, so all of them follow the last start.
    jobs_first = sorted(lines, key=lambda line: ("." in line, line))
    shuffled = parse_sacct("\n".join([header, *jobs_first]), UTC)[735929]
    assert [{step.step for step in start.steps} for start in shuffled] == [
        {"batch", "extern", "0"},
        {"batch", "1"},
        {"batch", "2"},
    ]


def test_a_job_that_lost_a_node_and_went_on_is_one_start(data):
    (job,) = parse_sacct(data("sacct_resized.txt"), UTC)[8]
    assert (job.restart, job.state.job_class, job.elapsed) == (0, JobClass.FINISHED, 48.0)
    assert job.nodes == ("node01", "node02", "node03")
    assert job.end - job.start == 48
    assert [step.step for step in job.steps] == ["batch", "0", "2"]
    assert (job.name, job.work_dir, job.uid) == ("a|b", "/scratch/run", 1000)


def test_a_pending_job_in_accounting_has_no_start_and_no_nodes():
    text = (
        "JobIDRaw|State|ExitCode|Submit|Start|End|Elapsed|Timelimit|NodeList|UID|JobName\n"
        "7|REQUEUED|0:0|2026-01-01T00:00:00|2026-01-01T00:00:05|2026-01-01T00:01:00|00:00:55|UNLIMITED|n1|7|x\n"
        "7|PENDING|0:0|2026-01-01T00:01:00|Unknown|Unknown|00:00:00|Partition_Limit|None assigned|7|x\n"
    )
    first, second = parse_sacct(text, UTC)[7]
    assert (first.state.alive, second.state.alive) == (False, True)
    assert (second.start, second.end, second.nodes, second.time_limit) == (None, None, (), None)
    assert first.time_limit is None


@pytest.mark.parametrize(
    "text", ["sacct: nothing here", "JobIDRaw|State\n7|RUNNING|extra", "JobIDRaw|State\nx|RUNNING"]
)
def test_accounting_that_cannot_be_read_is_an_error(text):
    if text.endswith("extra"):
        # The last column may hold the separator, so this one is a state, and an unknown one.
        assert parse_sacct(text, UTC)[7][0].state.job_class is JobClass.UNKNOWN
        return
    with pytest.raises(SlurmError):
        parse_sacct(text, UTC)


def test_squeue_lines():
    running, pending = parse_squeue(
        "1|RUNNING|None|boost|node[02-03]|node01|31001|53:20|10:00|2026-11-30T03:45:07|2026-11-30T03:45:08"
        "|2026-11-30T03:55:08|/scratch/my run|a b|c\n"
        "2|PENDING|Resources|boost||n/a|31001|0:00|UNLIMITED|2026-11-30T03:45:07|2026-11-30T03:55:07"
        "|2026-11-30T04:05:07|/scratch|nm\n",
        UTC,
    )
    start = datetime(2026, 11, 30, 3, 45, 8, tzinfo=UTC).timestamp()
    assert (running.name, running.work_dir) == ("a b|c", "/scratch/my run")
    assert (running.start, running.end, running.expected_start) == (start, None, None)
    assert (running.elapsed, running.time_limit, running.reason) == (3200.0, 600.0, "")
    assert (pending.start, pending.end, pending.expected_start) == (None, None, start + 599)
    assert (pending.reason, pending.time_limit, pending.nodes) == ("Resources", None, ())
    assert (running.batch_host, running.nodes, pending.batch_host) == ("node01", ("node02", "node03"), "")
    assert pending.state.job_class is JobClass.PENDING


@pytest.mark.parametrize("text", ["slurm_load_jobs error", "x|RUNNING|None|p|n1|n1|0|0:00|1:00|N/A|N/A|N/A|/|n"])
def test_squeue_that_cannot_be_read_is_an_error(text):
    with pytest.raises(SlurmError):
        parse_squeue(text, UTC)


def test_scontrol_is_cut_at_known_keys_not_at_blanks(data):
    (fields,) = parse_scontrol(data("scontrol_blanks.txt"))
    assert fields["ArrayJobId"] == "2653325"
    assert fields["ArrayTaskId"] == "1"
    assert fields["Requeue"] == "1"
    assert fields["BatchHost"] == "gn001"
    assert expand(fields["ExcNodeList"]) == ("gn005", "gn017")
    assert parse_size(fields["MinMemoryNode"]) == 480 * 1024**3
    assert "gres/gpu=16" in fields["AllocTRES"].split(",")
    assert fields["Command"] == "/scratch/lab a/run dir/job.sh --set a=b"
    assert fields["StdOut"] == "/scratch/lab a/run dir/logs/llama 7b lr=3e-4-2653325_1.out"
    assert fields["Power"] == ""
    assert fields["NtasksPerN:B:S:C"] == "1:0:*:*"
    assert fields["AllocNode:Sid"] == "login02:4711"
    assert not {"lr", "a", "cause"} & set(fields)
    job = scontrol_job(fields, UTC)
    assert (job.job_id, job.name, job.restart, job.uid) == (2653326, "llama 7b lr=3e-4", 3, 2422)
    assert (job.elapsed, job.time_limit, job.end) == (97142.0, None, None)
    assert job.nodes == ("gn001", "gn002", "gn003", "gn004")
    assert job.work_dir == "/scratch/lab a/run dir"
    assert job.comment == "retry of 2653001, cause=node gn017"


def test_scontrol_without_a_state_is_an_error():
    with pytest.raises(SlurmError):
        scontrol_job({"JobId": "3"})


@pytest.mark.parametrize("text", ["None", "Unknown", "N/A", "", "Tomorr 09:00", "yesterday"])
def test_a_time_that_is_not_there_is_none(text):
    assert parse_moment(text, UTC) is None


def test_a_time_without_a_zone_is_read_in_the_zone_it_was_printed_in():
    text = "2026-03-29T02:30:00"
    east = timezone(timedelta(hours=2))
    assert parse_moment(text, UTC) - parse_moment(text, east) == 7200
    assert parse_moment(text) == datetime.fromisoformat(text).timestamp()


def test_live_slurm_steps_by_name():
    assert parse_steps("7.2|train-1-0\n7.batch|batch\n7.3|beats|x\n") == {
        "train-1-0": "7.2",
        "batch": "7.batch",
        "beats|x": "7.3",
    }


BANNER = """-----------------------------------------------------------------
          Welcome to the cluster, 2026 maintenance on 12 May
-----------------------------------------------------------------
--> Verifying valid submit host (login3)...OK
No reservation for this job
481417
"""


@pytest.mark.parametrize(
    ("stdout", "stderr", "job_id", "cluster"),
    [
        ("75168975;clustername\n", "", 75168975, "clustername"),
        ("7787232\n", "sbatch: no partition specified, using default partition all_serial\n", 7787232, None),
        ("Submitted batch job 3969755 on cluster nautilus\n", "", 3969755, "nautilus"),
        (BANNER, "", 481417, None),
        (
            "Submitted batch job 8653762\n",
            "sbatch: lua: account acc01 has 12% of its GPU hours left\n",
            8653762,
            None,
        ),
    ],
)
def test_what_sbatch_prints_on_success(stdout, stderr, job_id, cluster):
    submission = parse_sbatch(stdout, stderr)
    assert (submission.job_id, submission.cluster) == (job_id, cluster)
    for line in stderr.splitlines():
        assert line in submission.messages


def test_the_messages_of_a_site_reach_the_user():
    messages = parse_sbatch(BANNER).messages
    assert "Welcome to the cluster, 2026 maintenance on 12 May" in messages
    assert "481417" not in messages


@pytest.mark.parametrize("stdout", ["", "\n", "maintenance in 2026\n", "sbatch: 3 jobs\n"])
def test_no_id_is_none(stdout):
    assert parse_sbatch(stdout) is None
