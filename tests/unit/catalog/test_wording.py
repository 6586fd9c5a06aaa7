"""Whatever is wrong in a recipe or profile is told in plain words."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pretrainctl import catalog
from pretrainctl.catalog import loading
from pretrainctl.catalog.wording import PATTERNS, WORDS, what_is_wrong
from pretrainctl.errors import InputError
from pretrainctl.schema import ClusterProfile, Recipe

ODD: list[Any] = [[], {}, None, "x", "", "a b", -1, 0, 1, 1.5, 1e99, True, float("nan"), [1], {"a": 1}, [[]], ["", ""]]
ODD += [10**30, "9999-99-99", ["x"] * 9]
TOLD_ELSEWHERE = {"missing", "extra_forbidden", "value_error"}
TECHNICAL = re.compile(r"Input|should|valid\b|[Tt]uple|String|object|array|item|boolean|integer|pattern|\^|None|True")


def places(values: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in items:
        yield from places(value, (*place, key))


def put(values: dict[str, Any], place: tuple[Any, ...], odd: Any) -> dict[str, Any]:
    changed = copy.deepcopy(values)
    target: Any = changed
    for key, following in pairwise(place):
        if isinstance(following, str) and isinstance(target, dict) and not isinstance(target.get(key), dict):
            target[key] = {}
        target = target[key]
    target[place[-1]] = odd
    return changed


def problems_of(model: type[BaseModel], values: dict[str, Any]) -> Iterator[ErrorDetails]:
    """What is found where any value is replaced by any odd one."""
    for place in sorted({*places(values), *loading._paths(model)} - {()}, key=str):
        for odd in ODD:
            try:
                model.model_validate_json(json.dumps(put(values, place, odd)))
            except ValidationError as error:
                yield from error.errors(include_url=False)


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (Recipe, loading.recipe_document("salamandra-7b", clusters=["leonardo"]).values),
        (ClusterProfile, loading.profile_document("marenostrum5").values),
    ],
    ids=["recipe", "profile"],
)
def test_every_problem_that_the_schema_can_find_has_words_of_its_own(
    model: type[BaseModel], values: dict[str, Any]
) -> None:
    seen = set()
    for problem in problems_of(model, values):
        seen.add(problem["type"])
        if problem["type"] in TOLD_ELSEWHERE:
            continue
        assert problem["type"] in WORDS
        said = what_is_wrong(problem)
        assert said.endswith(" expected")
        assert not TECHNICAL.search(said), said
    assert len(seen) > 10, "the odd values are odd enough"


def patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if schema.get("type") == "str" and "pattern" in schema:
            yield schema["pattern"]
        for part in schema.values():
            yield from patterns(part)
    elif isinstance(schema, (list, tuple)):
        for part in schema:
            yield from patterns(part)


def test_every_pattern_of_the_schema_has_its_meaning_and_no_other_has() -> None:
    used = {*patterns(Recipe.__pydantic_core_schema__), *patterns(ClusterProfile.__pydantic_core_schema__)}
    assert used == set(PATTERNS)


@pytest.mark.parametrize(
    ("load", "setting", "says"),
    [
        (catalog.load_recipe, "data.sources=[]", "data.sources: at least 1 entry is expected, not []"),
        (
            catalog.load_recipe,
            "training.optimizer.betas=[0.9]",
            "training.optimizer.betas: at least 2 entries are expected, not [0.9]",
        ),
        (
            catalog.load_recipe,
            "training.optimizer.betas=[0.9, 0.9, 0.9]",
            "training.optimizer.betas: at most 2 entries are expected, not [0.9, 0.9, 0.9]",
        ),
        (catalog.load_recipe, "name=''", 'name: at least 1 character is expected, not ""'),
        (catalog.load_recipe, "training.recompute=1", "training.recompute: true or false is expected, not 1"),
        (catalog.load_profile, "mail={type: END, user: x}", 'mail.user: at least 3 characters are expected, not "x"'),
        (catalog.load_profile, "provenance.as_of=2026-13", "a date, YYYY-MM or YYYY-MM-DD, is expected"),
        (catalog.load_profile, "rendezvous.port_base=99999", "rendezvous.port_base: at most 65535 is expected"),
    ],
)
def test_what_people_read(load: Any, setting: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        load("quickstart" if load is catalog.load_recipe else "sandbox", [setting])
    assert says in str(caught.value)


def refusal(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        catalog.load_profile(str(path), ["tasks.tasks_per_node=x"])
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{path}:").replace(str(path), "FILE")


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    said = refusal(
        tmp_path,
        "name: a\nextends: sandbox\nnode: {cpu: 4, gpuz: 2}\nrequest:\n  gpus: 5\n"
        "queues:\n  - {name: a, purpose: production, max_nodes: many, max_walltime: 1h}\n",
    )
    # Neither the list of queues, which lacks its one bad row, nor a key that is there by another name.
    assert said == (
        "3: unknown key 'cpu' in node; also line 7: queues.0.max_nodes: 'many' is not a count (write it as 1.5B, 300M, "
        "2k or 1_000_000); line 3: unknown key 'gpuz' in node; line 5: request.gpus: 'gres', 'gpus-per-node' or 'none' "
        "is expected, not 5; --set cluster.tasks.tasks_per_node=x: tasks.tasks_per_node: a whole number is expected, "
        'not "x"'
    )


def test_a_key_that_is_misspelt_is_not_missing_too_and_no_more_is_told_than_can_be_read(tmp_path: Path) -> None:
    said = refusal(tmp_path, "nam: a\nchain: {strategi: inside, jobs: 0}\n" + "".join(f"x{n}: 1\n" for n in range(2)))
    assert said.startswith(
        "2: unknown key 'strategi' in chain; also --set cluster.tasks.tasks_per_node=x: tasks.tasks_per_node: a whole "
        'number is expected, not "x"; line 2: chain.jobs: at least 1 is expected, not 0; line 1: unknown key'
    )
    assert "line 4: unknown key 'x1' in the top; line 1: the key " in said
    assert said.count("; ") == 7
    assert re.search(r"; and \d+ more$", said)
    text = "chain: {strategi: inside}\n" + "".join(f"{name}: {{}}\n" for name in ("hosts", "internet", "hang"))
    assert "chain.strategy is missing" not in refusal(tmp_path, text)
