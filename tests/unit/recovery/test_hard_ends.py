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


ENDS = [
    # NCCL and CUDA
    ("gn05:12:34 [0] init.cc:145 NCCL WARN Cuda failure 802 'system not yet initialized'", "gpu_hardware"),
    (
        "gn05:12:34 [0] init.cc:9 NCCL WARN Cuda failure 'all CUDA-capable devices are busy or unavailable'",
        "gpu_hardware",
    ),
    ("gn05:12:34 [3] proxy.cc:145 NCCL WARN Cuda failure 214 'uncorrectable ECC error encountered'", "gpu_hardware"),
    ("gn05:12:34 [3] enqueue.cc:14 NCCL WARN Cuda failure 719 'unspecified launch failure'", "gpu_hardware"),
    ("RuntimeError: CUDA error: the launch timed out and was terminated", "gpu_hardware"),
    ("RuntimeError: CUDA driver error: unknown error", "gpu_hardware"),
    ("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment", "gpu_hardware"),
    ("RuntimeError: CUDA driver error: out of memory", "gpu_oom"),
    ("NVRM: GPU 0000:4e:00.0: RmInitAdapter failed! (0x62:0xffff:2477)", "gpu_hardware"),
    # ranks that wait
    ("[Rank 0]: Ranks 7 failed to pass monitoredBarrier in 300000 ms. Original error:", "collective_timeout"),
    (
        "DistBackendError: [6] is setting up NCCL, but store->get('0') got error: wait timeout after 600000ms",
        "collective_timeout",
    ),
    # Slurm
    ("srun: error: Application launch failed: Job prolog failed", "boot_failure"),
    ("slurmstepd: error: container_p_join: open failed for /var/x/.ns: No such file or directory", "boot_failure"),
    ("slurmstepd: error: Job 123 exceeded memory limit (1000 > 900), being killed", "host_oom"),
    ("slurmstepd: error: Exceeded job memory limit", "host_oom"),
    # network cards, file systems, kernels
    ("mlx5_core 0000:1a:00.0: device's health compromised - reached miss count", "fabric"),
    ("cat: /gpfs/scratch/a: Stale file handle", "filesystem"),
    ("mmfsd: [X] The mmfs daemon is shutting down abnormally.", "filesystem"),
    ("kernel: Kernel panic - not syncing: Fatal machine check", "node_failure"),
    ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400", "node_failure"),
    # processes
    ("E1130 api.py:874] failed (exitcode: -11) local_rank: 3 (pid: 4711) of binary: python", "application_error"),
    ("[gn01:123  :0:123] Caught signal 11 (Segmentation fault: address not mapped to object)", "application_error"),
    ("!!!!!!! Segfault encountered !!!!!!!", "application_error"),
    ("double free or corruption (!prev)", "application_error"),
    ("corrupted size vs. prev_size", "application_error"),
    ("free(): invalid pointer", "application_error"),
    ("free(): invalid next size (fast)", "application_error"),
    ("E1130 api.py:874] failed (exitcode: -9) local_rank: 3 (pid: 4711) of binary: python", "unknown"),
]
HARMLESS = [
    "slurmstepd: error: Exceeded step memory limit at some point.",
    "mce: [Hardware Error]: Machine check events logged",
    "mlx5_core 0000:1a:00.0 ib0: Link up",
    "worker 3 has ended, exitcode: 0",
    "the launch of the application failed once and was repeated",
    "skipped 12 samples that are corrupt",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54",
    "kernel.panic = 10",
    "SIGUSR1: Caught signal 10 (User defined signal 1)",
]


@pytest.mark.parametrize(("line", "kind"), ENDS, ids=[line[:40] for line, _ in ENDS])
def test_lines_of_hard_ends(line: str, kind: str, tmp_path: Path) -> None:
    found = doctor(tmp_path, line)
    assert found.failure_class == kind
    assert line[:80] in found.message
    assert "only" not in found.message


def test_who_did_not_come_to_a_barrier_is_blamed(tmp_path: Path) -> None:
    assert doctor(tmp_path, "RuntimeError: [Rank 0]: Ranks 7 failed to pass monitoredBarrier in 9 ms").ranks == (7,)


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_lines_gain_no_class(line: str) -> None:
    assert find_cause([line], stepped=True) is None
