"""Settings of the reference trainer, as written into `bundle/training.json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = [
    "CheckpointSettings",
    "DataSettings",
    "DataSource",
    "ModelShape",
    "OptimizerSettings",
    "Precision",
    "ScheduleSettings",
    "TrainingSettings",
]

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class ModelShape:
    """A Llama-style decoder: RMSNorm, RoPE, SwiGLU, grouped-query attention.

    `layers` blocks of width `hidden`, `heads` query heads that share `kv_heads` key-value heads, an inner
    width of `ffn` in the SwiGLU, `vocab` token ids, sequences of at most `context` tokens.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    context: int
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    tied_embeddings: bool = True


@dataclass(frozen=True)
class DataSource:
    """One Megatron `.bin/.idx` pair, named by its prefix, and its share of the samples (normalised)."""

    prefix: Path
    weight: float = 1.0


@dataclass(frozen=True)
class DataSettings:
    """What is read; the order of samples depends only on `seed` and the samples consumed."""

    sources: tuple[DataSource, ...]
    sequence_length: int
    seed: int


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW, and the norm to which gradients are clipped (0 = no clipping)."""

    lr: float
    betas: tuple[float, ...] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0


@dataclass(frozen=True)
class ScheduleSettings:
    """Linear warm-up over `warmup_steps`, then cosine to `min_lr_ratio` x lr at the last step."""

    warmup_steps: int
    min_lr_ratio: float = 0.1


@dataclass(frozen=True)
class CheckpointSettings:
    """A save each `every_steps` optimizer steps into `directory`, the newest `keep` complete ones kept (0 = all)."""

    directory: Path
    every_steps: int
    keep: int = 0


@dataclass(frozen=True)
class TrainingSettings:
    """All that the reference trainer is told.

    `total_steps` optimizer steps of `global_batch` samples each; a rank takes `micro_batch` samples at a
    time, so accumulation is global_batch / (micro_batch x world size), which must be whole.
    `init_seed` seeds the weights. With `recompute` blocks run again in the backward pass.
    `threads` is torch's intra-op threads a rank (0 = torch's choice).
    """

    model: ModelShape
    data: DataSettings
    optimizer: OptimizerSettings
    schedule: ScheduleSettings
    checkpoint: CheckpointSettings
    precision: Precision
    zero_stage: Literal[0, 1, 2, 3]
    total_steps: int
    global_batch: int
    micro_batch: int
    init_seed: int
    deepspeed_config: Path
    log_every: int = 1
    threads: int = 0
    recompute: bool = False
