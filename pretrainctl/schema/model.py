"""The shape of a model."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from pretrainctl.schema.base import Part, Positive

__all__ = ["Experts", "Model"]


class Experts(Part):
    """Feed-forward networks of which a router picks some for each token."""

    count: Annotated[int, Field(ge=2)]
    """Experts in each block."""
    active: Positive
    """Experts that a token takes."""

    @model_validator(mode="after")
    def _fits(self) -> Experts:
        if self.active > self.count:
            raise ValueError(f"active {self.active} is more than the {self.count} experts")
        return self


class Model(Part):
    """The shape of a Llama-style decoder."""

    layers: Positive
    """Decoder blocks."""
    hidden: Positive
    """Width of the residual stream."""
    heads: Positive
    """Query heads; `hidden` must be a multiple."""
    kv_heads: Positive
    """Key-value heads that the query heads share; `heads` must be a multiple."""
    ffn: Positive
    """Inner width of the SwiGLU."""
    vocab: Positive
    """Rows of the embedding: token ids, padding to a convenient multiple included."""
    context: Positive
    """Longest sequence, in tokens."""
    rope_theta: Annotated[float, Field(gt=0)] = 10000.0
    """Base of the rotary position embedding."""
    norm_eps: Annotated[float, Field(gt=0)] = 1e-5
    """Epsilon of RMSNorm."""
    tied_embeddings: bool = True
    """Whether the output layer shares the embedding's weights."""
    experts: Experts | None = None
    """Mixture of experts in each block; null = a dense model. The reference trainer trains dense models only."""

    @model_validator(mode="after")
    def _divides(self) -> Model:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        if self.hidden // self.heads % 2:
            raise ValueError(f"rotary embeddings need an even head width, not {self.hidden // self.heads}")
        return self
