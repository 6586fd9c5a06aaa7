"""A resumed training sees the same samples and ends with the same bits as an undisturbed one."""

from __future__ import annotations

import pytest

from pretrainctl.records.training import ModelShape
from pretrainctl.sizing import checkpoint_bytes, count_parameters


def numbers(restart):
    return [
        (line["step"], line["tokens"], line["loss"], line["grad_norm"], line["lr"]) for line in restart.metrics("step")
    ]


@pytest.mark.parametrize(
    ("stage", "precision"), [(0, "fp32"), (1, "fp32"), (2, "fp32"), (3, "fp32"), (0, "bf16"), (1, "bf16"), (3, "bf16")]
)
def test_resume_is_bit_identical(trainer, stage, precision):
    trainer.settings |= {"zero_stage": stage, "precision": precision}
    whole = trainer.start()
    assert whole.wait() == [0, 0], whole.log(0) + whole.log(1)
    resumed = trainer.start(attempt=2, tag="global_step4")
    assert resumed.wait() == [0, 0], resumed.log(0) + resumed.log(1)

    assert [line[0] for line in numbers(whole)] == list(range(1, 9))
    assert numbers(resumed) == numbers(whole)[4:]
    assert resumed.digest == whole.digest
    assert (whole.end.kind, whole.end.step, whole.end.tokens) == ("reached", 8, 8 * 8 * 64)
    assert whole.end.checkpoint == resumed.end.checkpoint == "global_step8"
    assert "resumed from global_step4" in resumed.log(0)
    # The resumed one wrote step 8 again: the tag is whole, and the one before it is gone.
    assert trainer.tags() == ["global_step4", "global_step8"]
    assert not list(trainer.checkpoints.glob("replaced-*"))
    assert (trainer.checkpoints / "latest").read_text() == "global_step8"
    # A plan's size of a checkpoint is that of the real one, which has names and shapes besides.
    parameters = count_parameters(ModelShape(**trainer.settings["model"]))
    size = sum(file.stat().st_size for file in (trainer.checkpoints / "global_step8").iterdir())
    assert 0 <= size - checkpoint_bytes(parameters, precision, stage)[0] < 2 * parameters
    # Loss goes down on real text, from about ln(257).
    assert 5.3 < numbers(whole)[0][2] < 6.0
    assert numbers(whole)[-1][2] < numbers(whole)[0][2] - 0.5
    # Nothing was compiled on the way.
    assert not (trainer.run_dir / "extensions").exists()


def test_phases_tell_the_story(trainer):
    trainer.settings |= {"total_steps": 2, "zero_stage": 1}
    trainer.settings["checkpoint"]["every_steps"] = 1
    restart = trainer.start(ranks=1)
    assert restart.wait() == [0], restart.log(0)
    told = [line["phase"] if line["kind"] == "phase" else line["kind"] for line in restart.metrics()]
    once = ["step", "checkpoint", "saved", "step"]
    assert told == ["start", "step", *once, *once, "end"]
    line = restart.log(0).splitlines()[0]
    assert line.startswith("step 1/2 | loss 5.")
    assert [part.split()[0] for part in line.split(" | ")[:4]] == ["step", "loss", "grad", "lr"]
    assert line.split(" | ")[4].endswith(" tok/s")
    assert len(restart.log(0).splitlines()) == 4  # two steps, the digest, the end: nothing of DeepSpeed's own
