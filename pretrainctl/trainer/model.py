"""A Llama-style decoder in plain torch: RMSNorm, RoPE, SwiGLU, grouped-query attention, causal SDPA."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from pretrainctl.records.training import ModelShape

__all__ = ["Decoder"]

_INIT_STD = 0.02


class RMSNorm(nn.Module):
    """x / rms(x) x weight, computed in fp32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight


class Attention(nn.Module):
    """Causal attention; `heads` query heads share `kv_heads` keys and values."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = shape.heads, shape.kv_heads, shape.hidden // shape.heads
        self.query = nn.Linear(shape.hidden, self.heads * self.width, bias=False)
        self.key = nn.Linear(shape.hidden, self.kv_heads * self.width, bias=False)
        self.value = nn.Linear(shape.hidden, self.kv_heads * self.width, bias=False)
        self.out = nn.Linear(self.heads * self.width, shape.hidden, bias=False)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Attend within each sequence of (batch, length, hidden)."""
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, self.heads, self.width).transpose(1, 2)
        key = self.key(x).view(batch, length, self.kv_heads, self.width).transpose(1, 2)
        value = self.value(x).view(batch, length, self.kv_heads, self.width).transpose(1, 2)
        query, key = _rotate(query, rotation), _rotate(key, rotation)
        group = self.heads // self.kv_heads
        key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return out


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) x up(x))."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to the last dimension."""
        out: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return out


class Block(nn.Module):
    """Attention and feed-forward, each on a normalised input and added to the stream."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(shape.hidden, shape.norm_eps)
        self.attention = Attention(shape)
        self.ffn_norm = RMSNorm(shape.hidden, shape.norm_eps)
        self.ffn = FeedForward(shape)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """One layer."""
        x = x + self.attention(self.attention_norm(x), rotation)
        out: Tensor = x + self.ffn(self.ffn_norm(x))
        return out


class Decoder(nn.Module):
    """The whole model; called with token ids it returns the mean loss of predicting each next token.

    With `recompute` a block keeps only its input, and runs once more in the backward pass. Inside `whole` a
    parameter has all its weights, also where each rank was given only its share of them.
    """

    def __init__(
        self,
        shape: ModelShape,
        seed: int,
        *,
        recompute: bool = False,
        whole: Callable[[nn.Parameter], AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> None:
        super().__init__()
        self.shape, self.recompute = shape, recompute
        self.embedding = nn.Embedding(shape.vocab, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.norm_eps)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        if shape.tied_embeddings:
            self.head.weight = self.embedding.weight
        self._initialise(seed, whole)
        # Kept out of the module's buffers: DeepSpeed would turn those to bf16, and angles need fp32.
        self._rotation: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length + 1) token ids to the mean cross-entropy over batch x length predictions, in fp32."""
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        rotation = self._rotation_on(tokens.device)
        length = inputs.shape[1]
        rotation = (rotation[0][:length], rotation[1][:length])
        x = self.embedding(inputs)
        for block in self.blocks:
            x = checkpoint(block, x, rotation, use_reentrant=False) if self.recompute else block(x, rotation)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    def _initialise(self, seed: int, whole: Callable[[nn.Parameter], AbstractContextManager[object]]) -> None:
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if name.endswith("norm.weight"):
                continue
            narrow = name.endswith(("attention.out.weight", "ffn.down.weight"))
            std = _INIT_STD / math.sqrt(2 * self.shape.layers) if narrow else _INIT_STD
            with whole(parameter), torch.no_grad():
                # Drawn on the CPU in fp32: the same weights on every kind of machine, however they are sharded.
                parameter.copy_(torch.empty(parameter.shape, device="cpu").normal_(std=std, generator=generator))

    def _rotation_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self._rotation:
            width = self.shape.hidden // self.shape.heads
            steps = torch.arange(0, width, 2, dtype=torch.float64) / width
            angles = torch.outer(torch.arange(self.shape.context, dtype=torch.float64), self.shape.rope_theta**-steps)
            self._rotation[device] = (angles.cos().float().to(device), angles.sin().float().to(device))
        return self._rotation[device]


def _rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """RoPE: rotate the pairs (i, i + width/2) of each head by the angles of their position."""
    cos, sin = rotation
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
