"""The data that a recipe trains with: where they lie, and that they are there before anything is queued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pretrainctl.errors import InputError, MissingError
from pretrainctl.records.token_index import bin_file, idx_file, read_token_index

__all__ = ["refuse_missing_data", "sources_of"]


def sources_of(recipe: Mapping[str, Any]) -> Sequence[Path]:
    """The prefixes of its data, as the recipe of a run names them."""
    data = recipe.get("data")
    sources = data.get("sources", []) if isinstance(data, Mapping) else []
    return [Path(source["prefix"]) for source in sources if isinstance(source, Mapping) and "prefix" in source]


def refuse_missing_data(recipe: Mapping[str, Any]) -> None:
    """InputError where the reference trainer would find its token files missing, cut, or no token files, once the job
    runs; a program of one's own knows its own."""
    if recipe.get("program") is not None:
        return
    for prefix in sources_of(recipe):
        for path in (bin_file(prefix), idx_file(prefix)):
            if not path.exists():
                raise InputError(
                    f"the training data {path} does not exist",
                    hint="make it with `python -m pretrainctl.trainer.tokenize`, or name another data.sources",
                )
        try:
            index = read_token_index(prefix)
        except (InputError, MissingError) as error:
            raise InputError(f"the training data: {error}", hint=error.hint) from error
        length = recipe["data"]["sequence_length"]
        if index.tokens <= length:
            raise InputError(
                f"the training data {bin_file(prefix)} holds {index.tokens} tokens, too few for one sequence of "
                f"{length} + 1",
                hint="use more text, or a smaller data.sequence_length",
            )
