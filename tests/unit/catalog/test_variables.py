"""Values of environment variables, and text that is nested too deeply."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pretrainctl.catalog import load_profile, load_recipe
from pretrainctl.errors import InputError


@pytest.mark.parametrize("typed", ["8", "+3", "010", "1_000", "0x1F", "9e-4", "1.10", "true", "3.14159265358979323846"])
def test_a_number_of_a_setting_is_the_text_that_was_typed(typed: str) -> None:
    assert load_recipe("quickstart", [f"environment.A={typed}"]).environment["A"] == typed
    sets = [f"environment.A.value={typed}", "environment.A.reason=1st"]
    assert load_profile("sandbox", sets).environment["A"].value == typed


def test_a_number_of_a_file_is_its_text(tmp_path: Path) -> None:
    recipe, profile = tmp_path / "own.yaml", tmp_path / "site.yaml"
    recipe.write_text("extends: quickstart\nenvironment: {A: 8, B: 9e-4, C: 010, D: '7', E: 1.10, F: -1}\n")
    assert load_recipe(str(recipe)).environment == {"A": "8", "B": "9e-4", "C": "010", "D": "7", "E": "1.10", "F": "-1"}
    profile.write_text("extends: sandbox\nworkloads: {moe: {A: {value: 22, reason: tried}}}\n")
    assert load_profile(str(profile)).workloads["moe"]["A"].value == "22"
    recipe.write_text("extends: quickstart\nclusters: {sandbox: {environment: {A: 8}}}\n")
    assert load_recipe(str(recipe), clusters=["sandbox"]).environment["A"] == "8"


@pytest.mark.parametrize("typed", ["[3]", "{a: 3}", ""])
def test_what_is_no_text_is_refused(typed: str) -> None:
    with pytest.raises(InputError, match="text is expected"):
        load_recipe("quickstart", [f"environment.A={typed}"])


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("/x/lib:$LD_LIBRARY_PATH", "the variable $LD_LIBRARY_PATH"),
        ("/opt/bin:$PATH", "the variable $PATH"),
        ("~/hf", "a home folder"),
        ("/a:~/b", "a home folder"),
        ("~you/hf", "a home folder"),
        ("$SCRATCH/hf", "the variable $SCRATCH"),
        ("${SCRATCH}/hf", "the variable ${SCRATCH}"),
        ("${PATH:-/bin}", "the variable ${PATH:-/bin}"),
        ("$(nproc)", r"the command $(nproc)"),
        ("`nproc`", "the command `nproc`"),
    ],
)
def test_what_only_a_shell_would_replace_is_refused(value: str, named: str) -> None:
    for read in (
        lambda: load_recipe("quickstart", [f"environment.A='{value}'"]),
        lambda: load_profile("sandbox", [f"environment.A.value='{value}'", "environment.A.reason=r"]),
        lambda: load_profile("sandbox", [f"workloads.moe.A.value='{value}'", "workloads.moe.A.reason=r"]),
    ):
        with pytest.raises(InputError) as caught:
            read()
        assert f"names {named}" in str(caught.value)
        assert "as they are written: write out" in str(caught.value)


@pytest.mark.parametrize(
    "value",
    ["price$", "$$", "pa$$word", "$5", "^eth$|ib0", "a~b", "~5", "v1~rc2", "$ORIGIN/../lib", "${LIB}/x", "a`b", "50%"],
)
def test_a_dollar_that_names_nothing_stays(value: str) -> None:
    assert load_recipe("quickstart", [f"environment.A='{value}'"]).environment["A"] == value


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000,
        "[\n" * 10_000,
        "a: " + "{a: " * 5000,
        "- " * 5000 + "x",
        "? " * 5000 + "x",
        "".join(" " * depth + "a:\n" for depth in range(600)),
    ],
    ids=["brackets", "brackets on lines", "braces", "entries", "keys", "indentation"],
)
def test_what_is_nested_too_deeply_is_refused_at_once(tmp_path: Path, text: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    begin = time.process_time()
    with pytest.raises(InputError, match=r"own.yaml:[0-9]+: broken YAML: nested more than 25 sections deep"):
        load_recipe(str(path))
    assert time.process_time() - begin < 2


def test_brackets_in_a_text_are_no_sections(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(f"extends: quickstart\ndescription: '{'[' * 300}'\n")
    assert load_recipe(str(path)).description == "[" * 300
