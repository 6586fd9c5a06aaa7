"""What a model of a given shape weighs and costs."""

from __future__ import annotations

from pretrainctl.records.training import ModelShape, Precision

__all__ = ["checkpoint_bytes", "count_parameters", "flops_per_token"]

_BYTES = {"fp32": 4, "bf16": 2}


def count_parameters(shape: ModelShape, experts: int = 0) -> int:
    """Weights of the reference trainer's decoder: no biases, two norms a block and one at the end.

    With `experts`, each block has that many feed-forward networks and a router, as Mixtral has.
    """
    head_width = shape.hidden // shape.heads
    attention = 2 * shape.hidden * shape.hidden + 2 * shape.hidden * shape.kv_heads * head_width
    feed_forward = 3 * shape.hidden * shape.ffn * max(1, experts) + shape.hidden * experts
    block = attention + feed_forward + 2 * shape.hidden
    embeddings = shape.vocab * shape.hidden * (1 if shape.tied_embeddings else 2)
    return shape.layers * block + embeddings + shape.hidden


def flops_per_token(shape: ModelShape, sequence_length: int, experts: int = 0, active: int = 0) -> float:
    """Floating-point operations a token of a forward and backward pass: 6 N + 12 L H Q T.

    PaLM (Chowdhery et al. 2022), appendix B: N weights, L layers, H heads of width Q, T tokens a sequence; no
    recomputation counted. N is without the input embedding where that is a table of its own, since a look-up
    costs no multiplication; a tied table is the output layer and counts once. Of `experts` only the `active`
    ones of a token count.
    """
    idle = 3 * shape.hidden * shape.ffn * (experts - active) if experts else 0
    weights = count_parameters(shape, experts) - shape.layers * idle
    if not shape.tied_embeddings:
        weights -= shape.vocab * shape.hidden
    return 6.0 * weights + 12.0 * shape.layers * shape.hidden * sequence_length


def checkpoint_bytes(parameters: int, precision: Precision, stage: int) -> tuple[int, int]:
    """Bytes of one DeepSpeed checkpoint, and how many of them the first rank writes alone.

    Sizes of real checkpoints of DeepSpeed 0.19.8: a master copy in fp32 and Adam's two moments, sharded; the weights
    as trained besides, by the first rank, except in stage 3, where the master copy is all there is. Stage 0 has no
    shards: the first rank writes it all, and in fp32 there is no master copy.
    """
    weights = 0 if stage == 3 else _BYTES[precision] * parameters
    states = 8 * parameters if stage == 0 and precision == "fp32" else 12 * parameters
    return weights + states, weights + states if stage == 0 else weights
