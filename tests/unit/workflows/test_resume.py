"""Resume of a run whose recipe, bundle or budget is another one now; Slurm is a stand-in, all else is real."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.cli.main import main
from pretrainctl.errors import InputError, RunError, SlurmError
from pretrainctl.records import codec, contract
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.lineage import Lineage
from pretrainctl.records.run import AttemptRecord
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold
from pretrainctl.workflows import control
from pretrainctl.workflows.lineage import begin, finish, lineage_file
from tests.unit.records.test_token_index import write_tokens
from tests.unit.workflows.test_revise import bundle, launched


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """One that trained in attempt 1 and was stopped; job 9 is what is queued next."""
    run = launched(tmp_path, "quickstart", "sandbox")
    write_tokens(tmp_path / "data" / "quickstart", 1000)
    contract.restart_dir(run.path, 1, 0).mkdir(parents=True)
    codec.write(contract.attempt_dir(run.path, 1) / "attempt.json", AttemptRecord(1, 7, 0, "n1", 1, ("n1",), 0.0))
    now = finish(begin(run, run.launch(), known=None, job_environment=None), run, 30.0)
    codec.write(lineage_file(run.path, 1), now)
    ledger.append(run.path, "stop_requested", "stop asked for")
    monkeypatch.setattr(control, "reach_own", lambda _run: SimpleNamespace(queued=lambda _name: []))

    def queue(*_: object) -> tuple[tuple[int, ...], tuple[str, ...]]:
        ledger.append(run.path, "submitted", "submitted job 9", data={"job_id": 9})
        return (9,), ()

    monkeypatch.setattr(control, "queue_jobs", queue)
    return run


def kinds(run: RunFolder) -> list[str]:
    return [event.kind for event in ledger.read_events(run.path, 0) if event.kind not in {"made", "submitted"}]


def test_nothing_changed(run: RunFolder) -> None:
    assert control.resume(str(run.path)).message == "queued job 9"
    assert kinds(run) == ["stop_requested", "resume_requested"]


@pytest.mark.parametrize("accept", [False, True])
def test_data_that_are_not_there_are_refused(run: RunFolder, tmp_path: Path, accept: bool) -> None:
    data = tmp_path / "data" / "quickstart.bin"
    kept = data.rename(tmp_path / "away")
    for change in ([], ["training.optimizer.lr=0.5"]):
        with pytest.raises(InputError, match=f"the training data {data} does not exist"):
            control.resume(str(run.path), set_values=change, accept=accept)
    assert kinds(run) == ["stop_requested"], "nothing was changed"
    with pytest.raises(InputError, match=r"other\.bin does not exist"):
        control.resume(str(run.path), set_values=["data.sources=[{prefix: /data/other}]"], accept=True)
    kept.rename(data)
    assert control.resume(str(run.path)).message == "queued job 9"


def test_another_value_is_shown_then_accepted(run: RunFolder) -> None:
    before = bundle(run)
    change = ["training.optimizer.lr=0.5"]
    with pytest.raises(RunError, match=r"not what .* trained with before: training\.optimizer\.lr 0\.002 -> 0\.5"):
        control.resume(str(run.path), set_values=change)
    assert (bundle(run), kinds(run)) == (before, ["stop_requested"]), "nothing was changed"
    said = control.resume(str(run.path), set_values=change, accept=True).message
    assert "training.optimizer.lr 0.002 -> 0.5" in said
    assert kinds(run) == ["stop_requested", "resume_requested", "change_accepted"]
    assert json.loads(bundle(run)["training.json"])["optimizer"]["lr"] == 0.5
    assert control.resume(str(run.path)).job_ids == (9,), "it was accepted, and stays so"


def test_a_harmless_value_needs_no_consent(run: RunFolder) -> None:
    said = control.resume(str(run.path), set_values=["resources.walltime=7m", "recovery.node_hours=9"]).message
    assert "job.time 0-00:20:00 -> 0-00:07:00" in said
    assert "launch.recovery.node_hours null -> 9" in said
    assert "change_accepted" not in kinds(run)
    assert run.launch().recovery.node_hours == 9.0


def test_an_edited_bundle(run: RunFolder) -> None:
    task = run.bundle / "task.sh"
    task.write_text(task.read_text() + "true\n")
    with pytest.raises(RunError, match="before: task "):
        control.resume(str(run.path))
    assert control.resume(str(run.path), accept=True).job_ids == (9,)


def test_what_is_to_be_typed_again_has_all_that_was_given(run: RunFolder, tmp_path: Path) -> None:
    """Without it, `--accept` would go on with the bundle as it was."""
    other = tmp_path / "a recipe.yaml"
    values = run.planned().recipe | {"training": run.planned().recipe["training"] | {"init_seed": 7}}
    other.write_text(json.dumps(values))
    with pytest.raises(RunError) as caught:
        control.resume(str(run.path), set_values=["training.optimizer.lr=0.5", "resources.walltime=7m"], recipe=other)
    words = shlex.split(caught.value.hint.split("`")[1])
    assert words[:2] == ["pretrainctl", "resume"]
    assert words[3:] == [
        *("--set", "training.optimizer.lr=0.5", "--set", "resources.walltime=7m", "--recipe", str(other), "--accept")
    ]
    assert "besides: job.time" in str(caught.value), "what needs no consent is told too"


def test_who_wants_another_value_of_a_run_that_lives_is_told_how(run: RunFolder, monkeypatch) -> None:
    job = Job(7, run.record.job_name, StateMeaning("RUNNING", JobClass.RUNNING, alive=True))
    monkeypatch.setattr(control, "reach_own", lambda _run: SimpleNamespace(queued=lambda _name: [job]))
    ledger.append(run.path, "resume_requested", "")
    with pytest.raises(RunError, match="is running: job 7") as caught:
        control.resume(str(run.path), set_values=["resources.walltime=7m"])
    name = run.record.name
    assert f"`pretrainctl stop --save {name}`; when it has: `pretrainctl resume " in caught.value.hint
    assert caught.value.hint.endswith("--set resources.walltime=7m`")
    with pytest.raises(RunError) as caught:
        control.resume(str(run.path))
    assert f"there is nothing to resume; `pretrainctl stop --save {name}` ends it after a save" in caught.value.hint


@pytest.mark.parametrize("kept", ["resources.spares=1", "training.optimizer.lr=0.5"])
def test_settings_of_the_launch_stay_over_another_recipe(run: RunFolder, tmp_path: Path, kept: str) -> None:
    control.resume(str(run.path), set_values=[kept], accept=True)
    ledger.append(run.path, "stop_requested", "stop asked for")
    other = tmp_path / "other.yaml"
    other.write_text(json.dumps(run.record.recipe | {"training": run.record.recipe["training"] | {"init_seed": 7}}))
    with pytest.raises(RunError, match=re.escape(f"given before stay, until `--set` names the same key: {kept}")):
        control.resume(str(run.path), recipe=other)
    said = control.resume(str(run.path), recipe=other, accept=True).message
    assert f"names the same key: {kept}" in said
    recipe = run.planned().recipe
    assert recipe["training"]["init_seed"] == 7
    spares = kept.startswith("resources")
    assert (recipe["resources"]["spares"], recipe["training"]["optimizer"]["lr"]) == (
        (1, 0.002) if spares else (0, 0.5)
    )
    ledger.append(run.path, "stop_requested", "stop asked for")
    again = (
        "resources.spares=0"
        if spares
        else "training.optimizer={lr: 0.002, betas: [0.9, 0.95], weight_decay: 0.1, clip: 1.0}"
    )
    said = control.resume(str(run.path), recipe=other, set_values=[again], accept=True).message
    assert "given before stay" not in said
    assert run.planned().settings == (again,)
    assert (run.planned().recipe["resources"]["spares"], run.planned().recipe["training"]["optimizer"]["lr"]) == (
        0,
        0.002,
    )


def test_a_setting_that_does_not_fit_another_recipe_is_named(run: RunFolder, tmp_path: Path) -> None:
    control.resume(str(run.path), set_values=["resources.spares=1"])
    ledger.append(run.path, "stop_requested", "stop asked for")
    other = tmp_path / "other.yaml"
    other.write_text(json.dumps(run.record.recipe | {"resources": {"nodes": 4000}}))
    with pytest.raises(InputError) as caught:
        control.resume(str(run.path), recipe=other)
    assert "settings given before stay, until `--set` names the same key: resources.spares=1" in caught.value.hint


def test_a_value_that_cannot_be(run: RunFolder) -> None:
    with pytest.raises(InputError, match="unknown key 'optimiser'"):
        control.resume(str(run.path), set_values=["training.optimiser.lr=1"])
    with pytest.raises(InputError, match="no failure class"):
        control.resume(str(run.path), set_values=["recovery.policies.oom=stop"])
    assert kinds(run) == ["stop_requested"]


def test_node_hours_that_are_used_up(run: RunFolder) -> None:
    ledger.append(run.path, "attempt_ended", "", attempt=1)
    control.resume(str(run.path), set_values=["recovery.node_hours=1e9"])
    with pytest.raises(RunError, match=r"stays stopped: .* node-hours are used, and the recipe allows 1e-12 \(rec"):
        control.resume(str(run.path), set_values=["recovery.node_hours=1e-12"])


def test_slurm_that_refuses_leaves_a_stopped_run(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise SlurmError("Invalid account")

    monkeypatch.setattr(control, "queue_jobs", refuse)
    with pytest.raises(SlurmError):
        control.resume(str(run.path), set_values=["training.optimizer.lr=0.5"], accept=True)
    assert fold(ledger.read_events(run.path)).stopped == "could not be resumed: Invalid account"


def test_the_command(run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrainctl", "resume", str(run.path), "--set", "training.optimizer.lr=0.5"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="6"):
        main()
    assert "--accept" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", [*words, "--accept"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "queued job 9" in capsys.readouterr().out


def test_a_run_from_before_lineage_was_recorded(run: RunFolder) -> None:
    assert codec.read(Lineage, lineage_file(run.path, 1)).facts
    lineage_file(run.path, 1).unlink()
    assert control.resume(str(run.path), set_values=["training.optimizer.lr=0.5"]).message == "queued job 9"
