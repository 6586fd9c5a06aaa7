"""Logs of harmless words, steps and an end, mixed after the rules were made: the end is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.workflows.doctor import examine_logs

NODE = "srun: error: Node failure on gn017\nsrun: error: gn017: tasks 4-7: Killed\n"
LIMIT = "slurmstepd: error: *** JOB 9 ON gn001 CANCELLED AT 2026-10-02T10:00:00 DUE TO TIME LIMIT ***\n"
OOM = "[rank6]: Traceback (most recent call last):\n[rank6]: torch.OutOfMemoryError: CUDA out of memory. Tried\n"
ECC = (
    "[rank3]:[E1001 10:00:00.1 ProcessGroupNCCL.cpp:1] [Rank 3] Process group watchdog thread terminated with "
    "exception: CUDA error: uncorrectable ECC error encountered\n"
)
NAN = " iteration {}/ 10 | lm loss: nan | grad norm: nan |\n"
MEGATRON = "".join(
    f" [2026-10-01 10:00:{step:02d}] iteration {step:8d}/ 1000 | lm loss: 2.1E+00 | grad norm: 0.5 |\n"
    for step in range(1, 60)
)
HF = "".join(f"{{'loss': 2.{step}, 'grad_norm': 0.7, 'epoch': 0.{step:02d}}}\n" for step in range(1, 40))
TITAN = "".join(
    f"[rank0]:[titan] 2026-10-01 10:00:00,000 - root - INFO - step: {step:2d}  loss:  7.62585  grad_norm: 26.6250\n"
    for step in range(1, 40)
)
BARE = "".join(f"step {step}/900 loss=3.0 tok/s 1800\n" for step in range(1, 40))

MIXES = [
    (
        "[rank2]:[W1001 10:00:00.1 socket.cpp:464] [c10d] Error: Connection refused, retrying\n",
        MEGATRON,
        NODE,
        "node_failure",
    ),
    (
        ("UserWarning: OSError: [Errno 28] No space left on device: could not cache; caching is disabled\n"),
        HF,
        LIMIT,
        "time_limit",
    ),
    (
        ("2026-10-01 09:59:00 - WARNING - probe: torch.OutOfMemoryError: CUDA out of memory at seq 65536, halving\n"),
        MEGATRON,
        NODE,
        "node_failure",
    ),
    (
        (
            "[2026-10-01 09:59:00] INFO env: NCCL_DEBUG=INFO; on 'uncorrectable ECC error' the watchdog"
            " aborts. error policy=restart\n"
        ),
        TITAN,
        OOM,
        "gpu_oom",
    ),
    (
        '{"level": "info", "msg": "restarting loader after OSError: [Errno 5] Input/output error"}\n',
        HF,
        ECC,
        "gpu_hardware",
    ),
    (
        ("huggingface_hub: HTTP Error 429 quota exceeded thrown while requesting HEAD https://huggingface.co/x\n"),
        HF,
        NODE,
        "node_failure",
    ),
    ("Sample 17: 'The kernel said: Out of memory: Killed process 44 (firefox)'\n", BARE, LIMIT, "time_limit"),
    ("| question | RuntimeError: CUDA error: device-side assert triggered in Memory? |\n", BARE, NODE, "node_failure"),
    ("gn002: bash: line 3: dcgmi: command not found\n", TITAN, ECC, "gpu_hardware"),
    (
        (
            "[NeMo W 2026-10-01 09:00:00 nemo_logging:349] ImportError: Megatron fused kernels cannot b"
            "e imported error\n"
        ),
        HF,
        OOM,
        "gpu_oom",
    ),
    ("Namespace(lr=1e-4, on_error='CUDA out of memory', restart=True)\n", "", NODE, "node_failure"),
    ('export FALLBACK="No space left on device"\n', "", LIMIT, "time_limit"),
    ("usage: train.py [--on-oom ACTION]  what to do upon CUDA out of memory error\n", "", ECC, "gpu_hardware"),
    ("[rank0]: KeyError: 'foo' caught in callback\n", MEGATRON, LIMIT, "time_limit"),
    ("rank 0: loss is NaN at step 3, skipping batch (error tolerated)\n", BARE, NODE, "node_failure"),
    (
        ("Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__> OSError: [Errno 9]\n"),
        HF,
        OOM,
        "gpu_oom",
    ),
    ("gn004:1:2 [3] NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n", TITAN, ECC, "gpu_hardware"),
    (
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=8.extern. Some of the step tasks ha"
            "ve been OOM Killed.\n"
        ),
        BARE,
        LIMIT,
        "time_limit",
    ),
    (
        (
            "[rank1]: FileNotFoundError: [Errno 2] No such file or directory: '/scratch/latest' (starti"
            "ng from scratch)\n"
        ),
        BARE,
        OOM,
        "gpu_oom",
    ),
    (
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB\nreducing micro batch to 4\n"),
        HF,
        NODE,
        "node_failure",
    ),
    ("", MEGATRON, "[rank3]: RuntimeError: DataLoader worker (pid 12847) is killed by signal: Killed.\n", "host_oom"),
    (
        "",
        HF,
        ("[2026-10-01 10:30:00] CRITICAL loader: OSError: [Errno 5] Input/output error: 'a' after 5 attempts\n")
        + LIMIT,
        "filesystem",
    ),
    (
        "",
        BARE,
        (
            "gn001:5:6 [1] enqueue.cc:1 NCCL WARN Cuda failure 2 'out of memory'\nsrun: error: gn001: ta"
            "sk 1: Exited with exit code 1\n"
        ),
        "gpu_oom",
    ),
    ("", TITAN, "OSError: [Errno 122] Disk quota exceeded: 'ckpt/x.pt'\n", "quota"),
    (
        "",
        "",
        ("ModuleNotFoundError: No module named 'transformers'\nsrun: error: gn001: task 0: Exited with exit code 1\n"),
        "environment",
    ),
    (
        "",
        MEGATRON,
        ("[rank5]:[E1001 10:59:00.1 x.cpp:1] [PG 0 Rank 5] NCCL WARN Cuda failure 'out of memory' retrying (3/3)\n")
        + LIMIT,
        "gpu_oom",
    ),
    (
        "",
        BARE,
        (
            "kernel: NVRM: Xid (PCI:0000:02:00): 79, pid=1, GPU has fallen off the bus.\nstep 40/900 los"
            "s=3\nsrun: error: gn003: task 9: Aborted (core dumped)\n"
        ),
        "gpu_hardware",
    ),
    (
        (
            " iteration 1/ 10 | lm loss: nan | grad norm: nan |\n iteration 2/ 10 | lm loss: nan | grad "
            "norm: nan |\n iteration 3/ 10 | lm loss: nan | grad norm: nan |\n iteration 4/ 10 | lm loss:"
            " nan | grad norm: nan |\n"
        ),
        MEGATRON,
        NODE,
        "node_failure",
    ),
    (
        "",
        MEGATRON,
        "".join(f" iteration {step}/ 1000 | lm loss: NaN | grad norm: 1.0 |\n" for step in range(60, 66)) + LIMIT,
        "divergence",
    ),
    (
        "",
        HF,
        (
            "{'loss': inf, 'grad_norm': inf, 'epoch': 0.5}\n{'loss': inf, 'grad_norm': inf, 'epoch': 0.5"
            "}\n{'loss': inf, 'grad_norm': inf, 'epoch': 0.5}\n{'loss': inf, 'grad_norm': inf, 'epoch': 0"
            ".5}\n"
        ),
        "divergence",
    ),
    (
        (
            "slurmstepd: error: *** JOB 8 ON gn001 CANCELLED AT 2026-10-01T10:00:00 DUE TO TIME LIMIT *"
            "**\nSLURM_RESTART_COUNT=2\n"
        ),
        BARE,
        OOM,
        "gpu_oom",
    ),
    (
        (
            "[rank1]: OSError: [Errno 116] Stale file handle: 'x'\nsrun: error: gn001: task 1: Exited wi"
            "th exit code 1\nslurmstepd: error: Job 8 requeued, restart count=1\n"
        ),
        "step 5 loss 2\n",
        NODE,
        "node_failure",
    ),
    (
        "",
        "".join(f"step {step} loss 2\n" for step in range(700, 730))
        + "[rank1]: OSError: [Errno 116] Stale file handle: 'x'\n"
        + "step 690 loss 2\n",
        OOM,
        "gpu_oom",
    ),
    ("[rank4]: RuntimeError: rank 2 tensor expected\n", "", "", "application_error"),
    ("Resuming: FileNotFoundError for latest; skipped. OSError: [Errno 2]\n", BARE, ECC, "gpu_hardware"),
    (
        (
            "DEBUG: retry policy: max_attempts=5, retriable = [OSError 116 Stale file handle, CUDA erro"
            "r: unknown error]\n"
        ),
        "",
        OOM,
        "gpu_oom",
    ),
    (
        ("# NOTE: if NCCL prints 'NET/IB : Got async event : port error' ask support (error code 12)\n"),
        "",
        NODE,
        "node_failure",
    ),
    (
        "W1001 10:00:00.000000 99 site-packages/x.py:1] OSError: [Errno 24] Too many open files\n",
        TITAN,
        LIMIT,
        "time_limit",
    ),
    (
        ("wandb: Network error (ConnectTimeout), entering retry loop. OSError: [Errno 110] Connection timed out\n"),
        "",
        OOM,
        "gpu_oom",
    ),
    ("comet_ml ERROR: Failed to upload: OSError: [Errno 28] No space left on device\n", BARE, NODE, "node_failure"),
]


@pytest.mark.parametrize(("chatter", "steps", "end", "kind"), MIXES)
def test_the_end_is_found(tmp_path: Path, chatter: str, steps: str, end: str, kind: str) -> None:
    log = tmp_path / "train.log"
    log.write_text(chatter + steps + end)
    assert examine_logs([log]).failure_class == kind
