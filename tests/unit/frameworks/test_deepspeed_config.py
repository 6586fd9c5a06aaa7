"""The DeepSpeed JSON before the queue: what DeepSpeed would refuse on every rank, and what it takes in silence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pretrainctl.errors import InputError
from pretrainctl.frameworks import deepspeed
from pretrainctl.frameworks.deepspeed_config import (
    KNOWN,
    KNOWN_BF16,
    KNOWN_ZERO,
    REMOVED,
    REMOVED_ZERO,
    check_configuration,
)
from pretrainctl.workflows.plan import make_plan

BATCH = {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4}
FIELDS = """
import json
from deepspeed.runtime.precision_config import DeepSpeedBF16Config
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
print(json.dumps([
    sorted(field.alias or name for name, field in model.model_fields.items())
    for model in (DeepSpeedZeroConfig, DeepSpeedBF16Config)
]))
"""
VERDICTS = """
import json, sys
import deepspeed.comm
from deepspeed.runtime.config import DeepSpeedConfig
for key, place in json.loads(sys.argv[1]):
    config = {"train_batch_size": 1}
    config = {**config, key: {}} if not place else {**config, place: {"stage": 1, key: 1}}
    try:
        DeepSpeedConfig(config)
    except Exception as error:
        print(json.dumps([key, type(error).__name__]))
"""


def configured(*set_values):
    return deepspeed.configuration(
        make_plan("quickstart", "sandbox", set_values=set_values, directory=Path("/home/you"))
    )


def ask_deepspeed(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def refused(call, *arguments, **given):
    with pytest.raises(InputError) as caught:
        call(*arguments, **given)
    return str(caught.value), caught.value.hint


def test_the_keys_are_those_of_the_installed_deepspeed():
    ((zero, bf16),) = ask_deepspeed(FIELDS)
    assert set(zero) <= KNOWN_ZERO
    assert set(bf16) == KNOWN_BF16
    # Names that it still takes beside the aliases are not offered.
    assert {key for key in KNOWN_ZERO if key not in zero} <= {"stage3_gather_fp16_weights_on_model_save"}


def test_the_removed_keys_are_those_that_the_installed_deepspeed_refuses():
    asked = [(key, "") for key in sorted(REMOVED)] + [(key, "zero_optimization") for key in sorted(REMOVED_ZERO)]
    found = {key for key, _ in ask_deepspeed(VERDICTS, json.dumps(asked))}
    assert found == REMOVED | REMOVED_ZERO


def test_no_key_is_both_known_and_removed():
    assert not KNOWN & REMOVED
    assert not KNOWN_ZERO & REMOVED_ZERO


@pytest.mark.parametrize("world_size", [7, 1, 16])
def test_a_batch_that_does_not_fit_the_planned_ranks(world_size):
    message, _ = refused(check_configuration, BATCH, world_size=world_size)
    assert message == f"train_batch_size 256 != micro batch 8 x accumulation 4 x {world_size} ranks"
    check_configuration(BATCH, world_size=8)


@pytest.mark.parametrize("key", sorted(REMOVED))
def test_removed_keys_are_refused_unless_an_older_version_is_named(key):
    message, hint = refused(configured, f"deepspeed.config={{{key}: {{}}}}")
    assert message == f"DeepSpeed 0.19.8 and newer refuse the configuration key {key!r}"
    assert "deepspeed.version" in hint
    assert key in configured(f"deepspeed={{version: '0.16.5', config: {{{key}: {{}}}}}}")
    refused(configured, f"deepspeed={{version: '0.19.8', config: {{{key}: {{}}}}}}")
    refused(configured, f"deepspeed={{version: '0.20', config: {{{key}: {{}}}}}}")


def test_misspelt_keys_that_deepspeed_would_take_in_silence():
    assert refused(configured, "deepspeed.config={flops_profilr: {}}") == (
        "DeepSpeed has no configuration key 'flops_profilr'",
        "did you mean 'flops_profiler'?",
    )
    message, hint = refused(configured, "deepspeed.config={zero_optimization: {overlap_com: true}}")
    assert message == "DeepSpeed has no configuration key 'zero_optimization.overlap_com'"
    assert hint == "did you mean 'overlap_comm'?"
    assert "bf16.enable" in refused(configured, "deepspeed.config={bf16: {enable: true}}")[0]
    assert "zero_optimization is 3" in refused(configured, "deepspeed.config={zero_optimization: 3}")[0]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("train_batch_size: 4", "deepspeed.config.train_batch_size is 4, and the recipe's other sections make it 8"),
        ("zero_optimization: {stage: 3}", "deepspeed.config.zero_optimization.stage is 3"),
        ("gradient_clipping: 0.5", "deepspeed.config.gradient_clipping is 0.5"),
        ("optimizer: {type: Adam}", "the recipe decides that in training.optimizer"),
        ("fp16: {enabled: true}", "the recipe decides that in training.precision"),
    ],
)
def test_what_the_recipe_decides_elsewhere_is_not_said_twice(config, says):
    assert says in refused(configured, f"deepspeed.config={{{config}}}")[0]


def test_tuning_stands_beside_what_the_plan_decides():
    config = configured("deepspeed.config={zero_optimization: {overlap_comm: true}, train_batch_size: 8}")
    assert config["zero_optimization"] == {"stage": 2, "overlap_comm": True}
    assert config["train_batch_size"] == 8


def test_what_versions_default_differently_is_always_said():
    config = configured("training.optimizer.clip=0")
    assert config["gradient_clipping"] == 0
    assert config["steps_per_print"] == 10**9
