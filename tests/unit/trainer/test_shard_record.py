"""A shard of another rank, tag or step under the right name is refused before it is loaded."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from pretrainctl.records.contract import ExitCode

KINDS = [(0, "fp32"), (1, "bf16"), (2, "fp32"), (3, "fp32")]


@pytest.fixture
def saved(trainer):
    """Tags of the steps 1 and 2, of two ranks with the settings of the test."""

    def save(stage, precision):
        trainer.settings |= {"total_steps": 2, "zero_stage": stage, "precision": precision}
        trainer.settings["checkpoint"] |= {"every_steps": 1}
        restart = trainer.start()
        assert restart.wait() == [0, 0], restart.log(0)
        trainer.settings |= {"total_steps": 3}
        return trainer.checkpoints / "global_step1", trainer.checkpoints / "global_step2"

    return save


def optim(precision, rank):
    return f"{'bf16_' * (precision == 'bf16')}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"


def refused(trainer, attempt, says):
    """By whichever rank comes first: the other may still be joining when its peer leaves."""
    restart = trainer.start(attempt=attempt, tag="global_step2")
    restart.wait_for_one(ExitCode.FAILED)
    tag = trainer.checkpoints / "global_step2"
    said = restart.log(0) + restart.log(1)
    assert f"error: {tag} cannot be loaded: {says}" in said, said
    assert restart.metrics("step") == []


@pytest.mark.parametrize(("stage", "precision"), KINDS)
def test_a_save_records_what_each_rank_wrote_and_it_loads(trainer, saved, stage, precision):
    _, newer = saved(stage, precision)
    record = json.loads((newer / "shards.json").read_text())
    files = {path.name: path.stat().st_size for path in newer.glob("*.pt")}
    assert {shard["name"]: shard["size"] for shard in record["shards"]} == files
    assert (record["step"], record["world_size"]) == (2, 2)
    for shard in record["shards"]:
        rank = 0 if shard["name"].startswith("mp_") else int(shard["name"].partition("pp_rank_")[2][0])
        assert shard["rank"] == rank
        assert 0 < shard["digest"] < 1 << 32
    assert len({shard["digest"] for shard in record["shards"]}) == len(files)
    restart = trainer.start(attempt=2, tag="global_step2")
    assert restart.wait() == [0, 0], restart.log(0)
    assert "shards.json" not in restart.log(0)


def test_shards_of_two_ranks_exchanged_are_refused(trainer, saved):
    """DeepSpeed loads them without a word, and goes on from garbage."""
    _, newer = saved(1, "fp32")
    one, other = (newer / optim("fp32", rank) for rank in (0, 1))
    one.rename(newer / "aside")
    other.rename(one)
    (newer / "aside").rename(other)
    for attempt in (2, 3):
        restart = trainer.start(attempt=attempt, tag="global_step2")
        restart.wait_for_one(ExitCode.FAILED)
        # Whichever comes first: the other may still be joining when its peer leaves.
        said = restart.log(0) + restart.log(1)
        assert any(f"{a.name}: it was written as {b.name}" in said for a, b in ((one, other), (other, one))), said
        assert restart.metrics("step") == []
        (newer / "shards.json").unlink(missing_ok=True)


@pytest.mark.parametrize(("stage", "precision"), KINDS)
def test_a_file_of_the_tag_before_is_refused_by_the_ranks_that_load_it(trainer, saved, stage, precision):
    older, newer = saved(stage, precision)
    name = "mp_rank_00_model_states.pt" if stage == 0 else optim(precision, 1)
    shutil.copy(older / name, newer / name)
    refused(trainer, 2, f"{name}: it is not the file that rank {0 if stage == 0 else 1} of 2 saved at step 2")


def test_the_record_of_another_tag_is_refused(trainer, saved):
    older, newer = saved(1, "fp32")
    shutil.copy(older / "shards.json", newer / "shards.json")
    refused(trainer, 2, "its shards.json is of step 1 and 2 ranks")


def test_a_tag_without_a_record_loads_with_a_note(trainer, saved):
    _, newer = saved(1, "fp32")
    (newer / "shards.json").unlink()
    restart = trainer.start(attempt=2, tag="global_step2")
    assert restart.wait() == [0, 0], restart.log(0)
    assert "global_step2 has no shards.json" in restart.log(0)
    assert "shards.json" not in restart.log(1)


@pytest.mark.parametrize(("stage", "precision"), KINDS)
def test_a_nan_that_was_saved_is_refused_before_a_step(trainer, saved, stage, precision):
    _, newer = saved(stage, precision)
    (newer / "shards.json").unlink()  # it was in memory when it was saved: the bytes are those that were written
    path = newer / ("mp_rank_00_model_states.pt" if stage == 0 else optim(precision, 1))
    state = torch.load(path, weights_only=False)
    poisoned = _poison(state["module"] if stage == 0 else state["optimizer_state_dict"])
    assert poisoned
    torch.save(state, path)
    refused(trainer, 2, "there are NaNs among its weights or the moments of AdamW")


def _poison(value):
    """NaN into the first tensor of more than one number in a state; whether there was one."""
    if torch.is_tensor(value):
        if not value.is_floating_point() or value.numel() < 2:
            return False
        value.view(-1)[0] = float("nan")
        return True
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return any(_poison(item) for item in items)
