"""Blocks that are computed again in the backward pass change nothing but the memory."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(("stage", "precision"), [(2, "fp32"), (3, "bf16")])
def test_recompute_ends_with_the_same_bits(trainer, stage, precision):
    trainer.settings |= {"zero_stage": stage, "precision": precision, "total_steps": 4}
    digests = []
    for attempt, recompute in enumerate((False, True), start=1):
        trainer.settings["recompute"] = recompute
        trainer.settings["checkpoint"]["directory"] = str(trainer.run_dir / f"checkpoints-{attempt}")
        restart = trainer.start(attempt=attempt)
        assert restart.wait() == [0, 0], restart.log(0) + restart.log(1)
        assert len(restart.log(0).splitlines()) == 6, restart.log(0)  # four steps, the digest, the end
        digests.append(restart.digest)
    assert digests[0] == digests[1]


@pytest.mark.parametrize("tied", [True, False])
def test_the_first_weights_do_not_depend_on_how_they_are_sharded(trainer, tied):
    trainer.settings |= {"total_steps": 1, "model": {**trainer.settings["model"], "tied_embeddings": tied}}
    losses = []
    for attempt, stage in enumerate((2, 3), start=1):
        trainer.settings["zero_stage"] = stage
        trainer.settings["checkpoint"]["directory"] = str(trainer.run_dir / f"checkpoints-{attempt}")
        restart = trainer.start(attempt=attempt)
        assert restart.wait() == [0, 0], restart.log(0) + restart.log(1)
        losses.append([line["loss"] for line in restart.metrics("step")])
    assert losses[0] == losses[1]
