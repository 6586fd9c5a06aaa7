"""What is said to people is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from pretrainctl import errors
from pretrainctl.cli.main import app


def commands(command, path="pretrainctl"):
    """Every command that people see, by its full name."""
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            if not child.hidden:
                yield from commands(child, f"{path} {name}")
    else:
        yield path, command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_in_the_readme_and_helps(top, name):
    assert COMMANDS[name].help, f"{name} has no help"
    assert f"{name}" in (top / "README.md").read_text(encoding="utf-8"), f"README.md does not mention `{name}`"


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_says_what_it_does(name):
    for parameter in COMMANDS[name].params:
        assert getattr(parameter, "help", None), f"{name} {parameter.name} has no help"


def test_exit_codes_are_as_drawn():
    drawn = dict(re.findall(r"(\w+Error) +(\d+)", errors.__doc__))
    assert drawn == {name: str(getattr(errors, name).exit_code) for name in errors.__all__}


def test_nothing_of_one_machine_is_in_the_repository(top):
    home = re.compile(r"/(?:root|tmp/lab|work)/|/home/(?!you\b)\w+")
    for folder in ("pretrainctl", "recipes", "cluster_profiles", "templates", ".ci"):
        for path in sorted((top / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                found = home.search(path.read_text(encoding="utf-8"))
                assert found is None, f"{path.relative_to(Path(top))}: {found}"
