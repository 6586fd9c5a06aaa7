"""Parameters and FLOPs against published models and the paper's formula."""

from __future__ import annotations

import pytest

from pretrainctl.records.training import ModelShape
from pretrainctl.sizing import checkpoint_bytes, count_parameters, flops_per_token


def llama(layers, hidden, heads, kv_heads, ffn, vocab, tied=False):
    return ModelShape(layers, hidden, heads, kv_heads, ffn, vocab, 8192, tied_embeddings=tied)


@pytest.mark.parametrize(
    ("shape", "published"),
    [
        (llama(32, 4096, 32, 32, 11008, 32000), 6_738_415_616),  # Llama 2 7B
        (llama(80, 8192, 64, 8, 28672, 32000), 68_976_648_192),  # Llama 2 70B
        (llama(32, 4096, 32, 8, 14336, 128256), 8_030_261_248),  # Llama 3 8B
        (llama(16, 2048, 32, 8, 8192, 128256, tied=True), 1_235_814_400),  # Llama 3.2 1B
    ],
)
def test_parameters_are_those_that_the_checkpoints_hold(shape, published):
    assert count_parameters(shape) == published


def test_flops_are_the_palm_papers_formula():
    shape = llama(32, 4096, 32, 8, 14336, 128256)
    without_look_up = 8_030_261_248 - 128256 * 4096
    assert flops_per_token(shape, 8192) == 6 * without_look_up + 12 * 32 * 32 * 128 * 8192


def test_a_tied_table_is_the_output_layer_and_counts_once():
    shape = llama(16, 2048, 32, 8, 8192, 128256, tied=True)
    assert flops_per_token(shape, 2048) == 6 * 1_235_814_400 + 12 * 16 * 2048 * 2048


@pytest.mark.parametrize(
    ("precision", "stage", "size", "alone"),
    [
        ("bf16", 0, 14, 14),
        ("bf16", 1, 14, 2),
        ("bf16", 2, 14, 2),
        ("bf16", 3, 12, 0),
        ("fp32", 0, 12, 12),
        ("fp32", 1, 16, 4),
        ("fp32", 2, 16, 4),
        ("fp32", 3, 12, 0),
    ],
)
def test_bytes_a_parameter_of_a_checkpoint_are_those_that_deepspeed_wrote(precision, stage, size, alone):
    # Saves of a model of 1,017,088 parameters on two ranks; all of them were within half a percent of this.
    assert checkpoint_bytes(1_000, precision, stage) == (size * 1_000, alone * 1_000)
