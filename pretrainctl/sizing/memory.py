"""Memory of one GPU: exact for model states, a rough bound for activations. Bytes throughout."""

from __future__ import annotations

from pretrainctl.errors import InputError
from pretrainctl.records.training import ModelShape, Precision

__all__ = ["activation_bytes", "deepspeed_states", "largest_layer", "model_states", "zero_paper_states"]


def zero_paper_states(parameters: int, ranks: int, stage: int) -> float:
    """Weights, gradients and Adam's states of one of `ranks` GPUs, in mixed precision.

    ZeRO (Rajbhandari et al. 2019, arXiv:1910.02054), section 5: 2 P + 2 P + 12 P, of which stage 1 shards the
    12, stage 2 the gradients too, stage 3 all.
    """
    p = float(parameters)
    return {
        0: 16 * p,
        1: 4 * p + 12 * p / ranks,
        2: 2 * p + 14 * p / ranks,
        3: 16 * p / ranks,
    }[stage]


def deepspeed_states(parameters: int, ranks: int, stage: int, largest: int) -> float:
    """What DeepSpeed's own estimators say for stages 2 and 3 without offload (0.19: `zero/stage_1_and_2.py` and
    `zero/stage3.py`); they count gradients in fp32, and in stage 3 a whole layer of `largest` weights."""
    if stage == 2:
        return 2.0 * parameters + int(18 * parameters / ranks)
    if stage == 3:
        return 4.0 * largest + int(18 * parameters / ranks)
    raise InputError(f"DeepSpeed estimates ZeRO stages 2 and 3, not {stage}")


def model_states(parameters: int, ranks: int, stage: int, precision: Precision, largest: int) -> tuple[float, str]:
    """Bytes of model states of one GPU, and the name of the formula: the larger of the paper's and DeepSpeed's.

    In fp32, weights and gradients take 4 bytes each, and ZeRO keeps a master copy besides.
    """
    if precision == "fp32":
        whole, sharded = {0: (16, 0), 1: (8, 12), 2: (4, 16), 3: (0, 20)}[stage]
        return whole * parameters + sharded * parameters / ranks, "fp32: 4 P weights, 4 P gradients, 12 P states"
    paper = zero_paper_states(parameters, ranks, stage)
    if stage < 2:
        return paper, f"ZeRO paper, stage {stage}"
    estimate = deepspeed_states(parameters, ranks, stage, largest)
    if paper > estimate:
        return paper, f"ZeRO paper, stage {stage}"
    return estimate, f"DeepSpeed's estimator, stage {stage}"


def largest_layer(shape: ModelShape, experts: int = 0) -> int:
    """Weights of the largest module that ZeRO 3 gathers as one: a matrix of a block, or the embedding."""
    return max(shape.vocab * shape.hidden, shape.hidden * shape.ffn * max(1, experts), shape.hidden * shape.hidden)


def activation_bytes(
    shape: ModelShape, sequence_length: int, micro_batch: int, *, recompute: bool
) -> tuple[float, str]:
    """A rough bound of the activations of one GPU without tensor parallelism, and the formula.

    Korthikanti et al. 2022 (arXiv:2205.05198), table 2, s tokens, b samples, width h, L blocks: 34 s b h a
    block where attention is not kept (fused attention keeps none), 2 s b h where blocks are recomputed, plus
    one block at work. The logits of V ids come on top: once in 2 bytes and twice in 4 (loss and its gradient).
    Fragmentation and communication buffers are not in it.
    """
    token_width = float(sequence_length * micro_batch * shape.hidden)
    logits = 10.0 * sequence_length * micro_batch * shape.vocab
    if recompute:
        return (2 * shape.layers + 34) * token_width + logits, "(2 L + 34) s b h + 10 s b V, Korthikanti 2022"
    return 34 * shape.layers * token_width + logits, "34 L s b h + 10 s b V, Korthikanti 2022"
