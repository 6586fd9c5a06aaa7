"""What a program survives, handles or quotes hides nothing, and what ends it is still found among such words."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.records.contract import Failure
from pretrainctl.recovery.aftermath import read_step
from pretrainctl.recovery.decision import course_of
from pretrainctl.recovery.diagnosis import Diagnosis, Evidence, diagnose
from pretrainctl.recovery.log_diagnosis import diagnose_log
from pretrainctl.recovery.log_reading import read_lines
from pretrainctl.recovery.placement import Placement
from pretrainctl.workflows.read_logs import read_logs

NODES = Placement(tuple(f"gn{number:03d}" for number in range(1, 33)), 4)

SURVIVED = [
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.00 GiB",
    "OSError: [Errno 116] Stale file handle: 'data/shard_0042.bin'",
    "OSError: [Errno 122] Disk quota exceeded: '/home/u/.cache/wandb/x'",
    "/bin/sh: nvidia-smi: command not found",
    "[rank0] apex: ImportError: cannot import name 'amp_C'",
    "FileNotFoundError: [Errno 2] No such file or directory: '/x/cache.idx'",
    "PermissionError: [Errno 1] Operation not permitted: 'sched_setaffinity'",
    "gn003:2222:2300 [1] NCCL WARN NET/IB : mlx5_2:1 Got async event : port error",
    "Exception in thread Thread-3: OSError: [Errno 24] Too many open files",
    "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
]
HANDLED = [
    "WARNING auto_batch: CUDA out of memory with micro_batch=16, trying 8",
    "WARNING dataset: OSError: [Errno 116] Stale file handle: 'data/shard_0042.bin', retrying (1/5)",
    "[WARNING] checkpoint iter_80 error: PytorchStreamReader failed reading zip archive; falling back to iter_60",
    "WARNING: ModuleNotFoundError: No module named 'pynvml' (GPU stats disabled)",
    "FileNotFoundError: [Errno 2] No such file or directory: '/x/cache.idx' -- building it",
    "PermissionError: [Errno 1] Operation not permitted: 'sched_setaffinity' (ignored)",
    "INFO: dataloader worker got BlockingIOError: [Errno 11] Resource temporarily unavailable, retrying",
    "INFO retrying checkpoint upload to s3: OSError: [Errno 5] Input/output error (attempt 1/5)",
    "tensorboard: WARNING Error: address already in use, trying 6007",
    "wandb: ERROR OSError: [Errno 122] Disk quota exceeded: '/home/u/.cache'",
    "[rank0]: ImportError: flash_attn not found, using sdpa (this is fine)",
]
QUOTED = [
    "wandb: WARNING 429 Too Many Requests: API quota exceeded, retrying in 30s",
    "INFO resolved config: resiliency: {retry_on: ['CUDA error: uncorrectable ECC error encountered'], max_retries: 3}",
    "DEBUG effective config: {'on_error': 'PytorchStreamReader failed -> restore previous', 'resume': 'auto'}",
    "config: {'on_oom': 'CUDA out of memory -> skip batch', 'retry': 3}",
    'help: if you see "CUDA out of memory", lower --micro-batch',
    "  oom_message: 'torch.OutOfMemoryError'",
    "dataset sample: How do I fix RuntimeError: CUDA out of memory? Answer: ...",
    'sample: "Out of memory: Killed process 1234 (chrome)"',
    "eval prompt: Traceback ... MemoryError",
    "+ srun --export=ALL python train.py --retry-on 'No space left on device'",
    "  retry_message ................................. CUDA out of memory",
]
STEPS = {
    "pretrainctl": "step {} | loss 2.120 | grad_norm 0.30 | tok/s 184101",
    "bare": "step {}",
    "megatron": " [2026-10-01 10:00:00] iteration {:8d}/ 1000 | consumed samples: 9 | lm loss: 2.3E+00 |",
    "hf": "{{'loss': 2.1, 'grad_norm': 0.7, 'learning_rate': 1e-4, 'epoch': 0.{:03d}}}",
    "nemo": "Epoch 0: :  40%|####   | 6/15 [05:29<08:14, reduced_train_loss=11.60, global_step={}.000, s=49.60]",
    "torchtitan": "[rank0]:[titan] 2026-10-01 10:00:00,000 - root - INFO - \x1b[31mstep:  {}  \x1b[32mloss:  7.6  x",
    "nanotron": "10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: {} / 378950 | lm_loss: 2.38",
    "deepspeed": "[2026-10-01 10:00:00,1] [INFO] [logging.py:96:log_dist] [Rank 0] step={}, skipped=0, lr=[1e-4]",
    "olmo": "2026-10-01 10:00:00.1 gn001:0 olmo.train:967 INFO [step={}/739328,epoch=0]",
}
ENDS = [
    ("srun: error: Node failure on gn017", "node_failure", ("gn017",)),
    ("[rank3]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", "gpu_hardware", ("gn001",)),
    ("[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "gpu_oom", ("gn002",)),
    ("slurmstepd: error: *** JOB 7 ON gn001 CANCELLED AT 2026-10-02T10:00:00 DUE TO TIME LIMIT ***", "time_limit", ()),
    ("slurmstepd: error: *** JOB 7 ON gn001 CANCELLED AT 2026-10-02T10:00:00 ***", "user_cancel", ()),
    ("[rank9]: RuntimeError: The size of tensor a (128) must match", "application_error", ("gn003",)),
]


def steps(kind: str, first: int, count: int) -> list[str]:
    return [STEPS[kind].format(number) for number in range(first, first + count)]


def judge(*lines: str, placement: Placement = NODES) -> Diagnosis:
    return diagnose_log(read_lines(lines, file="train.log", year=2026), placement)


@pytest.mark.parametrize(("end", "kind", "nodes"), ENDS)
@pytest.mark.parametrize("chatter", [*SURVIVED, *HANDLED, *QUOTED])
def test_what_was_said_before_further_steps_hides_no_end(
    chatter: str, end: str, kind: str, nodes: tuple[str, ...]
) -> None:
    found = judge("building model", chatter, *steps("pretrainctl", 1, 30), end)
    assert (found.failure_class, found.nodes) == (kind, nodes)


@pytest.mark.parametrize(("end", "kind", "nodes"), ENDS)
@pytest.mark.parametrize("chatter", [*HANDLED, *QUOTED])
def test_what_is_handled_or_quoted_hides_no_end_even_without_steps(
    chatter: str, end: str, kind: str, nodes: tuple[str, ...]
) -> None:
    found = judge(chatter, end)
    assert (found.failure_class, found.nodes) == (kind, nodes)


@pytest.mark.parametrize("chatter", [*SURVIVED, *HANDLED, *QUOTED])
def test_alone_it_is_told_with_little_confidence(chatter: str) -> None:
    assert judge(chatter, *steps("pretrainctl", 1, 30)).confidence == "low"
    if chatter not in SURVIVED:
        assert judge(chatter).confidence == "low"
    if chatter in QUOTED:
        assert judge(chatter).failure_class == "unknown"


@pytest.mark.parametrize("kind", STEPS)
def test_step_lines_of_many_programs(kind: str) -> None:
    oom = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"
    end = "slurmstepd: error: *** JOB 7 ON gn001 CANCELLED AT X DUE TO TIME LIMIT ***"
    assert judge(oom, *steps(kind, 1, 2), end).failure_class == "time_limit"
    assert judge(*steps(kind, 1, 2), oom, *steps(kind, 3, 1), end).failure_class == "gpu_oom"
    # Ranks that print the same step have made one step.
    assert judge(oom, *steps(kind, 3, 1) * 8, end).failure_class == "gpu_oom"


@pytest.mark.parametrize(
    "line",
    [
        "saved global_step80 at step 80",
        "resumed from step 60",
        "step 12: error: the loss scale is gone",
        "gn1:1:1 [0] NCCL INFO comm 0x1 rank 3 nranks 8",
        "Loading checkpoint shards:  50%|#####     | 1/2 [00:10<00:10, 10.3s/it]",
        "[INFO] [engine.py:1234:step] [Rank 3] micro step 0.1234 s",
    ],
)
def test_what_is_no_step(line: str) -> None:
    assert read_step(line) is None


def test_hardware_that_fails_lingers() -> None:
    xid = "kernel: NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."
    found = judge(*steps("bare", 1, 9), xid, *steps("bare", 10, 3), "srun: error: gn001: task 0: Killed")
    assert (found.failure_class, found.confidence) == ("gpu_hardware", "medium")
    assert judge(xid, *steps("bare", 1, 40)).confidence == "low"
    assert judge(xid, *steps("bare", 1, 3), "srun: error: Node failure on gn017").failure_class == "node_failure"


def test_slurm_s_word_stays_while_the_program_saves() -> None:
    limit = "slurmstepd: error: *** STEP 7.0 ON gn001 CANCELLED AT X DUE TO TIME LIMIT ***"
    assert judge(*steps("bare", 1, 9), limit, *steps("bare", 10, 5)).failure_class == "time_limit"


def test_a_line_later_than_the_steps_below_it_was_not_survived() -> None:
    """What is buffered comes after what is not."""
    oom = "2026-10-01 10:00:05 [rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"
    found = judge(oom, *steps("megatron", 1, 5))
    assert (found.failure_class, found.confidence) == ("gpu_oom", "high")


OVERFLOW = "{{'loss': 9.1, 'grad_norm': nan, 'learning_rate': 0.0, 'step': {}}}"
FINITE = "{{'loss': 2.1, 'grad_norm': 0.7, 'learning_rate': 1e-4, 'step': {}}}"


@pytest.mark.parametrize(
    ("lines", "diverged"),
    [
        ([OVERFLOW.format(1), OVERFLOW.format(2), OVERFLOW.format(3), FINITE.format(4)], False),
        ([OVERFLOW.format(1), OVERFLOW.format(2), OVERFLOW.format(3)], False),
        ([f"step {number} | loss 2.1 | moe loss: nan (disabled)" for number in (400, 500, 600)], False),
        ([f"step {number} | loss 2.1 | aux_loss: nan" for number in (400, 500, 600)], False),
        ([*(f"iteration {number} | lm loss: nan |" for number in (1, 2, 3)), "iteration 4 | lm loss: 2.0 |"], False),
        ([f"iteration {number} | lm loss: inf | grad norm: inf" for number in (1, 2, 3)], True),
        (["iteration 1 | lm loss: 2.0 |", *(f"iteration {number} | lm loss: nan |" for number in (2, 3, 4))], True),
        ([f"step: {number}  loss:      nan  grad_norm:     nan" for number in (1, 2, 3)], True),
        ([f"{{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.{number}}}" for number in (1, 2, 3)], True),
        (
            [*(f"iteration {n} | lm loss: nan |" for n in (1, 2, 3)), "iteration 4 | lm loss: 2 |"]
            + [f"iteration {n} | lm loss: nan |" for n in (5, 6, 7)],
            True,
        ),
    ],
)
def test_a_loss_that_is_no_number_up_to_the_end(lines: list[str], diverged: bool) -> None:
    assert (judge(*lines).failure_class == "divergence") == diverged


def test_the_last_start_of_several_is_judged() -> None:
    first = "slurmstepd: error: *** JOB 71 ON gn001 CANCELLED AT 2026-10-01T11:00:00 DUE TO PREEMPTION ***"
    oom = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"
    for again in ("=== job restarted after requeue, restart count 1 ===", "SLURM_RESTART_COUNT=1"):
        found = judge(*steps("bare", 1, 3), first, again, "step 1000 loss 2", oom, "srun: error: gn001: task 0: Exited")
        assert found.failure_class == "gpu_oom"
        assert any("2 starts" in line for line in found.evidence)
        assert any("(an earlier start)" in line and "PREEMPTION" in line for line in found.evidence)
    quota = "OSError: [Errno 122] Disk quota exceeded: 'ckpt/LATEST'"
    found = judge(*steps("bare", 900, 30), quota, *steps("bare", 800, 1), oom)
    assert found.failure_class == "gpu_oom", "the steps go back"
    assert judge(first, *steps("bare", 1, 30), oom).failure_class == "gpu_oom", "so many steps come after no limit"


@pytest.mark.parametrize(
    "line",
    [
        "[rank8]: AssertionError: Rank 8, node gn002: Unexpected result nan (message='found NaN in local grad norm')",
        "  3: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "terminate called after throwing an instance of 'c10::CUDAError: unknown error'",
        "  what():  CUDA error: uncorrectable ECC error encountered",
        "E   RuntimeError: CUDA error: an illegal memory access was encountered",
        '{"level": "error", "msg": "torch.OutOfMemoryError: CUDA out of memory. Tried"}',
        "ERROR dataset: OSError: [Errno 5] Input/output error (attempt 5/5)",
        "mkdir: cannot create directory 'x': Disk quota exceeded",
        "2026-10-01 10:00:00,1 ERROR trainer: OSError: [Errno 116] Stale file handle: 'a'",
        "a1:7:8 [0] enqueue.cc:1 NCCL WARN Cuda failure 2 'out of memory'",
        "cn001: [WARNING] [engine.py:1656:f] The following zero checkpoints paths are missing: ['x']",
        "RuntimeError: retries are exhausted: [Errno 5] Input/output error",
        "Failed to load config: [Errno 5] Input/output error",
        "AssertionError: too many skipped batches, the loss is NaN",
        "cp: error writing '/scratch/a b': No space left on device",
        "RuntimeError: CUDA error: misaligned address, using stream 7",
        "RuntimeError: HIP out of memory, no fallback is left",
        "2026-10-01 10:00:00,1 - train - ERROR - CUDA out of memory",
        "[12345.678] Out of memory: Killed process 410126 (python) total-vm:79905000kB, anon-rss:2kB",
    ],
)
def test_what_is_said_outright(line: str) -> None:
    found = judge(*steps("bare", 1, 3), line, "srun: error: Node failure on gn017")
    assert found.message.endswith(line.strip())
    assert found.failure_class not in {"unknown", "node_failure"}


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("ValueError: LoRA rank=16 must divide hidden 4095", ()),
        ("RuntimeError: expected tensor of rank 3, got rank 2", ()),
        ("[rank3]: RuntimeError: expected tensor of rank 5", (3,)),
        ("ValueError: matrix rank 7: too low", ()),
        ("[gn002:rank13] ValueError: bad", (13,)),
        ("[rank 5/64] ValueError: bad", (5,)),
        ("RuntimeError: global rank 12 lost its peer", (12,)),
        ("Rank 3: ValueError: bad", (3,)),
        ("RuntimeError: lost rank 9 on node gn003", (9,)),
    ],
)
def test_a_rank_is_that_of_a_process(line: str, ranks: tuple[int, ...]) -> None:
    assert judge(line).ranks == ranks


def test_nodes_in_short_form() -> None:
    names = {"gn[017-018]": ("gn017", "gn018")}
    for text, nodes in (("gn[017-018]", ("gn017", "gn018")), ("gn017,gn019", ("gn017", "gn019"))):
        reading = read_lines([])
        reading._expand = lambda text: names.get(text, tuple(text.split(",")))
        reading.add(f"srun: error: Node failure on {text}")
        assert diagnose_log(reading, NODES).nodes == nodes


@pytest.mark.parametrize("chatter", [[OVERFLOW.format(step) for step in (1, 2, 3)], *([line] for line in QUOTED)])
def test_in_a_run_chatter_does_not_say_why_a_rank_was_killed(chatter: list[str]) -> None:
    log = read_lines([*chatter, *(FINITE.format(step) for step in range(4, 15))], stepped=True)
    found = diagnose(Evidence(failure=Failure(1, "gn001", 137, 0.0), log=log, last_step=14))
    assert (found.failure_class, found.nodes, found.ranks) == ("unknown", ("gn001",), (1,))
    assert course_of(found).value != "stop"


@pytest.mark.parametrize("chatter", [*SURVIVED, *HANDLED])
def test_in_a_run_what_was_survived_stops_nothing(chatter: str) -> None:
    log = read_lines([chatter, *(FINITE.format(step) for step in range(4, 15))], stepped=True)
    found = diagnose(Evidence(failure=Failure(1, "gn001", 137, 0.0), log=log, last_step=14))
    assert (found.failure_class, found.ranks) == ("unknown", (1,))
    if log.findings():  # a command that is not found means nothing after the first step
        assert any(fact.startswith("log: (survived) ") for fact in found.evidence)


def test_files_are_read_from_their_ends(tmp_path: Path) -> None:
    """Places are bytes there, also of what a progress bar writes into one line."""
    log = tmp_path / "train.log"
    bar = "\r".join(STEPS["nemo"].format(number) for number in range(1, 6000))
    oom = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried"
    end = "srun: error: Node failure on gn[017-018]\n"
    log.write_text(f"{oom}\r{bar}\n{end}")
    found = diagnose_log(read_logs([log]), NODES)
    assert (found.failure_class, found.nodes) == ("node_failure", ("gn017", "gn018"))
    log.write_text(f"{bar}\r{oom}\n{end}")
    assert diagnose_log(read_logs([log]), NODES).failure_class == "gpu_oom"
    log.write_text(f"{oom}\n" + "x\n" * 200_000 + "\n".join(steps("megatron", 1, 9000)) + "\n" + "y\n" * 200_000 + end)
    assert diagnose_log(read_logs([log]), NODES).failure_class == "node_failure"


def test_steps_in_another_file_say_that_the_start_was_over(tmp_path: Path) -> None:
    one, other = tmp_path / "rank0.log", tmp_path / "rank3.log"
    one.write_text("\n".join(steps("bare", 1, 9)))
    other.write_text("ModuleNotFoundError: No module named 'pynvml'\nKeyError: 'k'\n")
    assert diagnose_log(read_logs([one, other]), NODES).failure_class == "application_error"
    one.write_text("building model\n")
    assert diagnose_log(read_logs([one, other]), NODES).failure_class == "environment"


@pytest.mark.parametrize(
    ("first", "second", "kind", "confidence"),
    [
        ("2026-10-01T10:05:00Z", "2026-10-01T12:01:00+02:00", "gpu_oom", "high"),
        ("10/01/2026 01:05:00 PM", "10/01/2026 11:01:00 AM", "gpu_oom", "high"),
        ("[1790000300.1]", "[1790000100.0]", "gpu_oom", "high"),
        ("[rank0]:[E0101 00:00:05.1 x.cpp:1]", "[rank1]:[E1231 23:59:50.1 x.cpp:1]", "gpu_oom", "high"),
        ("Jan  1 00:00:05 gn001 python[3]:", "Dec 31 23:59:50 gn002 python[3]:", "gpu_oom", "high"),
        ("13/10/2026 10:05:00", "13/10/2026 10:01:00", "gpu_oom", "high"),
        ("[10:05:00]", "[10:01:00]", "filesystem", "medium"),
        ("2026-10-01T10:05:00Z", "2026-10-01 12:01:00", "filesystem", "medium"),
        ("", "2026-10-01 12:01:00", "filesystem", "medium"),
    ],
)
def test_the_order_of_files(tmp_path: Path, first: str, second: str, kind: str, confidence: str) -> None:
    one, other = tmp_path / "a.log", tmp_path / "b.log"
    one.write_text(f"{first} [rank0]: OSError: [Errno 5] Input/output error\n")
    other.write_text(f"{second} [rank1]: torch.OutOfMemoryError: CUDA out of memory\n")
    found = diagnose_log(read_logs([one, other]), NODES)
    assert (found.failure_class, found.confidence) == (kind, confidence)


def test_steps_at_a_later_time_in_another_file(tmp_path: Path) -> None:
    one, other = tmp_path / "rank0.log", tmp_path / "rank3.log"
    limit = "slurmstepd: error: *** JOB 7 ON gn001 CANCELLED AT 2026-10-01T11:00:00 DUE TO TIME LIMIT ***"
    step = " [2026-10-01 10:{0:02d}:00] iteration {0:8d}/ 1000 | lm loss: 2.3E+00 |"
    one.write_text("\n".join([*(step.format(number) for number in range(1, 20)), limit]))
    stale = "2026-10-01 10:{}:00,123 ERROR dataset: OSError: [Errno 116] Stale file handle: 'x'\n"
    other.write_text(stale.format("04"))
    assert diagnose_log(read_logs([one, other]), NODES).failure_class == "time_limit"
    other.write_text(stale.format("19"))
    assert diagnose_log(read_logs([one, other]), NODES).failure_class == "filesystem"


def test_steps_below_the_error_of_the_rank_that_failed_may_be_from_a_buffer() -> None:
    oom = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried"
    log = read_lines([oom, *(FINITE.format(step) for step in range(4, 9))], stepped=True)
    for status, rank, kind in ((1, 1, "gpu_oom"), (137, 1, "unknown"), (1, 0, "application_error")):
        found = diagnose(Evidence(failure=Failure(rank, "gn001", status, 0.0), log=log, last_step=14))
        assert found.failure_class == kind
