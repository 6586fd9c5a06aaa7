"""The kernel's own lines, and the forms in which programs say that their loss is no number."""

from __future__ import annotations

import pytest

from pretrainctl.records.run import Diagnosis
from pretrainctl.recovery.log_diagnosis import diagnose_log
from pretrainctl.recovery.log_reading import read_lines
from pretrainctl.recovery.placement import Placement

FINITE = "step 100 | loss 2.0 | lr 1e-4"
LAUNCH = "RuntimeError: CUDA error: unspecified launch failure"


def doctor(*lines: str) -> Diagnosis:
    return diagnose_log(read_lines(lines), Placement(("gn002", "gn003"), 4))


@pytest.mark.parametrize(
    ("line", "nodes"),
    [
        ("gn003: NVRM: Xid (PCI:0000:4e:00): 79, pid=1, name=python, GPU has fallen off the bus.", ("gn003",)),
        ("NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", ()),
        ("NVRM: GPU at PCI:0000:4e:00: GPU-1a2b has fallen off the bus.", ()),
        ("[ 123.456789] NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus.", ()),
        ("Nov 30 10:00:01 gn003 kernel: NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus.", ("gn003",)),
        ("2026-11-30T10:00:01+00:00 gn003 kernel: NVRM: Xid (PCI:0000:4e:00): 48, pid=1, name=python", ("gn003",)),
    ],
)
def test_what_the_kernel_says_is_said_outright(line: str, nodes: tuple[str, ...]) -> None:
    found = doctor(line, LAUNCH)
    assert (found.failure_class, found.nodes, found.confidence) == ("gpu_hardware", nodes, "high")
    assert "bus" in found.message or "Xid" in found.message


def test_an_answer_of_the_kernel_that_is_only_quoted() -> None:
    found = doctor('prompt: "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus." what now', "KeyError: 'x'")
    assert found.failure_class == "application_error"


STEPS = [
    "epoch 1 | step {} | loss nan",
    "Step {} | loss: nan | lr 1e-4",
    "iter {}: loss nan, time 30ms",
    "step: {}, train_loss: nan",
    "INFO step {}: loss = nan",
    "step={} loss=inf",
    "step:{} loss:NaN",
]
SAID = [
    "Loss is nan, stopping training",
    "Loss is inf, stopping training",
    "SystemExit: loss is nan, stopping",
    "Training aborted: loss is not finite",
    "RuntimeError: training diverged",
    "ValueError: non-finite loss at step 101",
    "FloatingPointError: the loss became nan",
]


@pytest.mark.parametrize("step", STEPS)
def test_steps_without_a_loss_that_is_a_number(step: str) -> None:
    assert doctor(FINITE, *(step.format(number) for number in range(101, 104))).failure_class == "divergence"
    assert doctor(FINITE, *(step.format(number) for number in range(101, 103))).failure_class == "unknown"
    late = doctor(*(step.format(number) for number in range(101, 109)), "step 109 | loss 2.0", "KeyError: 'x'")
    assert late.failure_class == "application_error"


def test_forms_that_differ_add_up() -> None:
    assert doctor(FINITE, "step=3 loss=inf", "step=4 loss=nan", "step=5 loss: NaN").failure_class == "divergence"


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("steps", [(), ("step:101 loss:NaN",), ("step:101 loss:NaN", "step:102 loss:NaN")])
def test_a_program_that_says_it(said: str, steps: tuple[str, ...]) -> None:
    assert doctor(FINITE, *steps, said, "srun: error: gn002: task 0: Exited with exit code 1").failure_class == (
        "divergence"
    )
    assert doctor(FINITE, said, *steps).failure_class == "divergence"
    assert doctor(said, FINITE, "KeyError: 'x'").failure_class == "application_error"


@pytest.mark.parametrize(
    "line",
    [
        "step {} | val loss nan | loss 2.0",
        "step {}: val_loss: nan",
        "step {} | aux loss: nan | lm loss: 2.0",
        "step {} | moe loss nan | lm loss: 2.0",
        "step {} | loss 2.0 | grad norm nan",
        "step {}: the validation loss is nan",
        "we stop if the loss is nan",
        "stop when loss is nan: True",
        "config: {{'on': 'loss is nan'}}",
        "Loss is nan, skipping batch\nstep {} | loss 2.0",
    ],
)
def test_what_is_no_divergence(line: str) -> None:
    lines = "\n".join(line.format(number) for number in range(101, 109)).splitlines()
    assert doctor(FINITE, *lines).failure_class == "unknown"
    assert doctor(FINITE, *lines, "KeyError: 'x'").failure_class == "application_error"
