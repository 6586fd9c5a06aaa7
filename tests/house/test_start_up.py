"""Start-up: what a command loads, and what it costs."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest

HEAVY = {"torch", "deepspeed", "wandb", "submitit", "numpy"}
LATER = HEAVY | {"pydantic", "ruamel", "jinja2", "rich", "tree_sitter"}

LOADED = """
import json, os, sys
from pretrainctl.__main__ import main
sys.argv = ["pretrainctl", *sys.argv[1:]]
sys.stdout = open(os.devnull, "w")
try:
    main()
finally:
    print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})), file=sys.__stdout__)
"""


def loaded(tmp_path, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], LATER),
        (["--version"], LATER),
        (["status"], HEAVY | {"ruamel", "jinja2"}),
        (["plan", "quickstart", "--cluster", "sandbox"], HEAVY | {"jinja2", "tree_sitter"}),
        (["render", "quickstart", "--cluster", "sandbox"], HEAVY),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_loads_only_what_it_needs(tmp_path, arguments, unwanted):
    assert loaded(tmp_path, *arguments) & unwanted == set()


def cpu_seconds(*arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, timeout=60, env=dict(os.environ)
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def test_help_costs_at_most_twice_the_import_of_typer():
    cpu_seconds("-m", "pretrainctl", "--help")  # byte code is written once
    pairs = [(cpu_seconds("-m", "pretrainctl", "--help"), cpu_seconds("-c", "import typer")) for _ in range(7)]
    ours, typers = (min(times) for times in zip(*pairs, strict=True))
    print(f"--help {ours:.3f} s, import typer {typers:.3f} s of CPU")
    assert ours <= 2 * typers
