"""What a recipe's own `environment:` says against the site: refused where it cannot work, else told."""

from __future__ import annotations

from collections.abc import Mapping

from pretrainctl.errors import InputError
from pretrainctl.schema import ClusterProfile, Recipe, Variable

__all__ = ["check_recipe_environment"]

_OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = ("1", "ON", "YES", "TRUE")
"""What Hugging Face's libraries read as yes, in any case (huggingface_hub/constants.py)."""


def check_recipe_environment(
    recipe: Recipe, profile: ClusterProfile, variables: Mapping[str, Variable], notes: list[str]
) -> None:
    """Refuse to go online where there is no internet, as `tracking.wandb` is; say what replaces a value of the site.

    `variables` are those of the site, each with its reason.
    """
    compute = profile.internet.compute
    for name, value in recipe.environment.items():
        if name in _OFFLINE and compute != "yes" and value.upper() not in _TRUE:
            raise InputError(
                f"environment.{name} {value!r}: compute nodes of {profile.name} have no internet"
                + (" as far as is known" if compute == "unknown" else "")
                + f" ({profile.source_of(profile.internet, 'compute')})",
                hint="leave it out, or say cluster.internet.compute=yes where they do",
            )
        theirs = variables.get(name)
        if theirs is not None and theirs.value != value:
            source = f"; {theirs.source}" if theirs.source else ""
            notes.append(
                f"environment.{name} {value} of the recipe replaces {theirs.value} of {profile.name}, which is there "
                f"because: {theirs.reason}{source}"
            )
