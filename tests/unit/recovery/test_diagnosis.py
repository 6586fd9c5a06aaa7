"""Evidence to one class."""

from __future__ import annotations

import itertools

import pytest

from pretrainctl.records.contract import End, ExitCode, Failure, Request
from pretrainctl.records.job import JobClass
from pretrainctl.records.launch import RecoveryRule
from pretrainctl.records.progress import Hang
from pretrainctl.records.run import Action
from pretrainctl.recovery.decision import RestartSummary, course_of, decide
from pretrainctl.recovery.diagnosis import Evidence, FailureClass, diagnose
from pretrainctl.recovery.log_reading import LogReading
from pretrainctl.recovery.placement import Placement
from pretrainctl.slurm.states import ending_signal, read_exit, read_state


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


def test_a_target_below_that_of_the_launch_is_no_success() -> None:
    found = diagnose(Evidence(end=end("reached"), srun_status=0, target_steps=121))
    assert (found.failure_class, course_of(found).value) == ("config", "stop")
    assert "at step 120" in found.message
    assert "to step 121" in found.message
    assert "training.tokens" in found.hint
    for target in (0, 119, 120):
        assert kind(end=end("reached"), target_steps=target) == "finished"


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


@pytest.mark.parametrize(
    ("state", "exit_code", "expected", "action"),
    [
        # COMPLETED is no proof that the target was reached, and FAILED says nothing of the training: by the log.
        ("COMPLETED", "0:0", "unknown", "restart_once"),
        ("OUT_OF_ME+", "0:125", "host_oom", "restart_once"),
        ("CANCELLED+", "0:0", "user_cancel", "stop"),
        ("CANCELLED by 31001", "0:15", "user_cancel", "stop"),
        ("CANCELLED by 0", "0:9", "admin_cancel", "stop"),
        ("NODE_FAIL", "1:0", "node_failure", "restart"),
        ("PREEMPTED", "0:0", "preempted", "hand_over"),
        ("TIMEOUT", "0:0", "time_limit", "hand_over"),
        ("TIMEOUT", "0:1", "time_limit", "hand_over"),
        ("FAILED", "1:0", "unknown", "restart_once"),
        ("FAILED", "0:9", "unknown", "restart_once"),
        ("FAILED", "137:0", "unknown", "restart_once"),
        ("BOOT_FAIL", "0:0", "boot_failure", "restart"),
        ("DEADLINE", "0:0", "time_limit", "stop"),
        ("REQUEUED", "0:0", "preempted", "hand_over"),
        ("LAUNCH_FAILED", "0:0", "boot_failure", "restart"),
        ("RECONFIG_FAIL", "0:0", "boot_failure", "restart"),
        *((text, "0:0", "unknown", "restart_once") for text in ("RESIZING", "COMPLETING", "REVOKED", "SPECIAL_EXIT")),
        ("SOMETHING_NEW", "0:0", "unknown", "restart_once"),
    ],
)
def test_every_state_as_slurm_prints_it(state: str, exit_code: str, expected: str, action: str) -> None:
    meaning = read_state(state, owner_uid=31001)
    killed = ending_signal(*read_exit(exit_code))
    found = diagnose(Evidence(job_class=meaning.job_class, job_state=meaning.text, job_signal=killed))
    assert (found.failure_class, course_of(found).value) == (expected, action)
    assert any(state in fact for fact in found.evidence)
    if state == "FAILED":
        assert ("SIGKILL" in found.message) == (exit_code != "1:0")


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


def test_a_setting_is_no_nodes_fault() -> None:
    line = "rank 3: error: /data/a.bin: No such file or directory"
    evidence = Evidence(failure=failure(1), log=log(line), placement=Placement(("node01", "node02"), 2))
    assert diagnose(evidence).nodes == ()
    assert diagnose(evidence).ranks == (3,)
    assert diagnose(Evidence(failure=failure(1), log=log("KeyError: 1"))).nodes == ("node02",)


@pytest.mark.parametrize("line", ["OSError: [Errno 28] No space left on device", "ValueError: caught"])
def test_an_error_that_was_printed_proves_nothing_by_itself(line: str) -> None:
    assert kind(srun_status=0, log=log(line)) == "unknown"


def test_a_task_that_failed_and_could_leave_no_record_is_srun_s_to_say() -> None:
    line = "rank 0: error: checkpoints/global_step20 could not be written: [Errno 30] Read-only file system"
    assert kind(srun_status=1, log=log(line)) == "filesystem"
    assert kind(srun_status=255, log=log(line)) == "filesystem"
    assert kind(srun_status=143, log=log(line)) == "unknown", "a signal may be Slurm's own"
    assert kind(srun_status=None, log=log(line)) == "unknown"
    assert kind(srun_status=137, log=log(line)) == "unknown", "it was ended from outside"


def test_a_slurm_line_proves_what_it_says() -> None:
    assert kind(srun_status=0, log=log("srun: error: Node failure on node04")) == "node_failure"
    refused = "srun: error: Unable to create step for job 1: Memory required by task is not available"
    assert kind(srun_status=1, log=log(refused)) == "boot_failure"
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


def test_a_rank_that_ran_out_of_memory_while_the_others_hang() -> None:
    """Nothing has ended, so nothing proves a failure: the hang does."""
    oom = "[rank37]: torch.OutOfMemoryError: CUDA out of memory."
    placement = Placement(tuple(f"cn{number}" for number in range(8)), 8)
    assert kind(log=log(oom), last_step=5501) == "unknown"
    found = diagnose(Evidence(log=log(oom), last_step=5501, hang="no step for 600 s", placement=placement))
    assert (found.failure_class, found.ranks, found.nodes) == ("gpu_oom", (37,), ("cn4",))


def test_a_hang_names_the_ranks_that_were_waited_for() -> None:
    waiting = (
        "[rank{}]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=X) ran for 5 milliseconds"
    )
    told = log(*[waiting.format(rank) for rank in (0, 1, 3)])
    hung = diagnose(Evidence(log=told, hang="no step for 600 s", last_step=5, placement=Placement(("a", "b"), 2)))
    assert (hung.failure_class, hung.ranks, hung.nodes) == ("hang", (2,), ("b",))
    aborted = diagnose(Evidence(log=told, failure=failure(134), last_step=5, placement=Placement(("a", "b"), 2)))
    assert (aborted.failure_class, aborted.ranks, aborted.nodes) == ("collective_timeout", (2,), ("b",))


def test_a_step_that_we_ended_ourselves_is_no_cancel() -> None:
    line = "slurmstepd: error: *** JOB 7 ON node01 CANCELLED AT X ***"
    assert kind(log=log(line), failure=failure(1), last_step=5) == "application_error"


def test_the_node_of_the_first_bad_task() -> None:
    found = diagnose(Evidence(failure=failure(1), last_step=5))
    assert (found.ranks, found.nodes, found.confidence) == ((3,), ("node02",), "low")


def test_a_program_that_failed_is_told_with_the_first_line_that_says_anything() -> None:
    first = "3: rank 3: error: /ckpt/global_step20 could not be written: file write failed"
    echo = "1: RuntimeError: gloo/transport/tcp/pair.cc:537 Read error: Connection reset by peer"
    known = diagnose(Evidence(log=log(echo, first), failure=failure(1), last_step=20))
    assert known.failure_class == "filesystem"
    assert first.removeprefix("3: ") in known.message
    unknown = diagnose(Evidence(log=log(echo), failure=failure(1), last_step=20))
    assert "status 1 after step 20; the log shows only a consequence: 1: RuntimeError: gloo" in unknown.message


# a rank that is not there any more


def left(rank: int = 0, status: int = 0) -> Failure:
    return Failure(rank, "node02", status, 1.7e9)


def test_a_rank_that_left_is_an_end_of_the_program_and_blames_no_node() -> None:
    killed = Failure(1, "node03", 137, 1.7e9 + 15)  # by ourselves
    found = diagnose(Evidence(left=left(), failure=killed, last_step=30, placement=Placement(("node02", "node03"), 1)))
    assert (found.failure_class, found.ranks, found.nodes) == ("application_error", (0,), ())
    assert "rank 0 left with status 0 after step 30, without an end record" in found.message


def test_it_is_no_hang_of_the_others() -> None:
    stuck = Hang("step", 30, 20.0, 20.0, "no progress", (0,), ("node02",), (), 1.7e9, gone=True)
    for evidence in (Evidence(hang="no progress", stuck=stuck, left=left()), Evidence(hang="no progress", stuck=stuck)):
        found = diagnose(evidence)
        assert (found.failure_class, found.ranks, found.nodes) == ("application_error", (0,), ())


def test_a_peer_that_fails_since_a_rank_left_is_not_the_cause() -> None:
    reset = Failure(1, "node03", 1, 1.7e9 + 0.2)
    assert diagnose(Evidence(left=left(), failure=reset, srun_status=1)).ranks == (0,)


def test_a_rank_that_failed_before_another_left_is_the_cause() -> None:
    found = diagnose(Evidence(left=left(), failure=Failure(1, "node03", 1, 1.7e9 - 0.2), srun_status=1))
    assert (found.failure_class, found.ranks) == ("application_error", (1,))
    assert "rank 1 on node03 ended with status 1" in found.message


def test_an_end_record_a_save_that_was_asked_for_and_an_end_of_all_come_before_it() -> None:
    assert kind(left=left(1), end=end("reached")) == "finished"
    assert kind(left=left(0, 75), request=request("time_limit")) == "time_limit"
    assert kind(left=left(), srun_status=0) == "unknown"
    assert kind(left=left(), dead_nodes={"node02": "closed"}) == "node_failure"


def test_the_same_rank_leaving_twice_at_the_same_step_stops() -> None:
    found = diagnose(Evidence(left=left(), last_step=30))
    starts = [RestartSummary(1, index, found.failure_class, 0, 30, 20, seconds=20.0) for index in range(2)]
    once = decide(found, starts[:1], RecoveryRule(), healthy_nodes=2, needed_nodes=2)
    twice = decide(found, starts, RecoveryRule(), healthy_nodes=2, needed_nodes=2)
    assert (once.action, once.exclude, once.pause) == (Action.RESTART_HERE, (), 0.0)
    assert (twice.action, twice.exclude) == (Action.STOP, ())
