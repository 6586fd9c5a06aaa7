"""Memory of model states against the ZeRO paper's example and DeepSpeed's own estimators; activations against the
paper's table."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pretrainctl.errors import InputError
from pretrainctl.records.training import ModelShape
from pretrainctl.sizing import (
    activation_bytes,
    count_parameters,
    deepspeed_states,
    flops_per_token,
    largest_layer,
    model_states,
    save_seconds,
    seconds_per_step,
    zero_paper_states,
)

CASES = [(7_500_000_000, 8, 8), (2_851_000_000, 8, 1), (70_553_706_496, 4, 64), (1_235_814_400, 4, 3)]
ESTIMATE = """
import json, sys
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as two
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as three
cases = json.loads(sys.argv[1])
print(json.dumps([
    [two(total_params=p, num_gpus_per_node=g, num_nodes=n, cpu_offload=False)[1],
     three(p, 32_000_000, num_gpus_per_node=g, num_nodes=n, cpu_offload=False, cpu_offload_params=False)[1]]
    for p, g, n in cases
]))
"""
MIXTRAL = ModelShape(32, 4096, 32, 8, 14336, 32000, 32768, tied_embeddings=False)


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_papers_worked_example(stage, gigabytes):
    assert zero_paper_states(7_500_000_000, 64, stage) / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_stages_2_and_3_are_deepspeeds_own_estimators():
    environment = {**os.environ, "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ESTIMATE, json.dumps(CASES)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=environment,
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    ours = [[deepspeed_states(p, g * n, stage, 32_000_000) for stage in (2, 3)] for p, g, n in CASES]
    assert ours == theirs


def test_deepspeed_estimates_two_stages_only():
    with pytest.raises(InputError, match="stages 2 and 3, not 1"):
        deepspeed_states(10, 1, 1, 1)


def test_the_larger_of_both_counts_and_is_named():
    states, formula = model_states(7_500_000_000, 64, 1, "bf16", 0)
    assert (states, formula) == (zero_paper_states(7_500_000_000, 64, 1), "ZeRO paper, stage 1")
    states, formula = model_states(7_500_000_000, 64, 2, "bf16", 0)
    assert (states, formula) == (2 * 7.5e9 + 18 * 7.5e9 / 64, "DeepSpeed's estimator, stage 2")
    assert model_states(7_500_000_000, 64, 3, "bf16", 10)[1] == "DeepSpeed's estimator, stage 3"
    assert model_states(1000, 1, 0, "fp32", 0)[0] == 16_000
    assert model_states(1000, 4, 3, "fp32", 0)[0] == 5_000


@pytest.mark.parametrize(
    ("layers", "hidden", "micro_batch", "recompute", "gibibytes"),
    [  # Korthikanti 2022, table 3, with tensor parallelism taken away: 8 times its column of 8 ranks
        (48, 6144, 4, False, 9.5625 * 8),  # 22B, selective
        (96, 12288, 1, False, 9.5625 * 8),  # 175B, selective
        (48, 6144, 4, True, 4.5),
        (96, 12288, 1, True, 4.5),
    ],
)
def test_activations_are_the_papers_formula(layers, hidden, micro_batch, recompute, gibibytes):
    shape = ModelShape(layers, hidden, 64, 64, 4 * hidden, 1, 2048)
    size, formula = activation_bytes(shape, 2048, micro_batch, recompute=recompute)
    at_work = 34 * 2048 * micro_batch * hidden if recompute else 0
    assert (size - at_work - 10 * 2048 * micro_batch) / 2**30 == pytest.approx(gibibytes)
    assert "Korthikanti" in formula


def test_logits_grow_with_the_vocabulary():
    small, large = (ModelShape(1, 64, 1, 1, 64, vocab, 128) for vocab in (1000, 2000))
    assert (
        activation_bytes(large, 128, 2, recompute=True)[0] - activation_bytes(small, 128, 2, recompute=True)[0]
        == 10 * 128 * 2 * 1000
    )


def test_a_mixture_of_experts_as_mixtral_was_published():
    assert count_parameters(MIXTRAL, 8) == 46_702_792_704
    active = flops_per_token(MIXTRAL, 4096, 8, 2) - 12 * 32 * 4096 * 4096
    assert active / 6 == pytest.approx(12.9e9 - 32000 * 4096, rel=0.01)
    assert largest_layer(MIXTRAL, 8) == 8 * 4096 * 14336


def test_time_of_a_step_and_of_a_save():
    assert seconds_per_step(1_000_000, 6e9, 10, 100e12) == pytest.approx(6.0)
    # 20 of 120 bytes by the first node, the rest by all four.
    assert save_seconds(120, 4, 5.0, alone=20) == pytest.approx((20 + 25) / 5)
