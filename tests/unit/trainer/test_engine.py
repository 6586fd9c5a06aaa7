"""The parts of the trainer that need no peers."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import warnings

import pytest

from pretrainctl.errors import InputError
from pretrainctl.records.codec import from_json
from pretrainctl.records.training import ModelShape, TrainingSettings


@pytest.fixture(scope="session")
def modules():
    """Trainer modules that import torch and deepspeed, which warn of much when imported."""
    from pretrainctl.trainer import startup

    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as environment:
        warnings.simplefilter("ignore")
        for name in ("DS_ACCELERATOR", "LOCAL_SIZE"):
            environment.setenv(name, os.environ.get(name, "cpu" if name == "DS_ACCELERATOR" else "1"))
        startup.prepare()
        from pretrainctl.trainer import checkpoint, engine, model
    return {"checkpoint": checkpoint, "engine": engine, "model": model}


@pytest.fixture
def typed(trainer):
    return lambda **changes: from_json(TrainingSettings, trainer.settings | changes)


def test_the_configuration_is_completed(modules, trainer, typed):
    given = {"zero_optimization": {"stage": 2, "overlap_comm": False}, "train_batch_size": 8, "steps_per_print": 10}
    (trainer.run_dir / "deepspeed.json").write_text(json.dumps(given))
    assert modules["engine"].configuration(typed(), 2) == {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 0.5,
        "bf16": {"enabled": False},
        "zero_optimization": {"stage": 2, "overlap_comm": False},
        "steps_per_print": 10,
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ('{"gradient_clipping": 1.0}', "gradient_clipping is 1.0, but the training settings say 0.5"),
        ('{"zero_optimization": {"stage": 3}}', "zero_optimization: stage is 3, but the training settings say 2"),
        ('{"bf16": {"enabled": true}}', "bf16: enabled is True"),
        ('{"optimizer": {}}', "'optimizer' is decided by the training settings"),
        ('{"scheduler": {}}', "'scheduler' is decided"),
        ("{", "is no JSON"),
    ],
)
def test_a_configuration_that_says_otherwise(modules, trainer, typed, given, words):
    (trainer.run_dir / "deepspeed.json").write_text(given)
    with pytest.raises(InputError, match=words):
        modules["engine"].configuration(typed(), 2)


def test_the_learning_rate_is_a_function_of_the_step(modules, typed):
    rate = modules["engine"].learning_rate
    settings = typed(total_steps=110, schedule={"warmup_steps": 10, "min_lr_ratio": 0.1})
    assert [rate(settings, step) for step in (1, 5, 10)] == pytest.approx([0.001, 0.005, 0.01])
    assert rate(settings, 60) == pytest.approx(0.01 * (0.1 + 0.9 / 2))
    assert rate(settings, 110) == pytest.approx(0.001)
    assert rate(settings, 500) == pytest.approx(0.001)
    falling = [rate(settings, step) for step in range(10, 111)]
    assert falling == sorted(falling, reverse=True)
    assert rate(typed(schedule={"warmup_steps": 0}), 1) < 0.01


def test_the_model_starts_from_its_seed_and_knows_nothing(modules, typed):
    import torch

    decoder, shape = modules["model"].Decoder, typed().model
    one, same, other = decoder(shape, 5), decoder(shape, 5), decoder(shape, 6)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.embedding.weight, other.embedding.weight)
    tokens = torch.arange(65).repeat(2, 1)
    assert float(one(tokens).detach()) == pytest.approx(math.log(shape.vocab), abs=0.2)
    assert one.head.weight is one.embedding.weight


def test_the_model_does_not_look_ahead(modules, typed):
    """Changing the last token changes only the last prediction."""
    import torch

    model = modules["model"].Decoder(typed().model, 5)
    logits = []
    model.norm.register_forward_hook(lambda _module, _inputs, output: logits.append(output.detach()))
    tokens = torch.arange(66).unsqueeze(0) % 60
    changed = tokens.clone()
    changed[0, 40] = 200
    model(tokens[:, :65])
    model(changed[:, :65])
    assert torch.equal(logits[0][:, :40], logits[1][:, :40])
    assert not torch.equal(logits[0][:, 40:], logits[1][:, 40:])


def tag(modules, settings, step, *, whole=True):
    checkpoint = modules["checkpoint"]
    path = settings.checkpoint.directory / checkpoint.tag_of(step)
    path.mkdir(parents=True)
    names = [checkpoint.STATE_FILE]
    for rank in range(2):
        names += checkpoint.expected_files(settings.zero_stage, settings.precision, rank)
    for name in names[: None if whole else -1]:
        (path / name).write_text("x")


def test_old_complete_checkpoints_are_pruned_and_nothing_else(modules, typed, trainer):
    import torch

    settings = typed(checkpoint={"directory": str(trainer.checkpoints), "every_steps": 1, "keep": 2})
    for step, whole in ((8, True), (9, False), (10, True), (11, True), (100, True), (200, True)):
        tag(modules, settings, step, whole=whole)
    (trainer.checkpoints / "deleting-global_step3").mkdir()
    (trainer.checkpoints / "mine").mkdir()
    ranks = modules["engine"].Ranks(0, 2, torch.device("cpu"))
    modules["checkpoint"].prune(settings, ranks, 100)
    assert sorted(path.name for path in trainer.checkpoints.iterdir()) == [
        "global_step100",
        "global_step11",
        "global_step200",  # newer than the one just saved: somebody else's
        "global_step9",  # incomplete: not ours to judge
        "mine",
    ]


def test_keeping_all_prunes_none(modules, typed, trainer):
    import torch

    settings = typed()
    for step in (1, 2, 3):
        tag(modules, settings, step)
    modules["checkpoint"].prune(settings, modules["engine"].Ranks(0, 2, torch.device("cpu")), 3)
    assert trainer.tags() == ["global_step1", "global_step2", "global_step3"]


def test_a_rank_alone_in_the_environment_is_told_what_is_missing(modules, monkeypatch):
    from pretrainctl.errors import MissingError

    monkeypatch.delenv("MASTER_PORT", raising=False)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"):
        monkeypatch.setenv(name, "0")
    with pytest.raises(MissingError, match="MASTER_PORT is not set"):
        modules["engine"].join()


def test_the_compiler_is_spared_until_it_is_needed():
    program = """
import sys
from pretrainctl.trainer.startup import prepare
prepare()
import torch
torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
assert "sympy" not in sys.modules and "torch._inductor" not in sys.modules, "the compiler was imported"
assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2
import torch._dynamo.config
assert torch._dynamo.__file__
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("tied", [True, False])
def test_recomputed_blocks_give_the_same_loss_and_gradients(modules, tied):
    import torch

    shape = ModelShape(2, 32, 4, 2, 64, 50, 16, tied_embeddings=tied)
    tokens = torch.randint(0, 50, (2, 17), generator=torch.Generator().manual_seed(1))
    results = []
    for recompute in (False, True):
        model = modules["model"].Decoder(shape, 7, recompute=recompute)
        forwards = []
        model.blocks[0].register_forward_pre_hook(lambda *_, seen=forwards: seen.append(1))
        loss = model(tokens)
        loss.backward()
        results.append((loss.item(), [parameter.grad for parameter in model.parameters()], len(forwards)))
    (loss, gradients, once), (same_loss, same_gradients, twice) = results
    assert loss == same_loss
    assert all(torch.equal(one, other) for one, other in zip(gradients, same_gradients, strict=True))
    assert (once, twice) == (1, 2)
