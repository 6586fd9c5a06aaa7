"""Logs to which several starts of a program wrote, and logs of a program that came to its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pretrainctl.workflows.doctor import Finding, examine_logs

SLURM = "slurmstepd: error: *** JOB 9 ON gn001 CANCELLED AT 2026-11-30T10:10:00 DUE TO {} ***"
LOADS = " loading checkpoint from /ckpt at iteration 20"
RAISED = "KeyError: 'x'"
DONE = {
    "Hugging Face": "Training completed. Do not forget to share your model on huggingface.co/models =)",
    "Megatron-LM": "[after training is done] datetime: 2026-11-30 10:00:05 ",
    "Lightning": "`Trainer.fit` stopped: `max_steps=20` reached.",
    "torchtitan": "[rank0]:2026-11-30 10:00:05,1 - root - INFO - Training completed",
    "pretrainctl": "reached at step 20: the last step of the recipe",
}


def megatron(first: int, last: int) -> list[str]:
    return [
        f" [2026-11-30 10:00:{step % 60:02}] iteration {step:8}/  500000 | lm loss: 2.499E+00 | grad norm: 0.311 |"
        for step in range(first, last)
    ]


def hugging_face(first: int, last: int) -> list[str]:
    return [f"{{'loss': 2.0, 'grad_norm': 0.8, 'learning_rate': 1e-05, 'epoch': 0.{i}}}" for i in range(first, last)]


@pytest.fixture
def doctor(tmp_path: Path) -> Callable[..., Finding]:
    def examine(*lines: str) -> Finding:
        (tmp_path / "job.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return examine_logs([tmp_path / "job.log"])

    return examine


@pytest.mark.parametrize("why", ["PREEMPTION", "TIME LIMIT"])
@pytest.mark.parametrize(
    ("between", "after"),
    [
        ((LOADS,), megatron(21, 60)),
        ((), megatron(21, 60)),
        ((), megatron(21, 25)),
        ((LOADS,), megatron(31, 35)),
        (("using world size: 8, data-parallel size: 8",), megatron(31, 33)),
        (("[INFO] Resuming training from checkpoint-20",), ["{'loss': 2.0}", "{'loss': 2.1}"]),
    ],
)
def test_what_slurm_ended_before_the_last_start_does_not_explain_its_end(
    doctor: Callable[..., Finding], why: str, between: tuple[str, ...], after: list[str]
) -> None:
    """Its line tells a later time than the steps below it, as clocks that differ do."""
    found = doctor(*megatron(1, 30), SLURM.format(why), *between, *after, "Traceback (most recent call last):", RAISED)
    assert (found.failure_class, found.action) == ("application_error", "restart_once")
    assert RAISED in found.message


@pytest.mark.parametrize(("why", "kind"), [("PREEMPTION", "preempted"), ("TIME LIMIT", "time_limit")])
@pytest.mark.parametrize("after", [[], megatron(30, 34), [LOADS], megatron(30, 60)])
def test_what_slurm_ends_while_steps_go_on_is_still_the_cause(
    doctor: Callable[..., Finding], why: str, kind: str, after: list[str]
) -> None:
    """What ranks had in their buffers comes below it; so does what a start says that got no farther."""
    assert doctor(*megatron(1, 30), SLURM.format(why), *after).failure_class == kind


def test_fractions_of_epochs_that_go_back_tell_another_start(doctor: Callable[..., Finding]) -> None:
    found = doctor(*hugging_face(10, 30), SLURM.format("TIME LIMIT"), *hugging_face(21, 25), RAISED)
    assert found.failure_class == "application_error"


def test_steps_that_are_counted_anew_in_each_epoch_tell_no_other_start(doctor: Callable[..., Finding]) -> None:
    steps = [f"epoch {epoch} | step {step} | loss 2.1" for epoch in (1, 2) for step in range(30)]
    found = doctor(*steps[:-1], SLURM.format("TIME LIMIT"), steps[-1])
    assert found.failure_class == "time_limit"
    assert not any("starts of the program" in line for line in found.evidence)


@pytest.mark.parametrize("name", ["eval", "Validation", "val"])
def test_steps_of_an_evaluation_tell_no_other_start(doctor: Callable[..., Finding], name: str) -> None:
    aside = [f"{name} step {step} | loss 2.1" for step in (1, 2)]
    found = doctor(*megatron(1, 30), SLURM.format("TIME LIMIT"), *aside)
    assert found.failure_class == "time_limit"
    lines = [line for first in range(1, 90, 10) for line in (*megatron(first, first + 10), *aside)]
    found = doctor(*lines, "KeyError: 'x'")
    assert not any("starts of the program" in line for line in found.evidence)


@pytest.mark.parametrize("line", DONE.values(), ids=DONE)
def test_a_log_that_says_that_the_training_is_done(doctor: Callable[..., Finding], line: str) -> None:
    found = doctor(*megatron(1, 21), line, "saving the tokenizer")
    assert (found.failure_class, found.action) == ("finished", "finish")
    assert line.strip() in found.evidence[0]


def test_what_was_survived_does_not_stand_against_the_end(doctor: Callable[..., Finding]) -> None:
    out = "[rank0]: torch.OutOfMemoryError: CUDA out of memory."
    found = doctor(out, *megatron(1, 21), DONE["Megatron-LM"], "WARNING: OSError: [Errno 116] Stale file, retrying")
    assert found.failure_class == "finished"
    left = "[rank3]:[W1130 10:00:06.1 TCPStore.cpp:125] [c10d] recvValue failed: Connection reset by peer"
    assert doctor(*megatron(1, 21), DONE["Megatron-LM"], left).failure_class == "finished"
    assert (
        doctor(*megatron(1, 9), SLURM.format("PREEMPTION"), LOADS, *megatron(3, 9), *DONE.values()).action == "finish"
    )


@pytest.mark.parametrize("line", DONE.values(), ids=DONE)
@pytest.mark.parametrize(
    ("below", "kind"),
    [
        ("OSError: [Errno 28] No space left on device", "filesystem"),
        (SLURM.format("TIME LIMIT"), "time_limit"),
        ("srun: error: gn002: task 5: Exited with exit code 1", "unknown"),
        ("ValueError: x", "application_error"),
        ("\n".join(megatron(1, 5)), "unknown"),
    ],
)
def test_what_comes_after_the_end_counts(doctor: Callable[..., Finding], line: str, below: str, kind: str) -> None:
    assert doctor(*megatron(1, 21), line, below).failure_class == kind


def test_an_error_that_came_before_the_end_and_after_it(doctor: Callable[..., Finding]) -> None:
    full = "OSError: [Errno 28] No space left on device"
    assert doctor(full, *megatron(1, 21), DONE["Megatron-LM"], full).failure_class == "filesystem"


@pytest.mark.parametrize(
    "line", ["Training completed 5 of 10 epochs", "the training is done on gn001", "target reached"]
)
def test_other_words_tell_no_end(doctor: Callable[..., Finding], line: str) -> None:
    assert doctor(*megatron(1, 21), line).failure_class == "unknown"


def test_a_loss_that_was_no_number_up_to_the_end(doctor: Callable[..., Finding]) -> None:
    steps = [f"step {step} | loss nan" for step in range(10, 20)]
    assert doctor(*steps, DONE["Hugging Face"]).failure_class == "divergence"


NODES = ("SLURM_JOB_NODELIST=gn[001-004]", "SLURM_NTASKS_PER_NODE=1")


@pytest.mark.parametrize("printers", [(0,), (0, 1, 2, 3)])
@pytest.mark.parametrize("first", [True, False])
def test_the_rank_whose_error_the_others_pass_on(
    doctor: Callable[..., Finding], printers: tuple[int, ...], first: bool
) -> None:
    lines: list[str] = []
    for rank in printers:
        error = "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([3])"
        name = f"[rank{rank}]: {error}"
        trace = [
            f"[rank{rank}]: Traceback (most recent call last): (RANK 3)",
            f"[rank{rank}]: OSError: [Errno 5] Input/output error: '/ckpt/x'",
        ]
        lines += [name, *trace] if first else [*trace, name]
    found = doctor(*NODES, *megatron(1, 9), *lines)
    assert (found.failure_class, found.nodes, found.ranks) == ("filesystem", ("gn004",), (3,))


def test_an_error_of_its_own_is_that_of_who_prints_it(doctor: Callable[..., Finding]) -> None:
    found = doctor(
        *NODES,
        "[rank0]: Traceback (most recent call last): (RANK 3)",
        "[rank1]: OSError: [Errno 5] Input/output error: '/ckpt/x'",
    )
    assert (found.nodes, found.ranks) == (("gn002",), (1,))
