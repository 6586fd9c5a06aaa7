"""What recipes and profiles accept as values."""

from __future__ import annotations

import inspect
import json

import pytest
from pydantic import BaseModel, ValidationError

from pretrainctl import catalog
from pretrainctl.schema import ClusterProfile, Plan, Recipe, cluster, plan, recipe, watching
from pretrainctl.schema.base import Count, Limit, Part, Seconds, SlurmWord, Text, TimeLimit, VariableName
from pretrainctl.schema.recipe import GlobalBatch
from pretrainctl.workflows.plan import make_plan


class Values(Part):
    count: Count = 1
    seconds: Seconds = 1
    limit: Limit = 1
    time: TimeLimit = 1
    word: SlurmWord = "a"
    name: VariableName = "A"
    text: Text = ""
    batch: GlobalBatch = GlobalBatch(count=1, unit="samples")


def read(**values):
    return Values.model_validate_json(json.dumps(values))


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        ("count", 300, 300),
        ("count", "60M", 60_000_000),
        ("count", "1.5T", 1_500_000_000_000),
        ("count", 8e9, 8_000_000_000),
        ("seconds", "90s", 90),
        ("seconds", "12:00:00", 43200),
        ("seconds", "1-12:00:00", 129600),
        ("limit", None, None),
        ("limit", "unknown", "unknown"),
        ("limit", 64, 64),
        ("time", "3d", 259200),
        ("time", "unknown", "unknown"),
        ("word", "acc_ehpc", "acc_ehpc"),
        ("text", "a\nb", "a\nb"),
    ],
)
def test_accepted(field, typed, value):
    assert getattr(read(**{field: typed}), field) == value


@pytest.mark.parametrize(
    ("field", "typed", "says"),
    [
        ("count", "many", "not a count"),
        ("count", 1.5, "valid integer"),
        ("count", True, "valid integer"),
        ("count", 0, "greater than or equal to 1"),
        ("seconds", 30, "write 90s, 30m"),
        ("seconds", "soon", "not a duration"),
        ("time", 30, "write 90s, 30m"),
        ("limit", "none", "not a count"),
        ("word", "a b", "cannot be given to Slurm"),
        ("word", "a\n#SBATCH --uid=0", "cannot be given to Slurm"),
        ("name", "A-B", "not the name of an environment variable"),
        ("text", "a\0b", "zero byte"),
        ("batch", "16", "16 samples"),
        ("batch", 16, "16 samples"),
        ("batch", "16 apples", "16 samples"),
    ],
)
def test_refused(field, typed, says):
    with pytest.raises(ValidationError, match=says):
        read(**{field: typed})


def test_a_batch_is_written_as_it_is_typed():
    value = read(batch="4M tokens")
    assert (value.batch.count, value.batch.unit) == (4_000_000, "tokens")
    assert value.model_dump(mode="json")["batch"] == "4000000 tokens"
    assert read(batch=value.model_dump(mode="json")["batch"]).batch == value.batch


def sections():
    return [
        model
        for module in (recipe, cluster, plan, watching)
        for _, model in inspect.getmembers(module, inspect.isclass)
        if issubclass(model, BaseModel) and model.__module__ == module.__name__
    ]


@pytest.mark.parametrize("model", sections(), ids=lambda model: model.__name__)
def test_every_field_says_what_it_means(model):
    assert model.__doc__
    for name, field in model.model_fields.items():
        assert field.description, f"{model.__name__}.{name} has no docstring under it"


@pytest.mark.parametrize("model", sections(), ids=lambda model: model.__name__)
def test_every_section_is_frozen_and_takes_no_unknown_key(model):
    assert model.model_config["frozen"]
    assert model.model_config["extra"] == "forbid"
    assert model.model_config["strict"]


def test_what_was_read_can_be_written_and_read_again():
    recipe_, profile = catalog.load_recipe("quickstart"), catalog.load_profile("sandbox")
    assert Recipe.model_validate_json(recipe_.model_dump_json()) == recipe_
    assert ClusterProfile.model_validate_json(profile.model_dump_json()) == profile
    made = make_plan("quickstart", "sandbox")
    assert Plan.model_validate_json(made.model_dump_json()) == made
