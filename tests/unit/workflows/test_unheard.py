"""Settings that the job does not hear of."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from pretrainctl.errors import InputError
from pretrainctl.runs import folder
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows.launch import _identity
from pretrainctl.workflows.render import render_bundle
from pretrainctl.workflows.revise import install, revise
from pretrainctl.workflows.unheard import plan_warned

OWN = """
extends: quickstart
name: own
program:
  argv: ["{python}", /srv/own.py, "{run_dir}"]
  checkpoint: {directory: "{run_dir}/checkpoints"}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    return path


def launched(tmp_path: Path, recipe: str) -> RunFolder:
    plan = plan_warned(recipe, "sandbox", name="a")
    created = time.time()
    run_dir = tmp_path / "runs" / "a"
    record, _, bundle = render_bundle(plan, run_dir, python=sys.executable, salt=str(created))
    return folder.create(run_dir, _identity(plan, record, created), bundle)


SWALLOWED = [
    "training.optimizer.lr=9e-4",
    "model.layers=3",
    "data.seed=3",
    "training.schedule.warmup_steps=3",
    "checkpoint.keep=3",
    "training.init_seed=8",
]
HEARD = [
    "environment.LR=9e-4",
    "training.tokens=1M",
    "training.zero_stage=1",
    "resources.walltime=9m",
    "deepspeed.config.communication_data_type=fp32",
    "cluster.signals.lead=40s",
    "program.resume_arguments=[--resume]",
]


@pytest.mark.parametrize("setting", SWALLOWED)
def test_a_resume_refuses_what_the_program_does_not_get(own: Path, tmp_path: Path, setting: str) -> None:
    run = launched(tmp_path, str(own))
    key = setting.partition("=")[0]
    with pytest.raises(InputError, match=f"--set {key} does not reach the program of this recipe") as caught:
        revise(run, ["environment.LR=1", setting], None)
    assert "program.argv" in caught.value.hint
    assert "environment" in caught.value.hint


def test_all_that_is_not_heard_is_named_at_once(own: Path, tmp_path: Path) -> None:
    run = launched(tmp_path, str(own))
    with pytest.raises(InputError, match=r"--set training.optimizer.lr, model.layers, data.seed do not reach"):
        revise(run, SWALLOWED[:3], None)


@pytest.mark.parametrize("setting", HEARD)
def test_a_resume_takes_what_the_job_gets_beside_what_is_so_already(own: Path, tmp_path: Path, setting: str) -> None:
    run = launched(tmp_path, str(own))
    revise(run, [setting], None)
    revise(run, [setting, "data.seed=1234"], None)


def test_what_is_so_already_is_refused_where_nothing_else_is_changed(tmp_path: Path) -> None:
    run = launched(tmp_path, "quickstart")
    for settings in (["training.log_every=1"], ["data.seed=1234", "training.log_every=1"], ["training.log_every=5"]):
        if settings == ["training.log_every=5"]:
            install(run, revise(run, settings, None))
        keys = ", ".join(setting.partition("=")[0] for setting in settings)
        with pytest.raises(InputError, match=f"--set {keys}: it is so already") as caught:
            revise(run, settings, None)
        assert caught.value.exit_code == 2
    assert revise(run, ["training.log_every=1"], None).files != {}
    assert revise(run, [], None).files != {}, "a recipe that changes nothing may be given"


def test_the_words_of_a_description_change_nothing(tmp_path: Path) -> None:
    run = launched(tmp_path, "quickstart")
    with pytest.raises(InputError, match="--set description: nothing that the job gets is changed by it"):
        revise(run, ["description=hello", "training.log_every=5"], None)


def test_what_counts_for_plans_and_launches_only_is_refused_in_other_words(own: Path, tmp_path: Path) -> None:
    for recipe in (str(own), "quickstart"):
        run = launched(tmp_path / Path(recipe).stem, recipe)
        with pytest.raises(
            InputError, match=r"resources\.seconds_per_step: nothing that the job gets is changed by it"
        ):
            revise(run, ["resources.seconds_per_step=7"], None)


def test_another_recipe_is_held_to_the_same(own: Path, tmp_path: Path) -> None:
    run = launched(tmp_path, str(own))
    other = tmp_path / "other.yaml"
    other.write_text(f"extends: {own}\ntraining: {{optimizer: {{lr: 0.5}}}}\nresources: {{walltime: 9m}}\n")
    with pytest.raises(InputError, match=r"--recipe changes training\.optimizer\.lr does not reach the program"):
        revise(run, [], other)
    other.write_text(f"extends: {own}\nresources: {{walltime: 9m, seconds_per_step: 7}}\n")
    assert "0-00:09:00" in revise(run, [], other).files["job.sbatch"]


def test_the_reference_trainer_hears_them(tmp_path: Path) -> None:
    run = launched(tmp_path, "quickstart")
    for setting in SWALLOWED:
        revise(run, [setting], None)


def test_a_plan_warns_of_them_and_of_nothing_else(own: Path) -> None:
    before = plan_warned(str(own), "sandbox").warnings
    (told,) = set(plan_warned(str(own), "sandbox", set_values=SWALLOWED).warnings) - set(before)
    keys = ", ".join(setting.partition("=")[0] for setting in SWALLOWED)
    assert told.startswith(f"--set {keys} do not reach the program of this recipe")
    heard = [*HEARD, "resources.seconds_per_step=7", "checkpoint.adopt=true"]
    assert plan_warned(str(own), "sandbox", set_values=heard).warnings == before
    assert plan_warned("quickstart", "sandbox", set_values=SWALLOWED).warnings == before


def test_a_checkpoint_folder_of_an_own_program_is_written_out(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/you")

    def directory(text: str) -> str:
        program = plan_warned(str(own), "sandbox", set_values=[f"program.checkpoint.directory='{text}'"]).recipe.program
        assert program is not None
        return program.checkpoint.directory

    assert [directory(text) for text in ("~/ck", "ck", "{run_dir}/ck")] == ["/home/you/ck", "ck", "{run_dir}/ck"]
    for text in ("$SCRATCH/ck", "/x/${USER}/ck"):
        with pytest.raises(InputError, match="names a variable, and paths are taken as they are written"):
            directory(text)
