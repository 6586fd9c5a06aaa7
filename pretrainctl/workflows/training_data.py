"""The data that a recipe trains with: where they lie, and that they are there before anything is queued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pretrainctl.errors import InputError

__all__ = ["refuse_missing_data", "sources_of"]


def sources_of(recipe: Mapping[str, Any]) -> Sequence[Path]:
    """The prefixes of its data, as the recipe of a run names them."""
    data = recipe.get("data")
    sources = data.get("sources", []) if isinstance(data, Mapping) else []
    return [Path(source["prefix"]) for source in sources if isinstance(source, Mapping) and "prefix" in source]


def refuse_missing_data(recipe: Mapping[str, Any]) -> None:
    """InputError where the reference trainer would not find its data; a program of one's own knows its own."""
    if recipe.get("program") is not None:
        return
    for prefix in sources_of(recipe):
        for suffix in (".bin", ".idx"):
            path = prefix.with_name(prefix.name + suffix)
            if not path.exists():
                raise InputError(
                    f"the training data {path} does not exist",
                    hint="make it with `python -m pretrainctl.trainer.tokenize`, or name another data.sources",
                )
