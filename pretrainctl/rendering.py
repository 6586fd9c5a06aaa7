"""Plan and launch to text. Pure, strict about undefined names; every value is quoted by the filters here."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pretrainctl.errors import InputError
from pretrainctl.records.codec import to_json
from pretrainctl.records.launch import Bundle, Launch
from pretrainctl.records.pack import Pack
from pretrainctl.records.training import TrainingSettings
from pretrainctl.schema import Plan

__all__ = ["render", "render_pack"]

_PLAIN_DIRECTIVE = re.compile(r"[A-Za-z0-9_.:,@+=%/-]*")


def render(
    plan: Plan,
    launch: Launch,
    settings: TrainingSettings | None,
    framework_config: Mapping[str, Any],
    run_dir: Path,
    template_dir: Path,
) -> Bundle:
    """The files of `bundle/`: job.sbatch, task.sh, launch.json, deepspeed.json, and training.json where the
    reference trainer runs. InputError where a value cannot stand on a `#SBATCH` line."""
    environment = _environment(template_dir)
    values = {
        "plan": plan,
        "launch": launch,
        "run_dir": str(run_dir),
        "log": f"{_path_pattern(run_dir)}/attempts/slurm-%j.out",
        "modules": _modules(plan),
        "caches": plan.profile.caches,
        # The reason belongs to the site's value, not to one that the recipe puts in its place.
        "reasons": {
            name: variable.reason
            for name, variable in plan.environment.items()
            if launch.environment.get(name) == variable.value
        },
    }
    files = {name: environment.get_template(f"{name}.j2").render(values) for name in ("job.sbatch", "task.sh")}
    files["launch.json"] = _json(launch)
    files["deepspeed.json"] = _json(framework_config)
    if settings is not None:
        files["training.json"] = _json(settings)
    for name, text in files.items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            bad = text[max(0, error.start - 20) : error.end]
            raise InputError(
                f"{name} would hold a name that is no valid text, near {bad!r}",
                hint="rename the folder or file with the broken characters",
            ) from error
    return Bundle(files)


def render_pack(pack: Pack, template_dir: Path) -> Mapping[str, str]:
    """The files of a pack beside its wheels: install.sh, the requirements with their hashes, manifest.json."""
    environment = _environment(template_dir)
    files = {
        name: environment.get_template(f"{name}.j2").render(pack=pack) for name in ("install.sh", "requirements.txt")
    }
    return {**files, "manifest.json": _json(pack)}


def _environment(template_dir: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(template_dir),
        undefined=StrictUndefined,
        comment_start_string="<#",  # jinja's own `{#` is shell's length of an array
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - this is shell, not HTML; the filters below quote
    )
    environment.filters.update(sh=_sh, sh_items=_sh_items, comment=_comment, directive=_directive)
    return environment


def _modules(plan: Plan) -> tuple[str, ...]:
    container = plan.profile.container
    return plan.profile.modules + (container.modules if container is not None and container.image else ())


def _sh(value: object) -> str:
    """One shell word, whatever the value holds. Short plain words stay as they are."""
    text = str(value)
    if "\0" in text:
        raise InputError(f"{text!r} holds a zero byte, which no program can be given")
    return shlex.quote(text)


def _sh_items(values: Sequence[object]) -> str:
    """Shell words, one a line, for the inside of an array."""
    return "".join(f"  {_sh(value)}\n" for value in values)


def _comment(value: object) -> str:
    """Text of one line for the rest of a comment."""
    return "".join(character if character.isprintable() else " " for character in str(value))


def _directive(value: object) -> str:
    """A value for a `#SBATCH` line, in double quotes where it needs them; line ends are final there."""
    text = str(value)
    if _PLAIN_DIRECTIVE.fullmatch(text):
        return text
    if "\\" in text or any(not character.isprintable() for character in text):
        raise InputError(
            f"{text!r} cannot stand on a #SBATCH line",
            hint="use a path without line breaks, tabs and backslashes",
        )
    # sbatch ends a value at a space even behind a backslash; in quotes it knows no escape but the backslash.
    return '"' + text.replace('"', '\\"') + '"'


def _path_pattern(path: Path) -> str:
    """A path inside `--output`, where Slurm replaces %j and its like."""
    return str(path).replace("%", "%%")


def _json(record: object) -> str:
    return json.dumps(to_json(record), indent=1, ensure_ascii=False) + "\n"
