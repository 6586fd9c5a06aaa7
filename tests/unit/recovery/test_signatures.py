"""Every entry of the table by lines as they were seen: its class, and what the same words mean elsewhere."""

from __future__ import annotations

import re

import pytest

from pretrainctl.recovery.diagnosis import FailureClass
from pretrainctl.recovery.log_reading import find_cause
from pretrainctl.recovery.signatures import CLUES, SIGNATURES
from pretrainctl.recovery.signatures.machine import NOT_WRITTEN

ROOTS = [
    # Slurm, in both styles of prefix
    ("slurmstepd: error: *** JOB 7001 ON cn011 CANCELLED AT 2026-09-21T10:00:00 DUE TO TIME LIMIT ***", "time_limit"),
    ("[2026-09-21T10:00:00.123] error: *** STEP 7001.0 ON cn011 CANCELLED AT X DUE TO TIME LIMIT ***", "time_limit"),
    ("slurmstepd: error: *** JOB 7001 ON cn011 CANCELLED AT X DUE TO PREEMPTION ***", "preempted"),
    ("slurmstepd: error: *** JOB 7001 ON cn011 CANCELLED AT X DUE TO NODE FAILURE, SEE LOG ***", "node_failure"),
    ("srun: error: Node failure on cn017", "node_failure"),
    (
        "srun: error: Unable to create step for job 1: Memory required by task is not available",
        "boot_failure",
    ),
    ("slurmstepd: error: *** STEP 7001.0 ON cn011 UNCORRECTABLE MEMORY ERROR AT X ***", "node_failure"),
    ("slurmstepd: error: execve(): /tmp/slurmd/job00089/slurm_script: No such file or directory", "node_failure"),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7001.batch.", "host_oom"),
    ("[2026-09-21T10:00:00.123] error: Detected 2 oom_kill events in StepId=7001.0.", "host_oom"),
    ("srun: error: cn012: task 0: Out Of Memory", "host_oom"),
    ("[856341.77] Out of memory: Killed process 410126 (python) total-vm:79905000kB, anon-rss:2kB", "host_oom"),
    ("[1.5] Memory cgroup out of memory: Killed process 99 (python)", "host_oom"),
    ("RuntimeError: DataLoader worker (pid 12847) is killed by signal: Killed.", "host_oom"),
    ("RuntimeError: DataLoader worker (pid(s) 1, 2) exited unexpectedly", "application_error"),
    ("OSError: [Errno 12] Cannot allocate memory", "host_oom"),
    ("MemoryError: Unable to allocate 4.00 GiB for an array", "host_oom"),
    # GPUs
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu_hardware"),
    ("CUDA error: uncorrectable NVLink error detected during the execution", "gpu_hardware"),
    ("kernel: NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.", "gpu_hardware"),
    ("NVRM: Xid (PCI:0000:41:00): 48, pid=1234, DBE (double bit error)", "gpu_hardware"),
    ("NVRM: Xid (PCI:0000:41:00): 94, pid=1234, Contained ECC error", "gpu_hardware"),
    ("NVRM: Xid (PCI:0000:41:00): 31, pid=1234, name=python, MMU Fault", "application_error"),
    ("Unable to determine the device handle for GPU0000:03:00.0: Unknown Error", "gpu_hardware"),
    ("RuntimeError: CUDA error: unspecified launch failure", "gpu_hardware"),
    ("terminate called after throwing an instance of 'c10::CUDAError: unknown error'", "gpu_hardware"),
    ("Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f. Reason: Unknown.", "application_error"),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "application_error"),
    ("[rank37]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.00 GiB. GPU 5 has", "gpu_oom"),
    ("torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB", "gpu_oom"),
    ("RuntimeError: CUDA error: out of memory", "gpu_oom"),
    # network
    ("cn1:7:8 [0] misc/ibvwrap.cc:94 NCCL WARN NET/IB : Got async event : port error", "fabric"),
    ("cn1:7:8 [0] net_ib.cc:64 NCCL WARN NET/IB : mlx5_1:1 Got async fatal event: port error", "fabric"),
    # numbers and settings
    ("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.", "divergence"),
    ("AssertionError: Rank 3: found NaN in local grad norm in backward pass before data-parallel", "divergence"),
    ("AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch", "config"),
    ("deepspeed.runtime.config_utils.DeepSpeedConfigError: nebula is not supported", "config"),
    ("train.py: error: unrecognized arguments: --micro-batchsize 4", "config"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train_text_document.idx'", "config"),
    (
        "[rank5]: utils.ZeRORuntimeException: used a DP world size of 32 but the current world size is 128.",
        "checkpoint_world_size",
    ),
    # checkpoints
    (
        "cn001: [WARNING] [engine.py:1656:f] The following zero checkpoints paths are missing: ['x']",
        "checkpoint_incomplete",
    ),
    ("[WARNING] Client provided checkpoint load path: ckpt/mp_rank_00.pt does not exist", "checkpoint_incomplete"),
    ("1: rank 1: error: /w/a b/global_step60 cannot be loaded: EOFError: ran out", "checkpoint_incomplete"),
    ("rank 0: error: /w/global_step60 holds the optimizer of step 40", "checkpoint_incomplete"),
    ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding", "checkpoint_incomplete"),
    (
        "FileNotFoundError: [Errno 2] No such file: 'c/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt'",
        "checkpoint_incomplete",
    ),
    # files and limits
    ("OSError: [Errno 122] Disk quota exceeded: 'ckpt/.LATEST.tmp.14915246'", "quota"),
    ("mkdir: cannot create directory 'x': Disk quota exceeded", "quota"),
    ("OSError: [Errno 28] No space left on device", "filesystem"),
    ("tar: data: Cannot write: No space left on device", "filesystem"),
    ("FATAL:   mkdir /tmp/b: no space left on device", "filesystem"),
    ("OSError: [Errno 28] No space left on device: '/dev/shm/torch_4711_0'", "config"),
    ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory", "config"),
    ("RuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error. It is possible that", "config"),
    ("OSError: [Errno 116] Stale file handle: 'data/shard_0042.bin'", "filesystem"),
    ("OSError: [Errno 5] Input/output error", "filesystem"),
    ("OSError: [Errno 107] Transport endpoint is not connected", "filesystem"),
    ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "filesystem"),
    ("OSError: [Errno 30] Read-only file system: 'logs/run.log'", "filesystem"),
    ("OSError: [Errno 24] Too many open files", "environment"),
    ("PermissionError: [Errno 13] Permission denied: 'ckpt'", "environment"),
    ("rank 0: error: /ckpt/global_step20 could not be written: file write failed", "filesystem"),
    ("RuntimeError: [enforce fail at inline_container.cc:595] . PytorchStreamWriter failed writing file", "filesystem"),
    ("RuntimeError: [enforce fail at inline_container.cc:424] . unexpected pos 1024 vs 990", "filesystem"),
    # the start
    ("RuntimeError: The server socket has failed to listen on any address. code: -98, name: EADDRINUSE", "port_in_use"),
    ("OSError: [Errno 98] Address already in use", "port_in_use"),
    ("ModuleNotFoundError: No module named 'transformers'", "environment"),
    ("ImportError: libnccl.so.2: cannot open shared object file: No such file or directory", "environment"),
    ("/var/spool/slurmd/job1/slurm_script: line 12: python3.11: command not found", "environment"),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "environment"),
    ("Failed to initialize NVML: Driver/library version mismatch", "environment"),
    ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "environment"),
    # the reference trainer
    ("rank 0: error: /data/quickstart.bin: No such file or directory", "config"),
    ("0: rank 0: error: the environment variable MASTER_PORT is not set", "config"),
    ("rank 1: error: a global batch of 8 does not divide into 3 ranks x 1 samples", "config"),
    ("rank 0: error: heads 5 do not share hidden 64 evenly", "config"),
    ("rank 0: error: /data/a.bin holds 7 bytes where its index asks for 8", "config"),
    ("rank 1: error: /c/global_step40 was saved with global_batch 8, but this run has 16", "config"),
    ("rank 1: error: /c/global_step40 was saved with world_size 2, but this run has 4", "checkpoint_world_size"),
    ("rank 0: error: there is no checkpoint /c/global_step40", "checkpoint_incomplete"),
    ("rank 0: error: /c/global_step40/mp_rank_00_model_states.pt is missing", "checkpoint_incomplete"),
]
LASTING = {
    "OSError: [Errno 28] No space left on device",
    "tar: data: Cannot write: No space left on device",
    "FATAL:   mkdir /tmp/b: no space left on device",
}
SUSPECTS = {
    "RuntimeError: CUDA error: unspecified launch failure",
    "terminate called after throwing an instance of 'c10::CUDAError: unknown error'",
}
ECHOES = [
    "slurmstepd: error: *** STEP 7001.0 ON cn011 CANCELLED AT X DUE TO JOB REQUEUE ***",
    "[2026-09-21T10:00:00.809] error: *** STEP 7001.0 ON cn011 CANCELLED AT X DUE TO TASK FAILURE ***",
    "slurmstepd: error: *** STEP 7001.0 ON cn011 CANCELLED AT 2026-09-21T10:00:00 ***",
    "slurmstepd: error: *** JOB 7001 ON gn011 FAILED (non-zero exit code or other failure mode) ***",
    "slurmstepd: error: Failed to send MESSAGE_TASK_EXIT: Connection refused",
    "srun: error: Timed out waiting for job step to complete",
    "srun: error: cn012: tasks 0-57,59-63: Terminated",
    "srun: error: cn014: tasks 8-15: Exited with exit code 1",
    "srun: error: cn015: task 3: Killed",
    "[rank3]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
    "[rank3]: [Rank 3] Process group watchdog thread terminated with exception: NCCL error: remote process exited",
    "[rank1]: RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:3000",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "WARNING:torch.distributed.elastic.rendezvous: an error of type RendezvousConnectionError.",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
    "NVRM: Xid (PCI:0000:41:00): 45, pid=1234, name=python, Ch 00000010",
]
ORDINARY = [
    "step 5501 | loss 2.120 | grad_norm 0.30",
    "",
    "Error rate: 3",
    "no space left in the buffer",
    "steps/s: 28",
    "validation error: 0.12 | test error: 0.14",
    "memory allocated 71.2 GB, max memory 74.0 GB",
    "srun: Job step aborted: Waiting up to 62 seconds for job step to finish.",
    "srun: Force Terminated StepId=7001.0",
    "the quota of this project is 20 TB",
    "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 16777216.0, reducing to 8388608.0",
    "iteration 7 | lm loss: 2.1E+00 | grad norm: 0.493 | number of nan iterations:   0 |",
]


EXTRA = [
    "7001|OUT_OF_MEMORY|0:125",
    "7001|NODE_FAIL|1:0",
    "7001|BOOT_FAIL|0:0",
    "[1695:cn1:12:0] ib_mlx5_log.c:179 UCX  ERROR Transport retry count exceeded on mlx5_0:1/IB",
    "[1695:cn1:12:0] wireup.c:1026 UCX  ERROR no transport to <no debug data>: Destination is unreachable",
    "RuntimeError: No CUDA GPUs are available",
    "Fatal Python error: Segmentation fault",
    "bash: line 1: 4711 Bus error               (core dumped) python train.py",
    "bash: line 1: 4711 Segmentation fault      (core dumped) python train.py",
    "bash: line 1: 4711 Aborted                 (core dumped) python train.py",
    "mpirun noticed that process rank 1 with PID 0 on node cn02 exited on signal 11 (Segmentation fault).",
    "KeyboardInterrupt",
    "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
    "AssertionError",
    "Exception",
    "StopIteration",
    "cn1:7:8 [1] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.0.0.5<33092> with error 12",
    "{'loss': nan}",
    "loss=nan",
    *(f"lm loss{value} | grad norm{value}" for value in (": nan", ": NAN", "=nan")),
    "loss: NAN",
    *(f"loss:{value}" for value in ("      nan", "     nan", " NaN", " inf", " Inf")),
    *("loss=NaN", "loss=inf", "{'loss': 'nan'}"),
    *(f"loss{value}" for value in (":NaN", ":NAN", " = NAN", "=NAN", ":inf", ":Inf", " = Inf")),
    *(f"step 3 | loss {value} | lr 1e-4" for value in ("nan", "NaN", "NAN", "inf", "Inf")),
    *(f"Loss is {value}, stopping training" for value in ("nan", "NaN", "NAN", "inf", "Inf", "non-finite")),
    *("loss became nan", "non-finite loss at step 3", "the loss is not finite", "RuntimeError: training diverged"),
    "CUDA error: device-side assert triggered in Memory",
    "OSError: [Errno 28] x",
    "OSError: [Errno 122] x",
    "slurmstepd: error: *** JOB 7001 ON gn011 CANCELLED AT 2026-09-21T10:00:00 ***",
    "srun: error: gn013: task 2: Segmentation fault (core dumped)",
    "[rank3]:[E321 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(",
    "[Rank 0] Exception detected by watchdog at work: 1580, last enqueued NCCL work: 1582",
    "[Rank 0] NCCL communicator was aborted on rank 0. error",
    "RuntimeError: No route to host",
    "[rank3]:[F ProcessGroupNCCL.cpp:1362] [PG 0 Rank 3] Heartbeat monitor timed out! Process will be terminated",
    "[rank3]: ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress",
    "[rank3]: Received a dump signal due to a collective timeout from  rank 7 and we will try our best",
    "[rank3]: Terminating the process after attempting to dump debug info, due to collective timeout or exception.",
    "[Rank 0]: Ranks 7 failed to pass monitoredBarrier in 300000 ms. error",
    "slurmstepd: error: Exceeded job memory limit",
    "Cuda failure 700 'an illegal memory access was encountered'",
    "Cuda failure 719 'unspecified launch failure'",
    "ValueError: bad",
    "Exception: bad",
    "rank 0: hint: make it",
    "rank 0: error: something else",
    *(f"step 7 | loss{sign}" for sign in ("=Inf", ":nan", ": INF", ": Inf", ": inf", "=inf", "= inf")),
    *(f"step 7 | loss{sign}" for sign in ("= nan", "= NaN", ": NaN", "=NaN", ":  nan", ":  inf")),
]


@pytest.mark.parametrize(("line", "kind"), ROOTS)
def test_roots(line: str, kind: str) -> None:
    finding = find_cause([*ECHOES, "ValueError: caught and printed", line, *ECHOES], stepped=False)
    assert finding is not None
    if finding.signature.weight == "error":  # which the line that was caught before it is, too
        finding = find_cause([*ECHOES, line, *ECHOES], stepped=False)
        assert finding is not None
    assert (finding.line, finding.signature.failure_class) == (line, kind)
    assert finding.signature.lasting == (line in LASTING)
    assert (finding.signature.confidence == "low") == (line in SUSPECTS)


@pytest.mark.parametrize("line", ECHOES)
def test_echoes_are_no_causes_and_blame_nobody(line: str) -> None:
    finding = find_cause([line], stepped=True)
    assert finding is not None
    assert (finding.signature.weight, finding.ranks, finding.nodes) == ("echo", (), ())


def _weight(line: str) -> str:
    finding = find_cause([line], stepped=False)
    assert finding is not None
    return finding.signature.weight


def test_the_earliest_root_wins() -> None:
    lines = [line for line, _ in ROOTS if _weight(line) == "root"]
    assert len(lines) > 60
    for first in range(len(lines)):
        finding = find_cause(lines[first:] + lines[:first], stepped=False)
        assert finding is not None
        alone = find_cause([lines[first]], stepped=False)
        assert alone is not None
        if alone.signature.meaning == NOT_WRITTEN:  # it does not say why
            assert finding.signature.failure_class == "quota" or finding.signature.lasting
        else:
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
    assert before.signature.failure_class == "environment"
    assert after is not None
    assert after.signature.weight == "error"


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_lines(line: str) -> None:
    assert find_cause([line], stepped=False) is None


def test_every_class_of_the_table_exists() -> None:
    assert {signature.failure_class for signature in SIGNATURES} <= {kind.value for kind in FailureClass}


def test_clues_are_plain_words() -> None:
    """They become the pattern of a search as they are."""
    assert all(re.escape(clue).replace("\\ ", " ") == clue for clue in CLUES)


@pytest.mark.parametrize("times", [1, 2, 3, 20])
@pytest.mark.parametrize("line", ["{'loss': nan, 'epoch': 0.2}", "lm loss: nan | grad norm: 1.0", "12% 3/40 loss=nan"])
def test_one_skipped_step_is_no_divergence(line: str, times: int) -> None:
    finding = find_cause(["step 1 | loss: 2.0", *[line] * times], stepped=True)
    assert (finding is not None and finding.signature.failure_class == "divergence") == (times >= 3)
