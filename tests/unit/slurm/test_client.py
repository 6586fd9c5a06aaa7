from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.errors import CommandError, MissingError, SlurmError
from pretrainctl.records.job import JobClass

SCRIPT = Path("/scratch/my run/bundle/job.sbatch")
NOW = 1_700_000_000.0  # 2023-11-14T22:13:20 UTC
BUSY = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
HEADER = "JobIDRaw|State|ExitCode|Submit|Start|End|Elapsed|Timelimit|Partition|NodeList|UID|WorkDir|JobName\n"


def queue_line(job_id, state, name="run-1", submit="2023-11-14T22:13:21"):
    return f"{job_id}|{state}|None|boost|gn001|gn001|31001|1:00|10:00|{submit}|{submit}|N/A|/scratch|{name}\n"


def account_line(job_id, state, code="0:0", submit="2023-11-14T22:13:21"):
    return f"{job_id}|{state}|{code}|{submit}|{submit}|{submit}|00:01:00|00:10:00|boost|gn001|31001|/scratch|run-1\n"


# -- submitting ------------------------------------------------------------------------------------------------


def test_submit_returns_the_job_and_the_words_of_the_site(slurm_with):
    slurm, runner, _ = slurm_with(("sbatch", "481417;boost\n", "sbatch: 12% of your hours are left\n", 0))
    submission = slurm.submit(SCRIPT, job_name="run-1", options=["--dependency=singleton"])
    assert (submission.job_id, submission.cluster) == (481417, "boost")
    assert submission.messages == ("sbatch: 12% of your hours are left",)
    assert runner.calls == [["sbatch", "--parsable", "--job-name=run-1", "--dependency=singleton", str(SCRIPT)]]


def test_a_job_inherits_nothing_of_ours_and_nothing_of_an_outer_job(slurm_with):
    env = {"PATH": "/usr/bin", "LANG": "es_ES.UTF-8", "SLURM_JOB_ID": "7", "SBATCH_PARTITION": "interactive"}
    slurm, runner, _ = slurm_with(("sbatch", "8\n"), env=env)
    slurm.submit(SCRIPT, job_name="run-1")
    assert runner.environments == [{"PATH": "/usr/bin", "LANG": "es_ES.UTF-8"}]


def test_a_refusal_keeps_the_words_of_sbatch_and_is_not_tried_again(slurm_with):
    said = (
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates"
        " accounting/QOS policy (job submit limit, user's size and/or time limits)\n"
    )
    slurm, runner, _ = slurm_with(("sbatch", "", said, 1))
    with pytest.raises(SlurmError, match="QOSMaxSubmitJobPerUserLimit; Batch job") as caught:
        slurm.submit(SCRIPT, job_name="run-1")
    assert caught.value.stderr == said
    assert "left the queue" in caught.value.hint
    assert len(runner.calls) == 1


@pytest.mark.parametrize(
    "answer",
    [
        ("sbatch", "", "", 0),
        ("sbatch", "", BUSY, 1),
        ("sbatch", "", "", -9),
        ("sbatch", CommandError("sbatch did not answer within 180 s")),
    ],
)
def test_a_job_that_was_accepted_without_an_answer_is_found_not_submitted_again(slurm_with, answer):
    slurm, runner, pauses = slurm_with(answer, ("squeue", queue_line(41, "PENDING")))
    assert slurm.submit(SCRIPT, job_name="run-1").job_id == 41
    assert [call[0] for call in runner.calls] == ["sbatch", "squeue"]
    assert "--name=run-1" in runner.calls[1]
    assert "--states=all" in runner.calls[1]
    assert sum(pauses) == 0


def test_success_without_an_id_and_without_a_job_is_never_submitted_again(slurm_with):
    slurm, _, pauses = slurm_with(("sbatch", ""), ("squeue", ""), ("squeue", ""))
    with pytest.raises(SlurmError, match="Slurm knows none named run-1"):
        slurm.submit(SCRIPT, job_name="run-1")
    assert sum(pauses) > 0


def test_a_busy_controller_is_asked_again_once_the_job_is_surely_not_there(slurm_with):
    slurm, _, pauses = slurm_with(("sbatch", "", BUSY, 1), ("squeue", ""), ("squeue", ""), ("sbatch", "42\n"))
    assert slurm.submit(SCRIPT, job_name="run-1").job_id == 42
    assert pauses == [0.0, 2.0]


def test_a_controller_that_stays_busy_ends_in_its_own_words(slurm_with):
    slurm, runner, _ = slurm_with(*[("sbatch", "", BUSY, 1), ("squeue", ""), ("squeue", "")] * 3)
    with pytest.raises(SlurmError, match="Socket timed out"):
        slurm.submit(SCRIPT, job_name="run-1")
    assert len(runner.calls) == 9


def test_a_lookup_that_fails_means_unknown(slurm_with):
    away = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    slurm, _, _ = slurm_with(("sbatch", "", BUSY, 1), ("squeue", "", away, 1))
    with pytest.raises(SlurmError, match="unknown whether the job run-1 was submitted") as caught:
        slurm.submit(SCRIPT, job_name="run-1")
    assert "Unable to contact" in caught.value.stderr
    assert "Socket timed out" in caught.value.stderr


def test_the_lookup_does_not_take_other_jobs_of_the_run_for_the_new_one(slurm_with):
    queue = (
        queue_line(39, "RUNNING")  # the job that we run in
        + queue_line(40, "PENDING")  # known to the caller
        + queue_line(38, "COMPLETED", submit="2023-11-14T21:00:00")  # long before
        + queue_line(44, "PENDING", name="run-10")
    )
    slurm, _, _ = slurm_with(
        ("sbatch", ""),
        ("squeue", queue),
        ("squeue", queue + queue_line(45, "PENDING")),
        env={"PATH": "/usr/bin", "SLURM_JOB_ID": "39"},
    )
    assert slurm.submit(SCRIPT, job_name="run-1", known=[40]).job_id == 45


def test_no_slurm_here(slurm_with):
    slurm, _, _ = slurm_with(("sbatch", MissingError("no such program")), env={"PATH": "/nowhere"})
    assert not slurm.is_here()
    with pytest.raises(MissingError, match="sbatch is not on this machine") as caught:
        slurm.submit(SCRIPT, job_name="run-1")
    assert "login node" in caught.value.hint


def test_test_only(slurm_with):
    said = "sbatch: Job 4 to start at 2026-11-30T03:56:17 using 2 processors on nodes n[1-2] in partition p\n"
    slurm, runner, _ = slurm_with(
        ("sbatch", "", said, 0),
        ("sbatch", "", "allocation failure: Requested node configuration is not available\n", 1),
    )
    assert slurm.test_only(SCRIPT, ["--nodes=2"]) == said.strip()
    assert runner.calls[0] == ["sbatch", "--test-only", "--nodes=2", str(SCRIPT)]
    with pytest.raises(SlurmError, match="node configuration is not available"):
        slurm.test_only(SCRIPT)


# -- asking ----------------------------------------------------------------------------------------------------


def test_live_jobs_cost_one_squeue(slurm_with):
    slurm, runner, _ = slurm_with(("squeue", queue_line(1, "RUNNING") + queue_line(2, "PENDING")))
    jobs = slurm.jobs([1, 2])
    assert [jobs[1].state.job_class, jobs[2].state.job_class] == [JobClass.RUNNING, JobClass.PENDING]
    assert jobs[1].submit == NOW + 1
    assert "--jobs=1,2" in runner.calls[0]


def test_ended_jobs_are_asked_of_accounting_in_one_call(slurm_with):
    slurm, runner, _ = slurm_with(
        ("squeue", queue_line(1, "RUNNING") + queue_line(2, "CANCELLED")),
        ("sacct", HEADER + account_line(2, "CANCELLED by 31001", "0:15") + account_line(3, "TIMEOUT")),
    )
    jobs = slurm.jobs([1, 2, 3, 4])
    assert {job_id: job.state.job_class for job_id, job in jobs.items()} == {
        1: JobClass.RUNNING,
        2: JobClass.USER_CANCEL,
        3: JobClass.TIME_LIMIT,
    }
    assert jobs[2].exit_signal == 15
    assert "--jobs=2,3,4" in runner.calls[1]
    assert "--duplicates" in runner.calls[1]


def test_accounting_that_lags_does_not_bring_a_job_back_to_life(slurm_with):
    slurm, _, _ = slurm_with(
        ("squeue", queue_line(1, "NODE_FAIL")),
        ("sacct", HEADER + account_line(1, "RUNNING") + account_line(2, "RUNNING")),
    )
    jobs = slurm.jobs([1, 2])
    assert jobs[1].state.job_class is JobClass.NODE_FAILURE
    # Of 2 the controller knows nothing any more: it is not alive, and how it ended nobody knows.
    assert (jobs[2].state.job_class, jobs[2].state.alive) == (JobClass.UNKNOWN, False)


def test_a_job_that_squeue_has_forgotten_is_no_error(slurm_with):
    gone = "slurm_load_jobs error: Invalid job id specified\n"
    slurm, _, _ = slurm_with(("squeue", "", gone, 1), ("sacct", HEADER))
    assert slurm.jobs([99]) == {}


def test_without_accounting_the_controller_is_asked(slurm_with):
    slurm, _, _ = slurm_with(
        ("squeue", queue_line(1, "RUNNING") + queue_line(2, "FAILED")),
        ("sacct", "", "Slurm accounting storage is disabled\n", 1),
        (
            "scontrol",
            "JobId=2 JobName=run-1 UserId=u(31001) JobState=FAILED Restarts=1 ExitCode=3:0 RunTime=00:01:00\n",
        ),
    )
    jobs = slurm.jobs([1, 2])
    assert (jobs[2].exit_code, jobs[2].restart) == (3, 1)
    assert jobs[1].state.alive


def test_while_accounting_is_away_the_controller_tells_how_a_job_that_it_knows_has_ended(slurm_with):
    slurm, _, _ = slurm_with(
        ("squeue", queue_line(2, "FAILED")),
        ("sacct", "", "sacct: error: slurm_persist_conn_open: Connection refused\n", 1),
        ("scontrol", "JobId=2 JobName=run-1 UserId=u(31001) JobState=FAILED Restarts=1 ExitCode=3:0\n"),
    )
    assert slurm.jobs([2])[2].exit_code == 3


@pytest.mark.parametrize("program", ["squeue", "sacct"])
def test_a_query_that_fails_is_an_error_never_no_jobs(slurm_with, program):
    failed = (program, "", f"{program}: error: Unable to contact slurm controller\n", 1)
    slurm, _, _ = slurm_with(*[failed] if program == "squeue" else [("squeue", ""), failed])
    with pytest.raises(SlurmError, match="Unable to contact"):
        slurm.jobs([1])


def test_a_query_that_does_not_answer_in_time_is_a_slurm_error(slurm_with):
    slurm, _, _ = slurm_with(("squeue", CommandError("squeue did not answer within 60 s")))
    with pytest.raises(SlurmError, match="did not answer"):
        slurm.queued("run-1")


def test_jobs_by_name_look_30_days_back(slurm_with):
    slurm, runner, _ = slurm_with(
        ("squeue", queue_line(2, "PENDING")), ("sacct", HEADER + account_line(1, "COMPLETED"))
    )
    assert set(slurm.jobs(names=["run-1"])) == {1, 2}
    assert "--starttime=2023-10-15T22:13:20" in runner.calls[1]


def test_nothing_asked_is_nothing_called(slurm_with):
    slurm, runner, _ = slurm_with()
    slurm.cancel([])
    assert (slurm.jobs([]), slurm.history([]), slurm.node_states([]), runner.calls) == ({}, {}, {}, [])


def test_history_has_all_starts(slurm_with, data):
    slurm, _, _ = slurm_with(("sacct", data("sacct_requeued.txt")))
    assert [job.restart for job in slurm.history([735929])[735929]] == [0, 1, 2]


def test_queued_are_the_live_jobs_of_exactly_this_name(slurm_with):
    slurm, runner, _ = slurm_with(
        ("squeue", queue_line(1, "RUNNING") + queue_line(2, "COMPLETED") + queue_line(3, "PENDING", name="other"))
    )
    assert [job.job_id for job in slurm.queued("run-1")] == [1]
    assert "--name=run-1" in runner.calls[0]


def test_step_ids(slurm_with):
    slurm, _, _ = slurm_with(("squeue", "7.2|train-1-0\n7.3|beats-1\n7.batch|batch\n"))
    assert slurm.step_ids(7)["train-1-0"] == "7.2"


def test_another_cluster_is_named_in_every_call(slurm_with):
    slurm, runner, _ = slurm_with(
        ("sbatch", "5;north\n"),
        ("squeue", ""),
        ("scancel", ""),
        ("sinfo", ""),
        cluster="north",
    )
    slurm.submit(SCRIPT, job_name="x")
    slurm.queued("x")
    slurm.cancel([5])
    slurm.node_states(["gn001"])
    assert all(call[1] == "--clusters=north" for call in runner.calls)


# -- acting ----------------------------------------------------------------------------------------------------


def test_cancel(slurm_with):
    slurm, runner, _ = slurm_with(("scancel", ""), ("scancel", ""))
    slurm.cancel([1, 2])
    slurm.cancel([3], signal="USR1")
    assert runner.calls == [
        ["scancel", "1", "2"],
        ["scancel", "--signal=USR1", "3"],
    ]


def test_cancelling_what_has_ended_is_no_error_but_a_refusal_is(slurm_with):
    ended = "scancel: error: Kill job error on job id 5: Job/step already completing or completed\n"
    denied = "scancel: error: Kill job error on job id 6: Access/permission denied\n"
    slurm, _, _ = slurm_with(("scancel", "", ended, 1), ("scancel", "", denied, 1))
    slurm.cancel([5])
    with pytest.raises(SlurmError, match="permission denied"):
        slurm.cancel([6])


def pending(excluded: str, nodes: str, partition: str = "boost") -> tuple[str, str]:
    fields = f"JobState=PENDING ExcNodeList={excluded} NodeList= NumNodes={nodes} Partition={partition}"
    return ("scontrol", f"JobId=5 JobName=x {fields}\n")


def in_service(*states: str, partition: str = "boost*") -> tuple[str, str]:
    return ("sinfo", "".join(f"{partition}|gn{16 + n:03}|{state}|(null)|none\n" for n, state in enumerate(states)))


def test_excluding_nodes_adds_to_those_avoided_already(slurm_with):
    slurm, runner, _ = slurm_with(pending("gn[005,017]", "2-2"), in_service(*["idle"] * 4), ("scontrol", ""))
    assert slurm.exclude(5, ["gn017", "gn018"]) == ()
    assert "--partition=boost" in runner.calls[1]
    assert runner.calls[2] == ["scontrol", "update", "JobId=5", "ExcNodeList=gn[005,017-018]"]


@pytest.mark.parametrize(
    ("needed", "states", "dead", "avoided", "kept"),
    [
        ("4-4", ["alloc"] * 4, ["gn016"], None, ("gn016",)),
        ("3", ["alloc"] * 4, ["gn016", "gn017"], "gn016", ("gn017",)),
        ("3", ["alloc", "alloc", "alloc", "down*"], ["gn016"], None, ("gn016",)),
        ("3", ["alloc", "alloc", "alloc", "drng"], ["gn016"], None, ("gn016",)),
        ("2", ["alloc", "down*", "alloc", "mix"], ["gn016", "gn017"], "gn[016-017]", ()),
        ("3", ["idle"], ["gn016"], None, ("gn016",)),
    ],
)
def test_a_job_avoids_no_more_nodes_than_it_can_do_without(slurm_with, needed, states, dead, avoided, kept):
    update = [("scontrol", "")] if avoided else []
    slurm, runner, _ = slurm_with(pending("(null)", needed), in_service(*states), *update)
    assert slurm.exclude(5, dead) == kept
    assert [call[-1] for call in runner.calls[2:]] == ([f"ExcNodeList={avoided}"] if avoided else [])


def test_of_several_partitions_one_that_holds_enough_is_enough(slurm_with):
    both = ("sinfo", in_service(*["idle"] * 2)[1] + in_service(*["idle"] * 4, partition="long")[1])
    slurm, _, _ = slurm_with(pending("(null)", "2", "boost,long"), both, ("scontrol", ""))
    assert slurm.exclude(5, ["gn016", "gn017", "gn018"]) == ("gn018",)


def test_a_job_that_is_gone_avoids_nothing(slurm_with):
    slurm, _, _ = slurm_with(("scontrol", "", "slurm_load_jobs error: Invalid job id specified\n", 1))
    assert slurm.exclude(5, ["gn016"]) == ()
