"""Evidence to one class."""

from __future__ import annotations

import itertools

import pytest

from pretrainctl.records.contract import End, ExitCode, Failure, Request
from pretrainctl.records.job import JobClass
from pretrainctl.recovery.diagnosis import Evidence, FailureClass, diagnose
from pretrainctl.recovery.log_reading import LogReading


def end(kind: str, reason: str = "") -> End:
    return End(kind, 120, 480_000, "global_step120", reason, 1.7e9)


def failure(status: int) -> Failure:
    return Failure(3, "node02", status, 1.7e9)


def request(reason: str, action: str = "save_and_exit") -> Request:
    return Request(action, 2, reason, 1, 1.7e9)


def log(*lines: str) -> LogReading:
    reading = LogReading(stepped=True)
    for line in lines:
        reading.add(line)
    return reading


def kind(**evidence) -> str:
    return diagnose(Evidence(**evidence)).failure_class


# the proof of the end


def test_srun_returning_0_without_an_end_record_is_not_success() -> None:
    found = diagnose(Evidence(srun_status=0))
    assert found.failure_class == "unknown"
    assert "no end record" in found.message


def test_srun_returning_0_after_a_node_failure() -> None:
    found = diagnose(Evidence(srun_status=0, dead_nodes={"node03": "silent for 10 s"}, last_step=17))
    assert (found.failure_class, found.nodes) == ("node_failure", ("node03",))
    assert "silent for 10 s" in found.message


def test_nothing_known_is_unknown() -> None:
    assert kind() == "unknown"


def test_a_reached_target_cannot_be_overruled() -> None:
    everything = {
        "srun_status": [0, 1, 137, None],
        "failure": [None, failure(137)],
        "dead_nodes": [{}, {"node01": "closed"}],
        "job_class": [None, *JobClass],
    }
    for values in itertools.product(*everything.values()):
        assert kind(end=end("reached"), **dict(zip(everything, values, strict=True))) == "finished"


def test_only_an_end_record_is_success() -> None:
    everything = {
        "srun_status": [0, 1, None],
        "end": [None, end("checkpointed"), end("failed"), end("diverged"), end("fenced")],
        "failure": [None, failure(0), failure(75), failure(137)],
        "job_class": [None, *JobClass],
        "request": [None, request("time_limit"), request("stop")],
    }
    for values in itertools.product(*everything.values()):
        assert kind(**dict(zip(everything, values, strict=True))) != "finished"


# ends in good order


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        ({"request": request("time_limit")}, "time_limit"),
        ({"request": request("stop")}, "stopped"),
        ({"request": request("preempted")}, "preempted"),
        ({"job_class": JobClass.TIME_LIMIT}, "time_limit"),
        ({"job_class": JobClass.PREEMPTED}, "preempted"),
        ({"job_class": JobClass.REQUEUED}, "preempted"),
        ({"request": request("save", "save")}, "checkpointed"),
        ({}, "checkpointed"),
        ({"srun_status": 137, "failure": failure(75)}, "checkpointed"),
    ],
)
def test_a_save_and_why_it_was_asked_for(evidence, expected: str) -> None:
    found = diagnose(Evidence(end=end("checkpointed", "signal"), **evidence))
    assert found.failure_class == expected
    assert "120" in found.message


@pytest.mark.parametrize(("reason", "expected"), [("stop", "stopped"), ("time_limit", "time_limit")])
def test_the_end_record_tells_which_request_was_obeyed(reason: str, expected: str) -> None:
    """A stop asked for from the login node is not known to the attempt as a request of its own."""
    assert kind(end=end("checkpointed", reason)) == expected
    assert kind(end=end("checkpointed", reason), job_class=JobClass.NODE_FAILURE) == expected


def test_a_stop_beats_a_time_limit_that_comes_after_it() -> None:
    assert kind(end=end("checkpointed", "stop"), request=request("time_limit")) == "stopped"
    assert kind(end=end("checkpointed", "time_limit"), request=request("stop")) == "stopped"


@pytest.mark.parametrize("status", [0, 1, 137])
def test_divergence(status: int) -> None:
    assert kind(end=end("diverged", "loss is nan at step 121"), srun_status=status) == "divergence"
    assert kind(failure=failure(ExitCode.DIVERGED), srun_status=status) == "divergence"


def test_fenced() -> None:
    assert kind(end=end("fenced"), failure=failure(77)) == "fenced"
    assert kind(failure=failure(77)) == "fenced"


# cancelled


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (JobClass.USER_CANCEL, "user_cancel"),
        (JobClass.CANCELLED, "user_cancel"),
        (JobClass.ADMIN_CANCEL, "admin_cancel"),
    ],
)
def test_a_cancel_stands_even_where_the_ranks_saved_on_its_signal(saved: bool, job: JobClass, expected: str) -> None:
    ending = end("checkpointed") if saved else None
    assert kind(end=ending, job_class=job, failure=failure(143)) == expected


def test_a_cancel_of_our_own_is_no_wish_of_the_user() -> None:
    found = diagnose(
        Evidence(job_class=JobClass.USER_CANCEL, cancelled_by_us="dead node", dead_nodes={"node02": "closed"})
    )
    assert found.failure_class == "node_failure"
    assert "cancelled by ourselves: dead node" in found.evidence


@pytest.mark.parametrize("other", [{"dead_nodes": {"node01": "closed"}}, {"failure": failure(1)}, {}])
def test_a_stop_that_was_asked_for_stands_whatever_became_of_the_save(other) -> None:
    assert kind(request=request("stop"), **other) == "stopped"


# from outside


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (JobClass.NODE_FAILURE, "node_failure"),
        (JobClass.BOOT_FAILURE, "boot_failure"),
        (JobClass.HOST_OOM, "host_oom"),
        (JobClass.TIME_LIMIT, "time_limit"),
        (JobClass.DEADLINE, "time_limit"),
        (JobClass.PREEMPTED, "preempted"),
    ],
)
def test_what_slurm_says_of_the_job(job: JobClass, expected: str) -> None:
    assert kind(job_class=job, failure=failure(143), srun_status=143) == expected


def test_the_node_that_slurm_names_in_the_log() -> None:
    found = diagnose(
        Evidence(
            job_class=JobClass.NODE_FAILURE,
            log=log("srun: error: Node failure on r7i37", "*** STEP 1.0 ON r7i17 CANCELLED DUE TO NODE FAILURE"),
        )
    )
    assert found.nodes == ("r7i37",)


def test_a_dead_node_explains_what_its_peers_say() -> None:
    found = diagnose(
        Evidence(
            srun_status=1,
            failure=Failure(0, "node01", 1, 1.7e9),
            end=end("failed", "Connection closed by peer"),
            dead_nodes={"node02": "connection closed"},
            log=log("[rank0]: RuntimeError: Connection closed by peer"),
        )
    )
    assert (found.failure_class, found.nodes, found.ranks) == ("node_failure", ("node02",), ())


# the program


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("slurmstepd: error: Detected 1 oom_kill events in StepId=7.0.", "host_oom"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "gpu_oom"),
        ("OSError: [Errno 122] Disk quota exceeded", "quota"),
        ("AssertionError: Check batch related parameters.", "config"),
        ("The following zero checkpoints paths are missing: ['x']", "checkpoint_incomplete"),
        ("KeyError: 'weight'", "application_error"),
        ("nothing to see", "application_error"),
    ],
)
def test_the_log_of_a_failed_program(line: str, expected: str) -> None:
    found = diagnose(Evidence(failure=failure(1), last_step=5, log=log(line, "srun: Job step aborted: Waiting")))
    assert found.failure_class == expected
    assert found.ranks == (3,)
    assert line == "nothing to see" or line in found.message


@pytest.mark.parametrize("line", ["OSError: [Errno 28] No space left on device", "ValueError: caught"])
def test_an_error_that_was_printed_proves_nothing_by_itself(line: str) -> None:
    assert kind(srun_status=0, log=log(line)) == "unknown"


def test_a_slurm_line_proves_what_it_says() -> None:
    assert kind(srun_status=0, log=log("srun: error: Node failure on node04")) == "node_failure"
    assert kind(log=log("*** JOB 1 ON node04 CANCELLED AT X DUE TO TIME LIMIT ***")) == "time_limit"


@pytest.mark.parametrize("status", [137, 143])
def test_a_killed_rank_whose_killer_is_not_known(status: int) -> None:
    found = diagnose(Evidence(failure=failure(status), last_step=9, srun_status=137))
    assert found.failure_class == "unknown"
    assert "rank 3 on node02" in found.message
    assert "after step 9" in found.message


def test_a_segmentation_fault_is_the_program() -> None:
    assert kind(failure=failure(139), last_step=9) == "application_error"


def test_a_hang() -> None:
    assert kind(hang="no step for 600 s, a step takes 10 s", last_step=9) == "hang"


def test_a_save_that_came_too_late() -> None:
    assert kind(request=request("time_limit"), failure=failure(137), srun_status=137) == "time_limit"


def test_the_first_job_of_the_replay_loop() -> None:
    """The save was whole, the pointer could not be written: over quota."""
    lines = (
        "epoch_0_step_69999: payload committed (64 files)",
        "OSError: [Errno 122] Disk quota exceeded: 'ckpt/.LATEST.tmp.14915246'",
        "[rank9]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88123, OpType=ALLREDUCE",
    )
    found = diagnose(Evidence(failure=failure(1), last_step=69999, log=log(*lines)))
    assert found.failure_class == "quota"
    assert "quota" in found.message


def test_the_later_jobs_of_the_replay_loop() -> None:
    lines = (
        "step 69999 | loss 2.148",
        "[rank0]: FileExistsError: Checkpoint directory ckpt/epoch_0_step_69999 already exists",
        "[rank9]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88123, OpType=ALLREDUCE",
    )
    found = diagnose(Evidence(failure=failure(1), last_step=69999, log=log(*lines)))
    assert (found.failure_class, found.ranks) == ("application_error", (0,))
    assert "FileExistsError" in found.message


def test_every_fact_is_kept() -> None:
    found = diagnose(
        Evidence(
            srun_status=137,
            end=end("failed", "x"),
            failure=failure(137),
            dead_nodes={"node02": "closed"},
            job_class=JobClass.FAILED,
            signals=("SIGUSR1",),
            request=request("time_limit"),
            log=log("BrokenPipeError: [Errno 32] Broken pipe"),
        )
    )
    text = "\n".join(found.evidence)
    for fact in (
        "failed at step 120",
        "node02: closed",
        "Slurm: failed",
        "rank 3",
        "137",
        "SIGUSR1",
        "time_limit",
        "Broken",
    ):
        assert fact in text


def test_every_class_can_be_decided_on() -> None:
    assert len({kind.value for kind in FailureClass}) == len(FailureClass)
