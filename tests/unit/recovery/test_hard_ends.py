"""What is printed where nobody raises an error: a kernel's fault as NCCL tells it, a watchdog that hangs, a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.recovery.log_reading import find_cause
from pretrainctl.workflows.doctor import Finding, examine_logs

STEPS = [f"iteration {step}/ 100 | lm loss: 2.{step} | grad norm: 1.0 |" for step in (1, 2, 3)]
PREFIX = "[rank3]:[F1130 10:00:09 ProcessGroupNCCL.cpp:1362] [PG ID 0 PG GUID 0(default_pg) Rank 3] "
HANGS = [
    "[rank3]:[F ProcessGroupNCCL.cpp:1362] [PG 0 Rank 3] Heartbeat monitor timed out! Process will be terminated",
    f"{PREFIX}Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
    f"{PREFIX}ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in monitoring collectives",
]
SCRIPT = "/var/spool/slurm/job123/slurm_script: line 14: "


def doctor(folder: Path, *lines: str) -> Finding:
    log = folder / "job.out"
    log.write_text("".join(f"{line}\n" for line in (*STEPS, *lines)))
    return examine_logs([log])


@pytest.mark.parametrize("code", ["700 ", ""])
@pytest.mark.parametrize("start", ["gn05:12:34 [0] enqueue.cc:1405 NCCL WARN ", ""])
def test_an_illegal_access_is_the_same_in_the_words_of_nccl(code: str, start: str, tmp_path: Path) -> None:
    found = doctor(
        tmp_path,
        "  what():  [PG ID 1 Rank 3] NCCL watchdog thread terminated with exception: NCCL error: unhandled cuda error",
        "ncclUnhandledCudaError: Call to CUDA function failed.",
        f"{start}Cuda failure {code}'an illegal memory access was encountered'",
    )
    own = doctor(tmp_path, "RuntimeError: CUDA error: an illegal memory access was encountered")
    assert (found.failure_class, found.confidence) == (own.failure_class, own.confidence)
    assert found.message.partition(":")[0] == own.message.partition(":")[0] == "a kernel read memory it may not"


@pytest.mark.parametrize("line", HANGS)
def test_a_watchdog_that_hangs_blames_its_own_rank(line: str, tmp_path: Path) -> None:
    found = doctor(tmp_path, line)
    assert (found.failure_class, found.ranks, found.confidence) == ("collective_timeout", (3,), "medium")


@pytest.mark.parametrize("line", HANGS)
def test_a_watchdog_that_hangs_after_an_error_is_no_cause(line: str, tmp_path: Path) -> None:
    found = doctor(tmp_path, "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", line)
    assert (found.failure_class, found.ranks) == ("gpu_oom", (5,))


def test_a_rank_that_tells_of_the_wait_of_another_is_not_blamed(tmp_path: Path) -> None:
    told = f"{PREFIX}Received a dump signal due to a collective timeout from  rank 7 and we will try our best to dump"
    found = doctor(tmp_path, told)
    assert (found.failure_class, found.ranks) == ("collective_timeout", ())
    end = (
        f"{PREFIX}Terminating the process after attempting to dump debug info, due to collective timeout or exception."
    )
    assert doctor(tmp_path, end).failure_class == "unknown"


@pytest.mark.parametrize("line", [f"{SCRIPT}12345 Killed                  python train.py", "3: Killed", "Killed"])
def test_a_kill_that_says_nothing_more_is_told_as_one(line: str, tmp_path: Path) -> None:
    found = doctor(tmp_path, line)
    assert (found.failure_class, found.confidence) == ("unknown", "low")
    assert "SIGKILL ended the program" in found.message
    assert "memory" in found.hint
    assert doctor(tmp_path, line, "ValueError: x").failure_class == "application_error"


@pytest.mark.parametrize(
    "line",
    ["Killed 3 stale workers before the start", "jobs: Running 3 Killed 0", "INFO Killed process 12 of the cache"],
)
def test_other_kills_are_none(line: str) -> None:
    assert find_cause([line], stepped=True) is None
