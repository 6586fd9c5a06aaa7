"""What each cluster will receive, as files under review. `pytest tests/golden --update-golden` writes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl import catalog
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle

GOLDEN = Path(__file__).parent
HOME = Path("/home/you")
PAIRS = [(recipe, cluster) for recipe in catalog.names("recipes") for cluster in catalog.names("cluster_profiles")]


@pytest.mark.parametrize(("recipe", "cluster"), PAIRS)
def test_bundle_is_as_reviewed(recipe, cluster, request):
    plan = make_plan(recipe, cluster, directory=HOME)
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


def test_every_golden_folder_belongs_to_a_recipe_and_a_cluster():
    folders = {path.name for path in GOLDEN.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert folders == {f"{recipe}-on-{cluster}" for recipe, cluster in PAIRS}


@pytest.mark.parametrize(("recipe", "cluster"), PAIRS)
def test_the_same_inputs_give_the_same_text_wherever_and_whenever(recipe, cluster, monkeypatch, tmp_path):
    def texts():
        plan = make_plan(recipe, cluster, directory=HOME)
        return dict(render_bundle(plan, HOME / "runs" / recipe, python="/opt/bin/python")[2].files)

    first = texts()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert texts() == first
