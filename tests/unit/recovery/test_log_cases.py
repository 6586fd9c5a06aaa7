"""Whole logs of real situations, rewritten, and what the diagnosis must say of each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pretrainctl.records.run import Diagnosis
from pretrainctl.recovery.decision import course_of, hint_of
from pretrainctl.recovery.log_diagnosis import diagnose_log
from pretrainctl.recovery.log_reading import LogReading
from pretrainctl.recovery.placement import Placement, read_placement


def expand(text: str) -> Sequence[str]:
    prefix, inside = text.rstrip("]").split("[")
    first, last = inside.split("-")
    return [f"{prefix}{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]


def diagnose(*logs: str, placement: Placement | None = None) -> Diagnosis:
    reading = LogReading(year=2026)
    for index, log in enumerate(logs):
        lines = log.strip("\n").splitlines()
        for number, line in enumerate(lines, 1):
            before = "\n".join(lines[: number - 1])
            reading.add(line, file=f"log{index}", number=number, before=lambda text=before: text)
    return diagnose_log(reading, placement or read_placement("\n".join(logs).splitlines(), expand))


NODE_FAILURE = """
iteration:  2500/500000   0% | elapsed time: 07:41:19 | per_token_loss: 3.1525 | lr: 9.990E-06 |
** Starting validation **
Validation logs: val_per_token_loss: 3.0179 | val_num_images: 150355
** Finished validation **
srun: error: Node failure on cn37
srun: Job step aborted: Waiting up to 62 seconds for job step to finish.
slurmstepd: error: *** STEP 194.0 ON cn17 CANCELLED AT 2026-03-06T03:17:51 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***
"""


def test_the_node_that_printed_the_step_line_is_not_the_one_that_failed() -> None:
    found = diagnose(NODE_FAILURE)
    assert (found.failure_class, found.nodes, found.ranks) == ("node_failure", ("cn37",), ())
    assert "Node failure on cn37" in found.evidence[0]
    assert found.evidence[0].startswith("log0:5: ")
    assert course_of(found).value == "exclude_node"


ECC = """
[default0]:[rank12]:[E817 17:40:34.227531918 ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank 12] Process group \
watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered
[default0]:CUDA kernel errors might be asynchronously reported at some other API call.
[default3]:[rank3]:[E817 17:40:36.101 ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank 3] Process group watchdog \
thread terminated with exception: NCCL error: remote process exited or there was a network error
[default3]:terminate called after throwing an instance of 'c10::DistBackendError'
srun: error: cn004: task 3: Exited with exit code 1
srun: error: cn002: task 1: Aborted (core dumped)
"""


@pytest.mark.parametrize(
    "placement",
    [
        Placement(("cn001", "cn002", "cn003", "cn004"), 4),
        Placement(),  # then srun's first task that ended
        read_placement(["# layout: 4 nodes cn001..cn004, 4 ranks each"], expand),
        read_placement(["SLURM_JOB_NODELIST=cn[001-004]", "SLURM_NTASKS_PER_NODE=4"], expand),
    ],
)
def test_a_broken_gpu_and_what_its_peers_say(placement: Placement) -> None:
    found = diagnose(ECC, placement=placement)
    assert (found.failure_class, found.nodes, found.ranks) == ("gpu_hardware", ("cn004",), (12,))
    assert found.confidence == ("high" if placement.ranks else "medium")
    assert any("(a consequence)" in line and "rank3" in line for line in found.evidence)


def test_a_task_that_aborted_followed_another_one() -> None:
    found = diagnose(ECC.replace("srun: error: cn004: task 3: Exited with exit code 1\n", ""))
    assert (found.failure_class, found.nodes) == ("gpu_hardware", ())


def test_the_first_error_in_time_over_all_rank_logs() -> None:
    """The peers' logs come first, and say nothing of worth."""
    culprit, *peers = ECC.strip().splitlines()[:1] + ECC.strip().splitlines()[2:]
    assert diagnose("\n".join(peers), culprit, placement=Placement(("a1", "a2"), 8)).nodes == ("a2",)
    early = "2026-08-17 17:39:00 [rank5]: torch.OutOfMemoryError: CUDA out of memory."
    assert diagnose(ECC, early).failure_class == "gpu_oom", "by its time, though in a later file"
    late = early.replace("17:39:00", "17:41:00")
    assert diagnose(ECC, late).failure_class == "gpu_hardware"
    assert diagnose(late, ECC).failure_class == "gpu_hardware"
    timeless = "[rank5]: torch.OutOfMemoryError: CUDA out of memory."
    assert diagnose(ECC, timeless).failure_class == "gpu_hardware", "no time: the order of the files"
    assert diagnose(timeless, ECC).failure_class == "gpu_oom"


def test_a_line_without_a_time_has_that_of_the_line_before_it() -> None:
    traceback = "[2026-08-17 17:39:00,123] [INFO] step\nTraceback\n[rank5]: torch.OutOfMemoryError: CUDA out of memory."
    assert diagnose(ECC, traceback).failure_class == "gpu_oom"


def wait(rank: int, seq: int = 1580, ran: int = 600060, clock: str = "02:07:08.408271257", size: str = "8") -> str:
    return (
        f"[80746] [rank{rank}]:[E321 {clock} ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn={size}, NumelOut={size}, "
        f"Timeout(ms)=600000) ran for {ran} milliseconds before timing out."
    )


LAYOUT = "# world size 8, two nodes: ranks 0-3 on cn001, ranks 4-7 on cn002"
WATCHDOG = "\n".join([*(wait(rank) for rank in (0, 4, 2, 1, 6)), wait(7, seq=1578), wait(3, ran=600115), LAYOUT])


def test_the_culprit_is_not_a_rank_that_waits() -> None:
    found = diagnose(WATCHDOG)
    assert (found.failure_class, found.ranks, found.nodes) == ("collective_timeout", (5, 7), ("cn002",))
    assert "ranks 0 1 2 3 4 6 waited in ALLREDUCE 1580 since 01:57:08" in found.message
    assert "rank 5 never reported" in found.message
    assert "network" not in found.message
    assert course_of(found).value == "restart"


def test_a_watchdog_that_was_stuck_itself() -> None:
    stuck = [wait(0, ran=25624887), wait(1), wait(2), LAYOUT.replace("8", "4")]
    found = diagnose("\n".join(stuck))
    assert found.ranks == (3,)
    assert "since 01:57:08" in found.message


def test_old_watchdogs_name_no_operation_number() -> None:
    line = (
        "[E ProcessGroupNCCL.cpp:737] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL("
        "OpType=ALLGATHER, TensorShape=[1], Timeout(ms)=1800000) ran for 1806985 milliseconds before timing out."
    )
    found = diagnose("\n".join(line.format(rank) for rank in (0, 1, 3)))
    assert (found.failure_class, found.ranks) == ("collective_timeout", (2,))


def test_silence_of_most_ranks_says_nothing() -> None:
    """Ranks of another group, or a log that is not whole."""
    found = diagnose(wait(900) + "\n" + wait(901))
    assert (found.failure_class, found.ranks) == ("collective_timeout", ())


def test_an_error_before_the_ranks_began_to_wait_is_why_they_wait() -> None:
    early = "[2026-03-21 01:57:10,000] [rank5]: KeyError: 'weight'"
    found = diagnose(early + "\n" + WATCHDOG)
    assert (found.failure_class, found.ranks) == ("application_error", (5,))
    for stale in ("[2026-03-20 22:00:00,000] ValueError: caught and printed",):
        assert diagnose(stale + "\n" + WATCHDOG).failure_class == "collective_timeout"
    later = "[2026-03-21 02:07:20,000] [rank0]: RuntimeError: the collective was aborted"
    assert diagnose(WATCHDOG + "\n" + later).failure_class == "collective_timeout"


HOST_OOM = """
[2026-07-25 00:37:49,180] [INFO] [torch_checkpoint_engine.py:27:load] [Torch] Loading checkpoint from ckpt/x.pt...
[2026-07-25 00:38:05,103] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 230
ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 3 (pid: 812917) of binary: python
slurmstepd: error: Detected 4 oom_kill events in StepId=113.0. Some of the step tasks have been OOM Killed.
srun: error: cn022: task 2: Out Of Memory
"""


def test_the_host_s_memory() -> None:
    found = diagnose(HOST_OOM)
    assert (found.failure_class, found.nodes) == ("host_oom", ("cn022",))
    assert course_of(found).value == "restart_once"
    assert "memory" in hint_of(found)
    assert diagnose("113|OUT_OF_MEMORY|0:125").failure_class == "host_oom"


OVERFLOWS = """
  0%|    | 9/63645 [00:19<37:53:00,  2.14s/it][2026-06-08 12:02:45,001] [INFO] [deepscale] OVERFLOW! Rank 0 Skipping \
step. Attempted loss scale: 16777216.0, reducing to 8388608.0
[2026-06-08 12:02:45,002] [INFO] [timer.py:157:stop] 0/10, SamplesPerSec=1.8825260836384787
"""


def test_the_loss_scale() -> None:
    assert diagnose(OVERFLOWS).failure_class == "unknown"
    last = "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."
    found = diagnose(OVERFLOWS + last)
    assert (found.failure_class, course_of(found).value) == ("divergence", "stop")
    assert "bf16" in hint_of(found)


@pytest.mark.parametrize(
    ("line", "kind", "course"),
    [
        ("OSError: [Errno 116] Stale file handle: 'data/shard.bin'", "filesystem", "restart_once"),
        ("OSError: [Errno 5] Input/output error", "filesystem", "restart_once"),
        ("OSError: [Errno 122] Disk quota exceeded", "quota", "stop"),
        ("OSError: [Errno 28] No space left on device", "filesystem", "stop"),
        ("ERROR: Unexpected bus error encountered in worker. This might be caused by shm", "config", "stop"),
        ("RuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error. It is", "config", "stop"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/torch_4711_0'", "config", "stop"),
        ("OSError: [Errno 24] Too many open files", "environment", "stop"),
        ("OSError: [Errno 107] Transport endpoint is not connected", "filesystem", "restart_once"),
        ("slurmstepd: error: execve(): /tmp/slurmd/job9/slurm_script: No such file", "node_failure", "restart"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.idx'", "config", "stop"),
        ("PermissionError: [Errno 13] Permission denied: 'ckpt'", "environment", "stop"),
        ("OSError: [Errno 30] Read-only file system: 'logs/run.log'", "filesystem", "restart_once"),
        ("OSError: [Errno 12] Cannot allocate memory", "host_oom", "restart_once"),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "filesystem", "restart_once"),
    ],
)
def test_file_systems_and_limits_look_alike_and_need_different_answers(line: str, kind: str, course: str) -> None:
    found = diagnose(f"12: [rank12]: {line}")
    assert (found.failure_class, course_of(found).value) == (kind, course)


def test_a_permission_that_was_there_a_step_ago_is_the_file_system_s() -> None:
    reading = LogReading(stepped=True)
    reading.add("12: [rank12]: PermissionError: [Errno 13] Permission denied: 'ckpt'", file="training.log", number=1)
    found = diagnose_log(reading, Placement())
    assert (found.failure_class, course_of(found).value) == ("filesystem", "restart_once")


KILLS = [
    ("slurmstepd: error: *** JOB 7001 ON cn011 CANCELLED AT X DUE TO PREEMPTION ***", "preempted", ()),
    ("slurmstepd: error: *** JOB 7001 ON cn011 CANCELLED AT X DUE TO NODE FAILURE, SEE ***", "node_failure", ()),
    ("slurmstepd: error: *** STEP 7001.0 ON cn011 CANCELLED AT X DUE TO JOB REQUEUE ***", "unknown", ()),
    ("[X] error: *** STEP 7001.0 ON cn011 CANCELLED AT X DUE TO TASK FAILURE ***", "unknown", ()),
    ("slurmstepd: error: *** JOB 7001 ON cn011 CANCELLED AT X ***", "user_cancel", ()),
    ("[X] error: *** JOB 7001 ON cn011 CANCELLED AT X DUE to SIGNAL Terminated ***", "user_cancel", ()),
    ("slurmstepd: error: *** JOB 7001 ON cn011 FAILED (non-zero exit code or other failure mode) ***", "unknown", ()),
    ("slurmstepd: error: *** STEP 7001.0 ON cn011 UNCORRECTABLE MEMORY ERROR AT X ***", "node_failure", ("cn011",)),
    ("srun: error: Node failure on cn017", "node_failure", ("cn017",)),
    ("srun: error: cn012: task 0: Out Of Memory", "host_oom", ("cn012",)),
    ("srun: error: cn013: task 2: Segmentation fault (core dumped)", "application_error", ("cn013",)),
    ("srun: error: cn014: tasks 8-15: Exited with exit code 1", "unknown", ()),
    ("srun: error: cn015: task 3: Killed", "unknown", ("cn015",)),
]


@pytest.mark.parametrize(("line", "kind", "nodes"), KILLS)
def test_what_slurm_prints_when_it_ends_something(line: str, kind: str, nodes: tuple[str, ...]) -> None:
    for text in (line, f"07 {line}", f" 12: {line}"):
        found = diagnose(text)
        assert (found.failure_class, found.nodes) == (kind, nodes)


def test_the_node_in_the_prefix_of_slurmstepd() -> None:
    """It is the culprit for its memory, and for nothing else that Slurm prints on every node."""
    prefix = "0: slurmstepd-cn011: error: "
    assert diagnose(prefix + "Detected 1 oom_kill event in StepId=1.0.").nodes == ("cn011",)
    assert diagnose(prefix + "execve(): /tmp/slurmd/job9/slurm_script: No such file").nodes == ("cn011",)
    assert diagnose(prefix + "*** STEP 1.0 ON cn011 CANCELLED AT X DUE TO NODE FAILURE ***").nodes == ()
    assert diagnose(prefix + "*** JOB 1 ON cn011 CANCELLED AT X DUE TO TIME LIMIT ***").nodes == ()


def test_all_of_them_in_one_log() -> None:
    found = diagnose("\n".join(line for line, _, _ in KILLS))
    assert (found.failure_class, found.nodes, found.ranks) == ("preempted", (), ())


def test_a_cancel_explains_nothing_that_failed_before_it() -> None:
    cancel = "slurmstepd: error: *** JOB 7001 ON cn011 CANCELLED AT X ***"
    assert diagnose("KeyError: 'weight'\n" + cancel).failure_class == "application_error"
    assert diagnose(cancel).confidence == "low"


def test_the_rank_that_ran_out_of_memory_while_the_others_hang() -> None:
    heartbeat = (
        "WARNING:torch.distributed.elastic.rendezvous.dynamic:The node 'cn005_187281_0' has failed to send a "
        "keep-alive heartbeat to the rendezvous 'none' due to an error of type RendezvousConnectionError."
    )
    log = "\n".join(
        [
            "[rank0]: step 5501 | loss 2.120 | grad_norm 0.30 | tok/s 184101",
            "[rank37]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.00 GiB. GPU 5 has a total",
            *[heartbeat] * 3,
        ]
    )
    found = diagnose(log, placement=Placement(tuple(f"cn{number:03d}" for number in range(1, 9)), 8))
    assert (found.failure_class, found.ranks, found.nodes) == ("gpu_oom", (37,), ("cn005",))
    assert course_of(found).value == "restart_once"


def test_srun_labels_name_the_rank() -> None:
    log = (
        "   3: Traceback (most recent call last):\n   3: ValueError: shapes do not fit\n 200: Connection reset by peer"
    )
    found = diagnose(log)
    assert (found.failure_class, found.ranks) == ("application_error", (3,))


def test_the_nccl_prefix_names_the_node() -> None:
    found = diagnose(" 5: cn7:367:368 [1] misc/ibvwrap.cc:94 NCCL WARN NET/IB : Got async event : port error")
    assert (found.failure_class, found.nodes) == ("fabric", ("cn7",))


def test_a_transfer_that_failed_is_a_symptom() -> None:
    transfer = "cn7:3:4 [0] NCCL WARN NET/IB : Got completion from peer 10.2.0.5<33092> with error 12, opcode 0"
    assert diagnose(transfer).failure_class == "fabric"
    assert diagnose(transfer + "\n" + NODE_FAILURE).nodes == ("cn37",)


def test_a_log_that_says_nothing() -> None:
    found = diagnose("step 1 | loss 2.0\nstep 2 | loss 1.9")
    assert (found.failure_class, found.evidence, found.confidence) == ("unknown", (), "low")


def test_numbers_that_mean_something_are_read_on_every_line() -> None:
    """Copies of a line but for their numbers are looked up once; an errno and an Xid are no such numbers."""
    for lines, kind in (
        (["OSError: [Errno 22] Invalid argument", "OSError: [Errno 122] x"], "quota"),
        (["NVRM: Xid (PCI:0000:02:00): 45, pid=1", "NVRM: Xid (PCI:0000:02:00): 79, pid=1"], "gpu_hardware"),
        (["rank 3 failed: error 5", "rank 4: KeyError: 5"], "application_error"),
    ):
        assert diagnose("\n".join(lines)).failure_class == kind


def test_a_cascade_of_many_ranks_is_counted_and_not_kept() -> None:
    echo = "{0:4d}: [rank{0}]: torch.distributed.DistBackendError: NCCL error: remote process exited"
    found = diagnose("\n".join([echo.format(0), ECC.splitlines()[1], *map(echo.format, range(1, 2048))]))
    assert (found.failure_class, found.ranks) == ("gpu_hardware", (12,))
    assert len(found.evidence) == 2
    alone = diagnose("\n".join(map(echo.format, range(2048))))
    assert alone.failure_class == "unknown"
    assert "and 2047 lines like it" in alone.evidence[0]


TRAINER = """
rank 0: error: /data/quickstart.bin: No such file or directory
rank 0: hint: make it with `python -m pretrainctl.trainer.tokenize`
rank 1: error: /data/quickstart.bin: No such file or directory
rank 1: hint: make it with `python -m pretrainctl.trainer.tokenize`
srun: error: node01: task 0: Exited with exit code 1
"""


def test_the_trainers_own_words_are_taken_and_blame_no_node() -> None:
    found = diagnose(TRAINER, placement=Placement(("node01", "node02"), 1))
    assert (found.failure_class, found.nodes, found.ranks) == ("config", (), (0,))
    assert "/data/quickstart.bin: No such file or directory" in found.message
    assert hint_of(found) == "make it with `python -m pretrainctl.trainer.tokenize`"
    assert any("rank 0: hint: make it" in line for line in found.evidence)
    assert course_of(found).value == "stop"
    bare = diagnose("rank 3: error: heads 5 do not share hidden 64 evenly")
    assert (bare.failure_class, bare.confidence) == ("config", "high")
    full = diagnose("rank 0: error: /c/x could not be written: [Errno 28] No space left on device")
    assert full.failure_class in {"filesystem", "quota"}
