"""What is said to people is true."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import typer

from pretrainctl import catalog, errors
from pretrainctl.cli.main import app
from pretrainctl.workflows.render import render_recipe


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


def test_the_route_to_marenostrum5_ends_in_a_script(top, user_configuration, monkeypatch, tmp_path):
    """The profile that the README writes there, and the command after it; the pack's Python is that of its module."""
    readme = (top / "README.md").read_text(encoding="utf-8")
    profile = textwrap.dedent(re.search(r"marenostrum5\.yaml <<'END'\n(.*?)    END\n", readme, re.DOTALL)[1])
    (user_configuration / "cluster_profiles").mkdir()
    (user_configuration / "cluster_profiles" / "marenostrum5.yaml").write_text(profile)
    recipe, cluster = re.search(r"alogin\$ +\S+/pretrainctl render (\S+) --cluster (\S+)\n", readme).groups()
    monkeypatch.chdir(tmp_path)
    script = render_recipe(recipe, cluster).bundle.files["job.sbatch"]
    loads, starts = script.index("module load python/3.11.5-gcc"), script.index("exec ")
    assert loads < starts
    _, version = catalog.load_profile(cluster).python_module
    assert f"pretrainctl pack --cluster marenostrum5 --python {version}" in readme
    assert f"marenostrum5-x86_64-py{version}/install.sh" in readme
    _, jupiter = catalog.load_profile("jupiter").python_module
    assert f"jupiter-aarch64-py{jupiter}/install.sh" in readme
    modules = catalog.load_profile("jupiter").modules[:3]
    assert f"module load {' '.join(modules)}\n" in readme


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
