"""A run planned anew between two of its jobs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from pretrainctl.errors import InputError
from pretrainctl.runs import folder
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows.launch import _identity
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle
from pretrainctl.workflows.revise import install, revise

MINE = {
    "sandbox": [],
    "jupiter": ["cluster.account.name=exalab"],
    "leonardo": ["cluster.account.name=EUHPC_E01_001"],
    "marenostrum5": [
        *("cluster.account.name=ehpc01", "cluster.families=[ehpc]"),
        "cluster.container.image=/gpfs/projects/ehpc01/images/training.sif",
    ],
}


def launched(tmp_path: Path, recipe: str, cluster: str, *sets: str) -> RunFolder:
    plan = make_plan(recipe, cluster, set_values=[*MINE[cluster], *sets], name="a run", directory=tmp_path)
    created = time.time()
    record, _, bundle = render_bundle(plan, tmp_path / "runs" / "a run", python=sys.executable, salt=str(created))
    return folder.create(tmp_path / "runs" / "a run", _identity(plan, record, created), bundle)


def bundle(run: RunFolder) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in run.bundle.iterdir()}


@pytest.mark.parametrize(
    ("recipe", "cluster"),
    [("quickstart", "sandbox"), *(("llama-8b", cluster) for cluster in ("jupiter", "leonardo", "marenostrum5"))],
)
def test_without_a_change_the_bundle_is_the_same(tmp_path: Path, recipe: str, cluster: str) -> None:
    run = launched(tmp_path, recipe, cluster)
    before = bundle(run)
    with pytest.raises(InputError, match="--set description: nothing that the job gets is changed by it"):
        revise(run, ["description=other words"], None)
    assert dict(revise(run, [], None).files) == before


def test_a_value_is_changed_and_the_old_bundle_kept(tmp_path: Path) -> None:
    run = launched(tmp_path, "quickstart", "sandbox")
    before = bundle(run)
    install(run, revise(run, ["training.optimizer.lr=0.5", "resources.walltime=7m"], None))
    after = bundle(run)
    assert {name for name in before if before[name] != after[name]} == {"job.sbatch", "training.json"}
    assert json.loads(after["training.json"])["optimizer"]["lr"] == 0.5
    assert {path.name: path.read_text() for path in (run.path / "bundles" / "0001").iterdir()} == before
    assert run.planned().recipe["training"]["optimizer"]["lr"] == 0.5
    install(run, revise(run, ["resources.walltime=8m"], None))
    assert json.loads(bundle(run)["training.json"])["optimizer"]["lr"] == 0.5, "what was changed before stays"
    assert (run.path / "bundles" / "0002").is_dir()


def test_another_recipe_on_the_same_cluster(tmp_path: Path) -> None:
    run = launched(tmp_path, "quickstart", "sandbox")
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: quickstart\nname: other\ntraining: {optimizer: {lr: 0.25}}\n", encoding="utf-8")
    made = revise(run, [], mine)
    assert made.launch.job_name == run.launch().job_name
    assert json.loads(made.files["training.json"])["optimizer"]["lr"] == 0.25


def test_what_a_run_keeps(tmp_path: Path) -> None:
    run = launched(tmp_path, "quickstart", "sandbox")
    before = bundle(run)
    with pytest.raises(InputError, match=r"checkpoint\.directory of a run stays"):
        revise(run, [f"checkpoint.directory={tmp_path}/other"], None)
    with pytest.raises(InputError, match=r"cluster\.name of a run stays as it was launched: sandbox, not leonardo"):
        revise(run, ["cluster.name=leonardo"], None)
    for value in ("other", "'other'"):
        with pytest.raises(InputError, match=r"name of a run stays as it was launched: a run, not other"):
            revise(run, [f"name={value}"], None)
    same = ["name=a run", "cluster.name=sandbox", "resources.walltime=7m"]
    assert revise(run, same, None).planned.recipe["name"] == "a run"
    with pytest.raises(InputError, match="unknown key 'optimiser'"):
        revise(run, ["training.optimiser.lr=1"], None)
    assert bundle(run) == before
