"""The house: floors, rooms, sizes, names."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP_LEVEL = {
    "LICENSE",
    "README.md",
    "cluster_profiles",
    "pretrainctl",
    "pyproject.toml",
    "recipes",
    "templates",
    "tests",
}
VAGUE = {"util", "utils", "helper", "helpers", "common", "manager", "misc", "base_utils"}
LONGEST = 350


def tool(name: str) -> str:
    path = Path(sys.executable).parent / name
    assert path.exists(), f"{name} belongs to the extra `dev`"
    return str(path)


def run(top: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(argv, cwd=top, capture_output=True, text=True, check=False, timeout=300, env=environment)


def test_imports_keep_to_the_floors(top):
    done = run(top, tool("lint-imports"), "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff(top):
    done = run(top, tool("ruff"), "check", "--output-format", "concise", ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy(top):
    done = run(top, tool("mypy"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_shell_scripts_of_the_repository_are_clean(top):
    done = run(top, tool("shellcheck"), "--norc", ".ci/run")
    assert done.returncode == 0, done.stdout


def test_every_ruff_exception_has_its_reason(top):
    text = (top / "pyproject.toml").read_text()
    rules = text.split("[tool.ruff.lint]")[1].split("[tool.ruff.lint.pylint]")[0]
    for line in rules.splitlines():
        if re.match(r'\s+"[A-Z]+\d*",', line):
            assert re.search(r'", +# \S', line), f"no reason: {line.strip()}"


def test_the_top_level_is_the_users_own(top):
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=top,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    names = {line.split("/")[0] for line in listed.stdout.splitlines()}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_a_module_says_what_it_is_and_what_is_public(module):
    tree = ast.parse(module.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "no docstring"
    assigned = {
        target.id
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    nothing_inside = all(
        isinstance(node, ast.Expr) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        for node in tree.body
    )
    assert nothing_inside or "__all__" in assigned or "__version__" in assigned, "no __all__"


def test_a_module_can_be_read_in_one_sitting(module):
    lines = len(module.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{lines} lines"


def test_a_name_says_what_is_inside(module):
    assert module.stem not in VAGUE
    assert module.parent.name not in VAGUE


def test_telemetry_needs_nothing_but_python(top):
    """Any Python of any training environment can import it: no site-packages, no environment, nothing else."""
    code = (
        "import sys, json; before = set(sys.modules); sys.path.insert(0, sys.argv[1]);"
        "import pretrainctl.telemetry, pkgutil, importlib;"
        "[importlib.import_module(m.name) for m in pkgutil.walk_packages("
        "getattr(pretrainctl.telemetry, '__path__', []), 'pretrainctl.telemetry.')];"
        "print(json.dumps([getattr(sys.modules[n], '__file__', None) or '' for n in set(sys.modules) - before]))"
    )
    done = run(top, sys.executable, "-S", "-I", "-c", code, str(top))
    assert done.returncode == 0, done.stderr
    foreign = [file for file in json.loads(done.stdout) if "site-packages" in file]
    assert foreign == []
