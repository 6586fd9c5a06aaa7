"""What cannot be used is one clear line, exit 1, and nothing changed; step 0 is never the answer."""

from __future__ import annotations

import json
import resource
import shutil
import zipfile

import pytest
import torch

from pretrainctl.records.contract import ExitCode


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """Where the first test that needs it keeps a checkpoint for the others."""
    return tmp_path_factory.mktemp("saved") / "checkpoints"


@pytest.fixture
def resumable(trainer, saved):
    """A run of one rank with a checkpoint of step 1."""
    trainer.settings |= {"total_steps": 1}
    if not saved.exists():
        restart = trainer.start(ranks=1)
        assert restart.wait() == [0], restart.log(0)
        shutil.copytree(trainer.checkpoints, saved)
    else:
        shutil.copytree(saved, trainer.checkpoints)
    trainer.settings |= {"total_steps": 2}
    return trainer


def refused(trainer, words, **start):
    before = {path: path.stat().st_mtime_ns for path in trainer.checkpoints.rglob("*")}
    ranks = start.get("ranks", 1)
    restart = trainer.start(attempt=2, **{"ranks": 1, **start})
    assert restart.wait() == [ExitCode.FAILED] * ranks, restart.log(0)
    for rank in range(ranks):
        said = restart.log(rank)
        assert f"rank {rank}: error: " in said
        assert words in said
        assert "Traceback" not in said
    assert restart.metrics("step") == []
    assert not (restart.directory / "end.json").exists()
    assert {path: path.stat().st_mtime_ns for path in trainer.checkpoints.rglob("*")} == before


def test_a_tag_that_is_not_there(resumable):
    refused(resumable, "there is no checkpoint", tag="global_step9")


def test_no_tag_where_checkpoints_are(resumable):
    refused(resumable, "holds global_step1, and nobody says whether to resume from it", tag=None)


def test_another_number_of_ranks(resumable):
    refused(resumable, "was saved with world_size 1, but this run has 2", tag="global_step1", ranks=2)


def test_another_order_of_samples(resumable):
    resumable.settings["data"]["seed"] = 12
    refused(resumable, "was saved with data_seed 11, but this run has 12", tag="global_step1")


def test_another_model(resumable):
    resumable.settings["model"]["ffn"] = 96
    refused(resumable, "was saved with model", tag="global_step1")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("zero_pp_rank_0_mp_rank_00_optim_states.pt", "missing"),
        ("mp_rank_00_model_states.pt", "empty"),
        ("mp_rank_00_model_states.pt", "truncated"),
        ("zero_pp_rank_0_mp_rank_00_optim_states.pt", "truncated"),
        ("zero_pp_rank_0_mp_rank_00_optim_states.pt", "zeroed"),
        ("mp_rank_00_model_states.pt", "zeroed"),
        ("mp_rank_00_model_states.pt", "flipped"),
        ("zero_pp_rank_0_mp_rank_00_optim_states.pt", "flipped"),
    ],
)
def test_a_damaged_shard(resumable, name, damage):
    shard = resumable.checkpoints / "global_step1" / name
    if damage == "missing":
        shard.unlink()
    elif damage == "zeroed":  # some of the bytes of data.pkl, which the gate does not read
        content = bytearray(shard.read_bytes())
        at = content.index(b"data.pkl") + 200
        content[at : at + 200] = bytes(200)
        shard.write_bytes(content)
    elif damage == "flipped":  # torch.load takes it without a word
        with zipfile.ZipFile(shard) as archive:
            largest = max(archive.infolist(), key=lambda entry: entry.file_size)
        content = bytearray(shard.read_bytes())
        content[largest.header_offset + largest.file_size // 2] ^= 64
        shard.write_bytes(content)
    else:
        shard.write_bytes(shard.read_bytes()[: 0 if damage == "empty" else -100])
    refused(resumable, f"{name} is missing" if damage == "missing" else "cannot be loaded", tag="global_step1")


@pytest.mark.parametrize(("stage", "precision"), [(0, "fp32"), (0, "bf16"), (1, "bf16"), (2, "fp32"), (3, "fp32")])
def test_an_optimizer_of_another_step_on_any_rank(trainer, stage, precision):
    """Files that load without a word: DeepSpeed 0.19.8 does not look at the steps in them."""
    trainer.settings |= {"total_steps": 2, "zero_stage": stage, "precision": precision}
    trainer.settings["checkpoint"] |= {"every_steps": 1}
    saved = trainer.start()
    assert saved.wait() == [0, 0], saved.log(0)
    trainer.settings |= {"total_steps": 3}
    older, newer = (trainer.checkpoints / f"global_step{step}" for step in (1, 2))
    if stage == 0:  # one file for all: only its optimizer is of the older step
        states = [torch.load(tag / "mp_rank_00_model_states.pt", weights_only=False) for tag in (older, newer)]
        torch.save(states[1] | {"optimizer": states[0]["optimizer"]}, newer / "mp_rank_00_model_states.pt")
    else:
        name = f"{'bf16_' * (precision == 'bf16')}zero_pp_rank_1_mp_rank_00_optim_states.pt"
        shutil.copy(older / name, newer / name)
    (newer / "shards.json").unlink()  # a tag that was saved before there were such records
    restart = trainer.start(attempt=2, tag="global_step2")
    codes = restart.wait_for_one(ExitCode.FAILED)
    assert f"rank 1: error: {newer} holds the optimizer of step 1\n" in restart.log(1), codes
    assert "Traceback" not in restart.log(1)
    assert restart.metrics("step") == []


def test_weights_of_another_step(resumable):
    resumable.settings |= {"total_steps": 2}
    restart = resumable.start(attempt=2, tag="global_step1", ranks=1)
    assert restart.wait() == [0], restart.log(0)
    older, newer = (resumable.checkpoints / f"global_step{step}/mp_rank_00_model_states.pt" for step in (1, 2))
    shutil.copy(older, newer)
    (newer.parent / "shards.json").unlink()
    resumable.settings |= {"total_steps": 3}
    again = resumable.start(attempt=3, tag="global_step2", ranks=1)
    assert again.wait() == [ExitCode.FAILED]
    assert f"rank 0: error: {newer.parent} holds the weights of step 1, and was saved as step 1" in again.log(0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "its state.json is missing"),
        ('{"step": 1}', "state.json: State: the key 'samples' is missing"),
        ("[]", "state.json: State: an object is needed, not []"),
    ],
)
def test_a_tag_without_the_trainers_own_record(resumable, text, says):
    state = resumable.checkpoints / "global_step1" / "state.json"
    state.unlink()
    if text is not None:
        state.write_text(text)
    refused(resumable, f"{state.parent} cannot be loaded: {says}", tag="global_step1")


def test_a_record_of_a_later_version_loads(resumable):
    for name in ("state.json", "shards.json"):
        path = resumable.checkpoints / "global_step1" / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {"of a later version": 1}))
    restart = resumable.start(attempt=2, tag="global_step1", ranks=1)
    assert restart.wait() == [0], restart.log(0)
    assert "shards.json" not in restart.log(0)


def test_settings_and_data(trainer, tmp_path):
    """Refused before torch meets its peers: all of these in a row are quick."""
    trainer.checkpoints.mkdir()
    good = json.dumps(trainer.settings)
    for change, words in (
        ({"total_step": 8}, "unknown key 'total_step'"),
        ({"zero_stage": 4}, "zero_stage"),
        ({"data": {"sources": [{"prefix": str(tmp_path / "none")}], "sequence_length": 64, "seed": 1}}, "none.idx"),
        ({"global_batch": 7}, "a global batch of 7 does not divide into 1 ranks x 2 samples"),
    ):
        trainer.settings = json.loads(good) | change
        refused(trainer, words)


def test_a_full_disk(trainer):
    """A limit on the size of files cuts a shard short as a full disk does, in the middle of a real save."""
    trainer.settings |= {"total_steps": 1}
    restart = trainer.start(ranks=1)
    resource.prlimit(restart.ranks[0].pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
    assert restart.wait() == [ExitCode.FAILED], restart.log(0)
    assert f"rank 0: error: {trainer.checkpoints / 'global_step1'} could not be written" in restart.log(0)
    assert "Traceback" not in restart.log(0)
    assert not (trainer.checkpoints / "latest").exists()
    assert not (restart.directory / "end.json").exists()
