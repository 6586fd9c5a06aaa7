"""Which line of a log names the cause."""

from __future__ import annotations

import pytest

from pretrainctl.recovery.diagnosis import FailureClass
from pretrainctl.recovery.signatures import SIGNATURES, find_cause

ROOTS = [
    ("slurmstepd: error: *** JOB 7001 ON cn011 CANCELLED AT 2026-09-21T10:00:00 DUE TO TIME LIMIT ***", "time_limit"),
    ("[2026-09-21T10:00:00.123] error: *** STEP 7001.0 ON cn011 CANCELLED AT X DUE TO TIME LIMIT ***", "time_limit"),
    ("slurmstepd: error: *** JOB 7001 ON cn011 CANCELLED AT X DUE TO PREEMPTION ***", "preempted"),
    (
        "slurmstepd: error: *** JOB 7001 ON cn011 CANCELLED AT X DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***",
        "node_failure",
    ),
    ("srun: error: Node failure on cn017", "node_failure"),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7001.batch.", "host_oom"),
    ("[2026-09-21T10:00:00.123] error: Detected 2 oom_kill events in StepId=7001.0.", "host_oom"),
    ("srun: error: cn012: task 0: Out Of Memory", "host_oom"),
    ("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.", "divergence"),
    ("AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch", "config"),
    (
        "[rank5]: ZeRORuntimeException: The checkpoint used a DP world size of 32 but the current world size is 128.",
        "config",
    ),
    (
        "cn001: [WARNING] [engine.py:1656:f] The following zero checkpoints paths are missing: ['x']",
        "checkpoint_incomplete",
    ),
    (
        "[WARNING] Client provided checkpoint load path: ckpt/mp_rank_00_model_states.pt does not exist",
        "checkpoint_incomplete",
    ),
    (
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "checkpoint_incomplete",
    ),
    (
        "[rank37]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.00 GiB. GPU 5 has",
        "application_error",
    ),
    ("OSError: [Errno 122] Disk quota exceeded: 'ckpt/.LATEST.tmp.14915246'", "file_system"),
    ("OSError: [Errno 28] No space left on device", "file_system"),
    ("OSError: [Errno 28] No space left on device: '/dev/shm/torch_4711_0'", "application_error"),
    (
        "RuntimeError: The server socket has failed to listen on any address. code: -98, name: EADDRINUSE",
        "application_error",
    ),
]
ECHOES = [
    "slurmstepd: error: *** STEP 7001.0 ON cn011 CANCELLED AT X DUE TO JOB REQUEUE ***",
    "[2026-09-21T10:00:00.809] error: *** STEP 7001.0 ON cn011 CANCELLED AT X DUE TO TASK FAILURE ***",
    "srun: error: cn012: tasks 0-57,59-63: Terminated",
    "srun: error: cn014: tasks 8-15: Exited with exit code 1",
    "srun: error: cn015: task 3: Killed",
    "srun: Job step aborted: Waiting up to 62 seconds for job step to finish.",
    "srun: Force Terminated StepId=7001.0",
    "[rank3]:[E321 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(",
    "[rank3]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
    "[rank1]: RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:3000",
]


@pytest.mark.parametrize(("line", "kind"), ROOTS)
def test_roots(line: str, kind: str) -> None:
    finding = find_cause([*ECHOES, "ValueError: caught and printed", line, *ECHOES], stepped=False)
    assert finding is not None
    assert (finding.line, finding.signature.failure_class) == (line, kind)


@pytest.mark.parametrize("line", ECHOES)
def test_echoes_are_no_causes_and_blame_nobody(line: str) -> None:
    finding = find_cause([line], stepped=True)
    assert finding is not None
    assert (finding.signature.weight, finding.ranks, finding.nodes) == ("echo", (), ())


def test_the_earliest_root_wins() -> None:
    lines = [line for line, _ in ROOTS]
    for first in range(len(lines)):
        finding = find_cause(lines[first:] + lines[:first], stepped=False)
        assert finding is not None
        assert finding.line == lines[first]


def test_the_failed_node_is_not_the_one_that_printed_the_line() -> None:
    finding = find_cause(
        [
            "iteration:  2500/500000   0% | per_token_loss: 3.1525",
            "srun: error: Node failure on r7i37",
            "srun: Job step aborted: Waiting up to 62 seconds for job step to finish.",
            "slurmstepd: error: *** STEP 1943824.0 ON r7i17 CANCELLED AT X DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***",
        ],
        stepped=True,
    )
    assert finding is not None
    assert finding.nodes == ("r7i37",)


def test_the_rank_is_the_one_that_raised() -> None:
    finding = find_cause(
        [*ECHOES, "\x1b[31m[rank37]: torch.OutOfMemoryError: CUDA out of memory.\x1b[0m"], stepped=True
    )
    assert finding is not None
    assert finding.ranks == (37,)


def test_the_same_words_mean_less_after_the_first_step() -> None:
    line = "ModuleNotFoundError: No module named 'transformers'"
    before, after = find_cause([line], stepped=False), find_cause([line], stepped=True)
    assert before is not None
    assert before.signature.failure_class == "config"
    assert after is not None
    assert after.signature.weight == "error"


@pytest.mark.parametrize(
    "line",
    ["step 5501 | loss 2.120 | grad_norm 0.30", "", "Error rate: 3", "no space left in the buffer", "steps/s: 28"],
)
def test_ordinary_lines(line: str) -> None:
    assert find_cause([line], stepped=False) is None


def test_every_class_of_the_table_exists() -> None:
    assert {signature.failure_class for signature in SIGNATURES} <= {kind.value for kind in FailureClass}
