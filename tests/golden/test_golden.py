"""What each cluster will receive, as files under review. `pytest tests/golden --update-golden` writes them anew."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pretrainctl import catalog
from pretrainctl.errors import InputError
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle

GOLDEN = Path(__file__).parent
HOME = Path("/home/you")
PROFILES = {path.stem: str(path) for path in sorted((GOLDEN / "_profiles").iterdir())}
"""The supercomputers, each with what its user adds."""
UNTRAINABLE = {"moe-8x7b"}
PAIRS = [
    ("quickstart", "sandbox"),
    *((recipe, cluster) for recipe in catalog.names("recipes") for cluster in PROFILES if recipe not in UNTRAINABLE),
]


def planned(recipe, cluster):
    return make_plan(recipe, PROFILES.get(cluster, cluster), directory=HOME)


@pytest.mark.parametrize(("recipe", "cluster"), PAIRS)
def test_bundle_is_as_reviewed(recipe, cluster, request):
    plan = planned(recipe, cluster)
    _, _, bundle = render_bundle(plan, HOME / "runs" / recipe, python="/opt/pretrainctl/bin/python")
    folder = GOLDEN / f"{recipe}-on-{cluster}"
    if request.config.getoption("--update-golden"):
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name, text in bundle.files.items():
            (folder / name).write_text(text, encoding="utf-8")
    reviewed = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert dict(bundle.files) == reviewed, "changed: read the difference, then run with --update-golden"


def test_every_shipped_profile_is_here():
    assert set(PROFILES) == set(catalog.names("cluster_profiles")) - {"sandbox"}


@pytest.mark.parametrize("cluster", PROFILES)
@pytest.mark.parametrize("recipe", sorted(UNTRAINABLE))
def test_what_cannot_be_trained_yet_is_planned_and_not_rendered(recipe, cluster):
    plan = planned(recipe, cluster)
    assert plan.estimate.jobs
    with pytest.raises(InputError, match="mixture of 8 experts, and the reference trainer trains dense models only"):
        render_bundle(plan, HOME / "runs" / recipe)


@pytest.mark.parametrize(("recipe", "cluster"), PAIRS)
def test_scripts_are_clean_for_shellcheck(recipe, cluster):
    found = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:/usr/bin:/bin")
    assert found, "shellcheck belongs to the extra `dev`"
    scripts = [GOLDEN / f"{recipe}-on-{cluster}" / name for name in ("job.sbatch", "task.sh")]
    done = subprocess.run([found, "--norc", *scripts], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


def test_every_golden_folder_belongs_to_a_recipe_and_a_cluster():
    folders = {path.name for path in GOLDEN.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert folders == {f"{recipe}-on-{cluster}" for recipe, cluster in PAIRS}


@pytest.mark.parametrize(("recipe", "cluster"), PAIRS)
def test_the_same_inputs_give_the_same_text_wherever_and_whenever(recipe, cluster, monkeypatch, tmp_path):
    def texts():
        plan = planned(recipe, cluster)
        return dict(render_bundle(plan, HOME / "runs" / recipe, python="/opt/bin/python")[2].files)

    first = texts()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert texts() == first


def test_the_heads_in_the_readme_are_those_of_the_scripts():
    names = ("marenostrum5", "leonardo", "jupiter")
    scripts = [(GOLDEN / f"llama-8b-on-{name}" / "job.sbatch").read_text() for name in names]
    heads = [re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", script, re.MULTILINE) for script in scripts]
    rows = [f"| `#SBATCH --` | {' | '.join(names)} |", "|---|---|---|---|"]
    for option in dict.fromkeys(option for option, _ in itertools.chain(*heads)):
        if option in {"job-name", "chdir", "output"}:
            continue
        given = [dict(head).get(option) for head in heads]
        cells = ["" if value is None else f"`{value}`" if value else "yes" for value in given]
        rows.append(f"| {option} | {' | '.join(cells)} |")
    assert "\n".join(rows) in (GOLDEN.parents[1] / "README.md").read_text(), "write these rows:\n" + "\n".join(rows)
