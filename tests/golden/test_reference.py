"""The READMEs of recipes and profiles name every key; `pytest tests/golden --update-golden` writes them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from pretrainctl.schema import ClusterProfile, Recipe
from pretrainctl.schema.base import Count, Part, Positive, Seconds
from pretrainctl.schema.recipe import GlobalBatch
from tests.golden.reference import MARK, fields, renewed

TOP = Path(__file__).parents[2]
READMES = [("recipes", Recipe), ("cluster_profiles", ClusterProfile)]


@pytest.mark.parametrize(("folder", "model"), READMES)
def test_every_key_stands_in_the_readme(folder, model, request):
    path = TOP / folder / "README.md"
    text = path.read_text(encoding="utf-8")
    if request.config.getoption("--update-golden"):
        path.write_text(renewed(text, model), encoding="utf-8")
        return
    assert text == renewed(text, model), "the schema changed: run with --update-golden"


class Speed(Part):
    """How fast."""

    limit: Positive | None = None
    """Most of it."""
    pace: Literal["walk", "run"] = "walk"
    """One of two."""


class Journey(Part):
    """A model with every kind of field."""

    to: str
    """Where | to."""
    stops: tuple[Speed, ...] = ()
    """Several sections."""
    legs: dict[str, Speed] = Field(default_factory=dict)
    """Named sections."""
    takes: Seconds | Literal["unknown"] | None = None
    """Union."""
    steps: Count = 1000
    """Counted."""
    again: Speed = Speed()
    """The same section."""
    batch: GlobalBatch
    """Typed as text."""
    seen: tuple[float, ...] | None = None
    """List or nothing."""


def test_a_table_tells_each_kind_of_field():
    assert (
        fields(Journey)
        == """### Top level

A model with every kind of field.

| key | value | default | meaning |
|---|---|---|---|
| `to` | text | **required** | Where \\| to. |
| `stops` | list of section, [stops[]](#stops) | `[]` | Several sections. |
| `legs` | mapping of NAME to section, [stops[]](#stops) | `{}` | Named sections. |
| `takes` | duration (`90s`, `12h`, `00:30:00`), or `unknown`, or null | `null` | Union. |
| `steps` | count (`300000`, `60M`, `1.5T`) | `1000` | Counted. |
| `again` | section, [stops[]](#stops) | as below | The same section. |
| `batch` | text | **required** | Typed as text. |
| `seen` | list of number, or null | `null` | List or nothing. |

### `stops[]`

How fast.

| key | value | default | meaning |
|---|---|---|---|
| `stops[].limit` | whole number, from 1, or null | `null` | Most of it. |
| `stops[].pace` | `walk` or `run` | `walk` | One of two. |
"""
    )


def test_a_new_key_makes_the_readme_stale():
    class Longer(Recipe):
        """What to train, and one thing more."""

        wish: str = ""
        """A key that the README does not know."""

    text = (TOP / "recipes" / "README.md").read_text(encoding="utf-8")
    assert renewed(text, Longer) != text
    assert "| `wish` |" in renewed(text, Longer)


def test_what_is_written_by_hand_is_kept():
    assert renewed(f"by hand\n\n{MARK}old", Speed).startswith(f"by hand\n\n{MARK}### Top level")
    with pytest.raises(ValueError, match="line is missing"):
        renewed("no mark", Speed)
