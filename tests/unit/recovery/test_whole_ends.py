"""Ends as logs show them: who is named, what counts more than what, and which lines are only consequences."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.workflows.doctor import Finding, examine_logs

ASSERTION = (
    "../aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [231,0,0], thread: [{0},0,0] "
    "Assertion `srcIndex < srcSelectDimSize` failed."
)
STEP_CANCELLED = "slurmstepd: error: *** STEP 7001.0 ON n1 CANCELLED AT 2026-11-30T10:00:00 ***"


def doctor(folder: Path, *lines: str) -> Finding:
    log = folder / "job.out"
    log.write_text("".join(f"{line}\n" for line in lines))
    return examine_logs([log])


def test_all_ranks_that_missed_a_barrier_are_named(tmp_path: Path) -> None:
    said = "RuntimeError: [Rank 0]: Ranks {} failed to pass monitoredBarrier in 1800000 ms"
    assert doctor(tmp_path, said.format("12, 13")).ranks == (12, 13)
    assert doctor(tmp_path, said.format("3, 7, 100")).ranks == (3, 7, 100)
    assert doctor(tmp_path, said.format("5")).ranks == (5,)


def test_a_check_in_a_kernel_names_the_rank_and_shows_the_check(tmp_path: Path) -> None:
    found = doctor(
        tmp_path,
        *[ASSERTION.format(thread) for thread in range(64)],
        "3: RuntimeError: CUDA error: device-side assert triggered",
        "0: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled cuda error, NCCL version 2.20",
    )
    assert (found.failure_class, found.ranks) == ("application_error", (3,))
    assert any("srcIndex < srcSelectDimSize" in line for line in found.evidence)
    assert any("(a consequence) 0: torch.distributed" in line for line in found.evidence)
    assert "beyond the vocabulary" in found.hint
    assert "memory" not in found.message


def test_nccl_that_does_not_say_which_error_of_cuda_it_met_is_a_guess(tmp_path: Path) -> None:
    line = "5: RuntimeError: NCCL error in: x.cpp:1, unhandled cuda error, NCCL version 2.20"
    found = doctor(tmp_path, line)
    assert (found.failure_class, found.confidence, found.ranks) == ("unknown", "low", (5,))
    assert "NCCL_DEBUG" in found.hint
    assert doctor(tmp_path, line, "ValueError: x").failure_class == "application_error"


TORN = [
    "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 1024 vs 990",
    "RuntimeError: basic_ios::clear: iostream error",
    "OSError: 1048576 requested and 0 written",
    "rank 0: error: /ckpt/global_step20 could not be written: file write failed",
]
WHY = [
    ("OSError: [Errno 122] Disk quota exceeded: '/scratch/a'", "quota"),
    ("cp: cannot create regular file 'b': Quota exceeded", "quota"),
    ("OSError: [Errno 28] No space left on device: '/scratch/a'", "filesystem"),
]


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize(("why", "kind"), WHY)
@pytest.mark.parametrize("first", [True, False])
def test_why_a_file_could_not_be_written_counts_in_either_order(
    torn: str, why: str, kind: str, tmp_path: Path, *, first: bool
) -> None:
    found = doctor(tmp_path, *((why, torn) if first else (torn, why)))
    assert (found.failure_class, found.action) == (kind, "stop")
    assert why in found.message
    assert doctor(tmp_path, torn, "OSError: [Errno 5] Input/output error").message.endswith(torn)


@pytest.mark.parametrize(
    ("line", "nodes"),
    [
        ("[1700000000.123] [n3:4411:0:4411] ib_mlx5_log.c:177 Transport retry count exceeded on mlx5_0:1/IB", ("n3",)),
        ("[n3:4411:0:4411] ib_mlx5_log.c:177 Transport retry count exceeded on mlx5_0:1/IB", ("n3",)),
        (
            "n7:1:2 [0] net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer 10.0.0.5<3> with status=12 opcode=0",
            ("n7",),
        ),
        ("n7:1:2 [0] net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer n5<3> with status=12 opcode=0", ("n5",)),
        ("[[1,1],0][btl.c:34:handle_wc] from n3 to: n5 error polling LP CQ with status RETRY EXCEEDED", ("n5",)),
    ],
)
def test_the_other_end_of_a_transfer_is_meant_and_else_it_is_a_guess(
    line: str, nodes: tuple[str, ...], tmp_path: Path
) -> None:
    found = doctor(tmp_path, line)
    assert (found.failure_class, found.nodes, found.confidence) == ("fabric", nodes, "low")
    assert "the peer gone" in found.hint


@pytest.mark.parametrize(
    "line", ["[train.py:120:main] ValueError: x", "[rank3:12] ValueError: x", "[0:12:1] ValueError: x"]
)
def test_what_else_stands_in_brackets_is_no_node(line: str, tmp_path: Path) -> None:
    assert doctor(tmp_path, line).nodes == ()


BLOCK = """\
{0}  time      : 2026-11-30_10:00:00
{0}  host      : {host}
{0}  rank      : {rank} (local_rank: 2)
{0}  exitcode  : {code} (pid: 4711)
{0}  error_file: <N/A>
{0}  traceback : {trace}"""
LAUNCHERS = ["", "3: ", "[default0]:", "E1130 10:00:00.1 9 torch/distributed/elastic/multiprocessing/api.py:9] "]


def block(label: str, host: str, rank: int, code: int, trace: str = "Signal 9 (SIGKILL) received by PID 4711") -> str:
    return BLOCK.format(label, host=host, rank=rank, code=code, trace=trace)


@pytest.mark.parametrize("label", LAUNCHERS)
@pytest.mark.parametrize(("code", "kind"), [(-9, "unknown"), (-11, "application_error")])
def test_the_block_of_torchrun_names_host_and_rank(label: str, code: int, kind: str, tmp_path: Path) -> None:
    lines = (
        f"{label}train.py FAILED",
        f"{label}Failures:",
        f"{label}[1]:",
        block(label, "lrdn0401", 7, -7),
        f"{label}Root Cause (first observed failure):",
        f"{label}[0]:",
        block(label, "lrdn0400.leonardo.local", 6, code),
    )
    found = doctor(tmp_path, *lines)
    assert (found.failure_class, found.nodes, found.ranks) == (kind, ("lrdn0400",), (6,))
    assert f"exitcode  : {code}" in found.message
    above = f"{label}torch/distributed/elastic: failed (exitcode: {code}) local_rank: 2 (pid: 4711) of binary: python"
    assert doctor(tmp_path, above, *lines).ranks == (6,)


@pytest.mark.parametrize("label", LAUNCHERS)
def test_an_error_within_the_block_is_of_its_process(label: str, tmp_path: Path) -> None:
    oom = f"{label}  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.00 GiB."
    root = f"{label}Root Cause (first observed failure):"
    found = doctor(tmp_path, root, block(label, "lrdn0400", 6, 1, "Traceback (most recent call last):"), oom)
    assert (found.failure_class, found.nodes, found.ranks) == ("gpu_oom", ("lrdn0400",), (6,))
    below = doctor(tmp_path, root, block(label, "lrdn0400", 6, 1), f"{label}ValueError: of somebody else")
    assert below.nodes == ()


@pytest.mark.parametrize("tasks", ["task 9", "tasks 8-11"])
def test_a_kill_that_comes_first_is_told_with_its_node(tasks: str, tmp_path: Path) -> None:
    line = f"srun: error: n4: {tasks}: Killed"
    found = doctor(tmp_path, "step 7 | loss 2.0", line, "srun: Terminating StepId=7001.0", STEP_CANCELLED)
    assert (found.failure_class, found.nodes, found.confidence) == ("unknown", ("n4",), "low")
    assert found.ranks == ((9,) if tasks == "task 9" else ())
    assert "SIGKILL" in found.message
    assert "memory" in found.hint


@pytest.mark.parametrize(
    "before", [STEP_CANCELLED, "srun: error: n2: task 3: Exited with exit code 1", "3: Connection reset by peer: error"]
)
def test_a_kill_below_something_else_is_a_consequence(before: str, tmp_path: Path) -> None:
    found = doctor(tmp_path, before, "srun: error: n4: task 9: Killed")
    assert (found.failure_class, found.nodes, found.ranks) == ("unknown", (), ())
    assert "only consequences" in found.message
    assert doctor(tmp_path, "srun: error: n4: task 9: Killed", "ValueError: x").failure_class == "application_error"


@pytest.mark.parametrize("loss", ["step 9/160 | loss nan |", "loss: nan", "{'loss': nan}"])
def test_a_loss_that_is_no_number_is_shown_where_it_is_too_little_to_tell(loss: str, tmp_path: Path) -> None:
    cancelled = "slurmstepd: error: *** JOB 7001 ON n1 CANCELLED AT 2026-11-30T10:00:00 ***"
    found = doctor(tmp_path, loss, loss, cancelled)
    assert found.failure_class == "user_cancel"
    assert any("nan" in line for line in found.evidence)
    alone = doctor(tmp_path, loss, loss)
    assert (alone.failure_class, len(alone.evidence)) == ("unknown", 1)
    assert not any("nan" in line for line in doctor(tmp_path, loss, "step 10 | loss: 2.0", cancelled).evidence)


def test_the_trainers_own_step_lines_say_that_loss_and_gradient_are_no_numbers(tmp_path: Path) -> None:
    lines = [f"0: step {step}/160 | loss nan | grad norm nan" for step in (9, 10)]
    assert doctor(tmp_path, *lines).failure_class == "divergence"


NVML = "Failed to initialize NVML: Driver/library version mismatch"
DRIVERS = [
    NVML,
    "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    "RuntimeError: CUDA error: system has unsupported display driver / cuda driver combination",
]


@pytest.mark.parametrize("line", DRIVERS)
def test_a_driver_that_is_wrong_on_one_node_is_a_fault_of_that_node(line: str, tmp_path: Path) -> None:
    ended = "srun: error: n7: task 28: Exited with exit code 1"
    for lines in (
        (line, ended),
        (f"28: {line}", ended),
        (line, line, "srun: error: n7: tasks 28-31: Exited with code 1"),
    ):
        found = doctor(tmp_path, *lines)
        assert (found.failure_class, found.nodes, found.action) == ("gpu_hardware", ("n7",), "exclude_node")
    told = ("SLURM_NODELIST=n[6-8]", "SLURM_NTASKS_PER_NODE=4", *(f"{rank}: {line}" for rank in (4, 5)))
    assert doctor(tmp_path, *told).nodes == ("n7",)


@pytest.mark.parametrize("line", DRIVERS)
def test_a_driver_that_is_wrong_on_all_nodes_is_the_environment(line: str, tmp_path: Path) -> None:
    of_two = ("srun: error: n7: task 28: Exited with exit code 1", "srun: error: n6: task 24: Exited with exit code 1")
    for lines in (
        (line, "srun: error: n7: tasks 0-3: Exited with exit code 1"),
        (line, line, *of_two),
        ("SLURM_NODELIST=n[6-8]", "SLURM_NTASKS_PER_NODE=4", *(f"{rank}: {line}" for rank in (0, 4, 8))),
        (line,),
    ):
        found = doctor(tmp_path, *lines)
        assert (found.failure_class, found.nodes, found.action) == ("environment", (), "stop")


@pytest.mark.parametrize(
    "said",
    [
        "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400",
        "Kernel panic - not syncing: Fatal machine check",
        "Memory failure: 0x7f: Killing python:4411 due to hardware memory corruption",
        "watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python:4411]",
    ],
)
def test_a_kernel_that_gives_up_names_its_node(said: str, tmp_path: Path) -> None:
    found = doctor(tmp_path, f"2026-11-30T10:00:00 n4 kernel: {said}")
    assert (found.failure_class, found.nodes) == ("node_failure", ("n4",))
    assert doctor(tmp_path, f"kernel: {said}").nodes == ()


def test_a_rank_that_others_point_at_is_blamed_and_not_who_points(tmp_path: Path) -> None:
    said = "[rank0]: RuntimeError: Rank 0 reached it, but received errors while waiting for send/recv from rank 9."
    assert doctor(tmp_path, said).ranks == (9,)
    barrier = (
        "[rank4]: RuntimeError: Timed out initializing process group in store based barrier on rank: 4, for key: x"
    )
    assert doctor(tmp_path, barrier).ranks == ()


def test_vague_errors_of_nccl_are_consequences_of_what_explains_them(tmp_path: Path) -> None:
    vague = "[rank5]: torch.distributed.DistBackendError: NCCL error in: x.cpp:77, invalid usage, NCCL version 2.21.5"
    duplicate = "[rank5]: Duplicate GPU detected : rank 5 and rank 4 both on CUDA device 4000"
    for lines in ((vague, duplicate), (duplicate, vague)):
        assert doctor(tmp_path, *lines).failure_class == "config"
    assert any(f"(a consequence) {vague}" in line for line in doctor(tmp_path, duplicate, vague).evidence)
    assert doctor(tmp_path, vague).ranks == (5,)


def test_a_port_that_pytorch_tried_first_is_no_cause_and_one_that_it_needs_is(tmp_path: Path) -> None:
    tried = "[W1103 socket.cpp:464] [c10d] Failed to bind to [::]:29500 (errno: 98 - Address already in use)."
    assert doctor(tmp_path, tried, "KeyError: 'labels'").failure_class == "application_error"
    failed = "RuntimeError: The server socket has failed to listen. (errno: 98 - Address already in use)."
    assert doctor(tmp_path, tried, failed).message.endswith(failed)
