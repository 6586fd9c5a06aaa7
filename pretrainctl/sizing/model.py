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


def checkpoint_bytes(parameters: int, precision: Precision) -> int:
    """Bytes of one DeepSpeed checkpoint: weights as trained; in fp32 the master copy and Adam's two moments.

    With precision fp32 and ZeRO the master copy is stored besides the weights all the same.
    """
    return parameters * (_BYTES[precision] + 12)
