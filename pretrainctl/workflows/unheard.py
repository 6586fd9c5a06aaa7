"""Settings that change nothing which the job gets: found by rendering with and without each, and said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pretrainctl.errors import InputError, PretrainctlError
from pretrainctl.runs import folder
from pretrainctl.schema import Plan
from pretrainctl.workflows.plan import make_plan

__all__ = ["find_unheard", "plan_warned", "refuse_unchanged", "refuse_unheard", "refuse_unheard_recipe"]

_MOST_KEYS = 40
"""Keys of another recipe that are tried one by one; each costs a plan."""
_HINT = (
    "give it as a word of program.argv, or as a variable in `environment:` that the program reads; recipes/README.md "
    "tells what the program gets"
)

_DESCRIPTION = re.compile(r"(?<=\A#!/bin/bash\n)# .*\n")

Make = Callable[[Sequence[str]], Plan]
"""A plan from settings."""
Text = Callable[[Plan], Mapping[str, str]]
"""The files of its bundle."""


@dataclass(frozen=True)
class Unheard:
    """A key whose value is another, and nothing that the job gets is. `by_program`: the reference trainer would have
    got it, and the recipe's own program does not."""

    key: str
    by_program: bool


def plan_warned(
    recipe: str,
    cluster: str | None,
    *,
    set_values: Sequence[str] = (),
    name: str | None = None,
    mail_type: str | None = None,
    mail_user: str | None = None,
) -> Plan:
    """The plan, as `make_plan` makes it, with a warning of settings that do not reach the recipe's own program."""

    def make(settings: Sequence[str]) -> Plan:
        return make_plan(recipe, cluster, set_values=settings, name=name, mail_type=mail_type, mail_user=mail_user)

    def text(plan: Plan) -> Mapping[str, str]:
        from pretrainctl.workflows.render import render_bundle  # no other plan needs its templates

        return render_bundle(plan, folder.roots()[0].absolute() / plan.name)[2].files

    plan = make(set_values)
    if plan.recipe.program is None or not set_values:
        return plan
    keys = [one.key for one in find_unheard(plan, _without_each(set_values), make, text) if one.by_program]
    if not keys:
        return plan
    return plan.model_copy(update={"warnings": (*plan.warnings, f"--set {_does_not_reach(keys)}: {_HINT}")})


def refuse_unheard(plan: Plan, set_values: Sequence[str], make: Make, text: Text) -> None:
    """InputError for settings of a `resume` that change nothing which its job gets."""
    found = find_unheard(plan, _without_each(set_values), make, text)
    mine = [one.key for one in found if one.by_program]
    if mine:
        raise InputError(f"--set {_does_not_reach(mine)}", hint=_HINT)
    if found:
        keys = ", ".join(one.key for one in found)
        raise InputError(f"--set {keys}: nothing that the job gets is changed by it", hint="leave it out")


def refuse_unheard_recipe(
    plan: Plan, before: Mapping[str, Any], set_values: Sequence[str], make: Make, text: Text
) -> None:
    """InputError for values of another recipe that differ from those `before`, and do not reach its own program."""
    if plan.recipe.program is None:
        return
    changed = dict(_changes(before, plan.recipe.model_dump(mode="json"), ()))
    back = {key: [*set_values, f"{key}={json.dumps(old)}"] for key, old in list(changed.items())[:_MOST_KEYS]}
    keys = [one.key for one in find_unheard(plan, back, make, text) if one.by_program]
    if keys:
        raise InputError(f"--recipe changes {_does_not_reach(keys)}", hint=_HINT)


def find_unheard(plan: Plan, without: Mapping[str, Sequence[str]], make: Make, text: Text) -> tuple[Unheard, ...]:
    """The keys that the job does not hear of. `without` has, by key, the settings of a plan without its new value.

    A key that cannot be left out, since nothing could be planned then, is heard.
    """
    found = []
    for key, settings in without.items():
        try:
            other = make(settings)
            if _values(other) == _values(plan) or _heard(text(other)) != _heard(text(plan)):
                continue
        except (PretrainctlError, OSError):
            continue
        found.append(Unheard(key, plan.recipe.program is not None and _trainer_hears(other, plan, text)))
    return tuple(found)


def refuse_unchanged(set_values: Sequence[str], before: Mapping[str, str], files: Mapping[str, str]) -> None:
    """InputError where the bundle with all settings of a `resume` is the one `before`."""
    if set_values and _heard(files) == _heard(before):
        keys = ", ".join(_without_each(set_values))
        raise InputError(
            f"--set {keys}: it is so already, and nothing that the job gets is changed by it", hint="leave it out"
        )


def _heard(files: Mapping[str, str]) -> dict[str, str]:
    """The files of a bundle without the run's description, which stands below a script's first line."""
    return {name: _DESCRIPTION.sub("", text) for name, text in files.items()}


def _without_each(settings: Sequence[str]) -> dict[str, Sequence[str]]:
    """The other settings, by the key of each; of a key that comes twice the last counts."""
    return {
        setting.partition("=")[0].strip(): [*settings[:index], *settings[index + 1 :]]
        for index, setting in enumerate(settings)
    }


def _values(plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    return plan.recipe.model_dump(mode="json"), plan.profile.model_dump(mode="json")


def _trainer_hears(one: Plan, other: Plan, text: Text) -> bool:
    """Whether the bundles would differ with the reference trainer."""
    try:
        return _heard(text(_with_trainer(one))) != _heard(text(_with_trainer(other)))
    except PretrainctlError:
        return False


def _with_trainer(plan: Plan) -> Plan:
    return plan.model_copy(update={"recipe": plan.recipe.model_copy(update={"program": None}), "blocked": None})


def _changes(before: Any, after: Any, place: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Keys whose value is another, with the one before; sections are entered where both have the key."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in after:
            if key in before and "." not in key:
                yield from _changes(before[key], after[key], (*place, key))
    elif before != after:
        yield ".".join(place), before


def _does_not_reach(keys: Sequence[str]) -> str:
    return f"{', '.join(keys)} {'does' if len(keys) == 1 else 'do'} not reach the program of this recipe"
