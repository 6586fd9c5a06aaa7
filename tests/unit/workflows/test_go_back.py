"""A person goes back to an older checkpoint: what is refused, what is set aside, what the run then expects."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pretrainctl.cli.main import main
from pretrainctl.errors import CheckpointError, InputError, PretrainctlError, RunError, SlurmError
from pretrainctl.frameworks.checkpoint_gate import check, gate
from pretrainctl.records import contract
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.run import Event
from pretrainctl.recovery.budgets import Opened, check_going_back
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold
from pretrainctl.workflows import control, go_back
from pretrainctl.workflows.case import Case
from pretrainctl.workflows.checkpoints import list_checkpoints, verify_checkpoints
from pretrainctl.workflows.look_back import expected_checkpoint
from pretrainctl.workflows.status import survey
from tests.unit.workflows.test_resume import kinds
from tests.unit.workflows.test_resume import run as resumable  # noqa: F401 - a fixture

STEPS = (100, 300, 400)


def save(folder: Path, step: int, *, ranks: int = 2) -> None:
    """A tag as the quickstart on the sandbox saves it: ZeRO 2, fp32, two ranks."""
    tag = folder / f"global_step{step}"
    tag.mkdir(parents=True)
    (tag / "state.json").write_text(f'{{"step": {step}}}')
    torch.save({"module": torch.zeros(8), "dp_world_size": ranks}, tag / "mp_rank_00_model_states.pt")
    for rank in range(ranks):
        torch.save({"fp32": torch.ones(64)}, tag / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


@pytest.fixture
def run(resumable: RunFolder, monkeypatch: pytest.MonkeyPatch) -> RunFolder:  # noqa: F811
    """One that did 430 steps, saved at three of them, and was stopped."""
    folder = resumable.launch().checkpoint.directory
    assert (resumable.launch().checkpoint.zero_stage, resumable.launch().checkpoint.world_size) == (2, 2)
    lines = []
    for step in STEPS:
        save(folder, step)
        lines.append(f'{{"kind":"saved","tag":"global_step{step}","step":{step},"seconds":1.0,"time":1.0}}\n')
    numbers = '"tokens":1,"loss":2.0,"grad_norm":1.0,"lr":0.1,"seconds":1.0,"time":1.0'
    lines += [f'{{"kind":"step","step":{step},{numbers}}}\n' for step in (1, 430)]
    (contract.restart_dir(resumable.path, 1, 0) / "metrics.jsonl").write_text("".join(lines))
    (folder / "latest").write_text("global_step400")
    monkeypatch.setenv("PRETRAINCTL_RUNS", str(resumable.path.parent))
    return resumable


def directory(run: RunFolder) -> Path:
    return run.launch().checkpoint.directory


def back(run: RunFolder, tag: str, **options) -> control.Outcome:
    outcome = control.resume(str(run.path), back_to=tag, **options)
    assert outcome is not None
    return outcome


def lying(run: RunFolder) -> list[str]:
    return sorted(path.name for path in directory(run).glob("global_step*"))


def next_start(run: RunFolder) -> str | None:
    return check(directory(run), run.launch().checkpoint, **expected_checkpoint(run))


@pytest.mark.parametrize("tag", ["global_step100", "100", " 100 ", "0100"])
def test_what_is_newer_is_set_aside_and_the_run_goes_on_from_the_tag(run: RunFolder, tag: str) -> None:
    assert next_start(run) == "global_step400"
    said = back(run, tag)
    assert said.job_ids == (9,)
    assert said.message == (
        "queued job 9; from step 430 back to global_step100: 330 steps are done again, and global_step400, "
        f"global_step300 are set aside in {directory(run)}/quarantine"
    )
    assert lying(run) == ["global_step100"]
    assert sorted(path.name for path in (directory(run) / "quarantine").iterdir()) == [
        "global_step300.went-back-to-global_step100",
        "global_step400.went-back-to-global_step100",
    ]
    assert kinds(run) == ["stop_requested", "resume_requested", "went_back"]
    assert fold(ledger.read_events(run.path)).stopped is None
    assert next_start(run) == "global_step100"
    assert (directory(run) / "latest").read_text() == "global_step400", "the gate writes it, as always"


def test_going_back_is_no_fall_back_of_the_run(run: RunFolder) -> None:
    assert expected_checkpoint(run)["last_saved_step"] == 400
    back(run, "100")
    expected = expected_checkpoint(run)
    assert (expected["expected"], expected["last_saved_step"], expected["claimed"]) == (True, 100, None)
    none = run.launch().recovery.__class__(older_checkpoints=0)
    assert not check_going_back([Opened(100, expected["last_saved_step"])], none)
    result = gate(directory(run), run.launch().checkpoint, **expected, label="x")
    assert (result.resume_tag, [note for note in result.notes if "done again" in note]) == ("global_step100", [])


def test_what_was_saved_since_counts_again(run: RunFolder) -> None:
    back(run, "100")
    folder = contract.restart_dir(run.path, 2, 0)
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(
        '{"kind":"saved","tag":"global_step200","step":200,"seconds":1.0,"time":1.0}\n'
    )
    save(directory(run), 200)
    assert expected_checkpoint(run)["last_saved_step"] == 200
    assert next_start(run) == "global_step200"


def test_an_interrupted_move_is_finished_by_the_gate(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CheckpointError("it cannot be moved: Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(go_back, "set_aside", refuse)
        with pytest.raises(CheckpointError, match="Permission denied"):
            back(run, "100")
    assert fold(ledger.read_events(run.path)).stopped == ("could not be resumed: it cannot be moved: Permission denied")
    assert lying(run) == ["global_step100", "global_step300", "global_step400"]
    assert {one.reason for one in list_checkpoints(run.record.name)} == {"", "a person went back to global_step100"}
    assert next_start(run) == "global_step100"
    result = gate(directory(run), run.launch().checkpoint, **expected_checkpoint(run), label="x")
    assert [one.reason for one, _ in result.quarantined] == ["a person went back to global_step100"] * 2
    assert lying(run) == ["global_step100"]


def test_a_person_may_think_again_before_anything_is_moved(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(go_back, "set_aside", lambda *_: None)
        back(run, "100")
    back(run, "300")
    assert (lying(run), next_start(run)) == (["global_step100", "global_step300"], "global_step300")


def test_after_the_next_gate_a_tag_that_is_put_back_counts(run: RunFolder) -> None:
    back(run, "100")
    ledger.append(run.path, "checkpoint_gate", "", attempt=2, data={"resume_tag": "global_step100"})
    (directory(run) / "quarantine" / "global_step400.went-back-to-global_step100").rename(
        directory(run) / "global_step400"
    )
    assert next_start(run) == "global_step400"


def test_the_newest_is_resumed_plainly(run: RunFolder) -> None:
    assert back(run, "400").message == "queued job 9; 400 is the newest: nothing to go back from"
    assert kinds(run) == ["stop_requested", "resume_requested"]
    assert lying(run) == ["global_step100", "global_step300", "global_step400"]


def test_a_newer_one_that_is_aside_already_is_missed_no_more(run: RunFolder) -> None:
    quarantine = directory(run) / "quarantine"
    quarantine.mkdir()
    for step in (300, 400):
        (directory(run) / f"global_step{step}").rename(quarantine / f"global_step{step}.attempt-1-restart-0")
    assert expected_checkpoint(run)["last_saved_step"] == 400, "a plain resume would count as a fall-back"
    said = back(run, "100").message
    assert said == "queued job 9; from step 430 back to global_step100: 330 steps are done again"
    assert expected_checkpoint(run)["last_saved_step"] == 100


def other_layout(run: RunFolder) -> None:
    (directory(run) / "global_step300").rename(directory(run) / "elsewhere")
    save(directory(run), 300, ranks=4)


REFUSED: dict[str, tuple[Callable[[RunFolder], object], str, type[PretrainctlError], str, str]] = {
    "unknown": (
        lambda _: None,
        "200",
        InputError,
        "has no checkpoint global_step200",
        "global_step300, global_step100",
    ),
    "no tag": (
        lambda _: None,
        "newest",
        InputError,
        "newest, and that is no tag and no step",
        "there are global_step400",
    ),
    "a path": (lambda _: None, "../checkpoints/global_step100", InputError, "that is no tag", "there are"),
    "negative": (lambda _: None, "-100", InputError, "that is no tag", "there are"),
    "torn": (
        lambda run: (directory(run) / "global_step300" / "mp_rank_00_model_states.pt").write_bytes(b""),
        "300",
        CheckpointError,
        "global_step300 is corrupt",
        "checkpoints",
    ),
    "incomplete": (
        lambda run: (directory(run) / "global_step300" / "mp_rank_00_model_states.pt").unlink(),
        "300",
        CheckpointError,
        "global_step300 is incomplete",
        "checkpoints",
    ),
    "another world size": (other_layout, "300", CheckpointError, "4 .*cannot go on from it as it is", "layout"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_gone_back_to(run: RunFolder, what: str) -> None:
    make, tag, error, message, hint = REFUSED[what]
    make(run)
    before = lying(run)
    with pytest.raises(error, match=message) as caught:
        back(run, tag)
    assert hint in caught.value.hint
    assert (kinds(run), lying(run)) == (["stop_requested"], before), "nothing was changed"


def flip(tag: Path) -> None:
    shard = tag / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    content = bytearray(shard.read_bytes())
    content[content.index(b"data/0") + 120] ^= 1
    shard.write_bytes(content)


def test_a_tag_that_was_found_damaged(run: RunFolder) -> None:
    flip(directory(run) / "global_step300")
    assert verify_checkpoints(run.record.name).corrupt == ("global_step300",)
    with pytest.raises(CheckpointError, match=r"global_step300 is corrupt \(.*data/0 not as written"):
        back(run, "300")


def test_the_only_one_was_found_damaged(run: RunFolder) -> None:
    for step in (100, 300):
        shutil.rmtree(directory(run) / f"global_step{step}")
    flip(directory(run) / "global_step400")
    verify_checkpoints(run.record.name)
    for options in ({}, {"back_to": "400"}):
        with pytest.raises(CheckpointError, match=r"global_step400 is corrupt \(.*data/0 not as written") as caught:
            control.resume(run.record.name, **options)
        assert caught.value.exit_code == 8
    assert kinds(run) == ["stop_requested", "checkpoint_damaged"]


def test_one_that_lies_aside_is_named(run: RunFolder) -> None:
    back(run, "100")
    with pytest.raises(InputError, match="has no checkpoint global_step400") as caught:
        back(run, "400")
    assert "quarantine/global_step400.went-back-to-global_step100: move it back to" in caught.value.hint


@pytest.mark.parametrize(("state", "words"), [(JobClass.RUNNING, "is being stopped"), (JobClass.PENDING, "is queued")])
def test_a_run_that_has_jobs(run: RunFolder, monkeypatch: pytest.MonkeyPatch, state: JobClass, words: str) -> None:
    job = Job(7, run.record.job_name, StateMeaning(state.name, state, alive=True))
    monkeypatch.setattr(control, "reach_own", lambda _run: SimpleNamespace(queued=lambda _name: [job]))
    with pytest.raises(RunError, match=words):
        back(run, "100")
    ledger.append(run.path, "resume_requested", "")
    with pytest.raises(RunError) as caught:
        back(run, "100")
    assert caught.value.hint.startswith("end it first, with `pretrainctl stop --save")
    assert caught.value.hint.endswith("--from 100`")
    assert len(lying(run)) == len(STEPS)


@pytest.mark.parametrize(("target", "tag"), [(400, None), (300, None), (401, None), (300, "300"), (300, "100")])
def test_a_target_that_was_reached_already_is_refused(run: RunFolder, target: int, tag: str | None) -> None:
    tokens = run.launch().tokens_per_step * target
    options = {"set_values": [f"training.tokens={tokens}"], "accept": True, "back_to": tag}
    newest = int(tag or 400)
    if target > newest:
        assert control.resume(str(run.path), **options) is not None
        return
    told = rf"goes on from global_step{newest}, and with --set .* its target would be step {target}:"
    with pytest.raises(RunError, match=told):
        control.resume(str(run.path), **options)
    assert kinds(run) == ["stop_requested"]


def test_newer_tags_of_any_kind_are_set_aside(run: RunFolder) -> None:
    (directory(run) / "global_step400" / "mp_rank_00_model_states.pt").unlink()
    save(directory(run), 500, ranks=4)
    (directory(run) / "global_step600").write_text("no folder")
    said = back(run, "300").message
    assert "from step 600 back to global_step300: 300 steps are done again" in said
    assert lying(run) == ["global_step100", "global_step300"]
    assert next_start(run) == "global_step300"


def test_a_finished_run_goes_back_and_can_finish_again(run: RunFolder) -> None:
    ledger.append(run.path, "claimed", "", attempt=1, data={"job_id": 7})
    ledger.append(run.path, "finished", "the target was reached", attempt=1)
    with pytest.raises(RunError, match="is finished"):
        back(run, "400")
    assert kinds(run) == ["stop_requested"]
    back(run, "300")
    state = fold(ledger.read_events(run.path))
    assert (state.finished, state.stopped) == (None, None)
    ledger.append(run.path, "finished", "again", attempt=2)
    assert fold(ledger.read_events(run.path)).finished == "again"


@pytest.mark.parametrize("attempt", [0, 1])
def test_what_was_finished_before_is_past_wherever_it_was_said(attempt: int) -> None:
    told = {"back_to": "global_step100", "back_to_step": 100, "from_step": 400}
    events = [
        Event("finished", 0, 1, 1.0, "h", "from outside") if not attempt else Event("made", 0, 1, 1.0, "h", ""),
        Event("resume_requested", 0, 2, 2.0, "h", "", after_attempt=1),
        Event("went_back", 0, 3, 2.0, "h", "", after_attempt=1, data=told),
        Event("finished", attempt, 4, 1.0, "h", "x") if attempt else Event("claimed", 1, 1, 1.0, "h", ""),
    ]
    assert fold(events).finished is None
    assert fold([*events, Event("finished", 2, 1, 3.0, "h", "now")]).finished == "now"


def test_another_resume_that_is_at_work_goes_on_as_it_was_told(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.append(run.path, "resume_requested", "of somebody else")
    with pytest.raises(RunError, match="another `resume`"):
        back(run, "100")
    assert len(lying(run)) == len(STEPS)
    assert next_start(run) == "global_step400"


def test_with_another_value(run: RunFolder) -> None:
    change = ["training.optimizer.lr=1e-4"]
    with pytest.raises(RunError, match="not what"):
        back(run, "100", set_values=change)
    assert len(lying(run)) == len(STEPS), "nothing was changed"
    said = back(run, "100", set_values=change, accept=True).message
    assert "training.optimizer.lr 0.002 -> 0.0001" in said
    assert kinds(run) == ["stop_requested", "resume_requested", "went_back", "change_accepted"]


def test_slurm_that_refuses_leaves_a_stopped_run_that_has_gone_back(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(control, "queue_jobs", lambda *_: (_ for _ in ()).throw(SlurmError("Invalid account")))
        with pytest.raises(SlurmError):
            back(run, "100")
    assert fold(ledger.read_events(run.path)).stopped == "could not be resumed: Invalid account"
    assert back(run, "100").message.endswith("nothing to go back from")
    assert next_start(run) == "global_step100"


def test_it_is_asked_for(run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrainctl", "resume", run.record.name, "--from", "global_step300"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "130 steps are done again" in capsys.readouterr().err
    assert kinds(run) == ["stop_requested"]
    assert control.resume(run.record.name, back_to="300", confirm=lambda _: False) is None
    assert kinds(run) == ["stop_requested"]
    monkeypatch.setattr(sys, "argv", [*words, "--yes"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "back to global_step300" in capsys.readouterr().out


def test_status_and_doctor_say_so(run: RunFolder) -> None:
    assert survey(run.record.name).runs[0].went_back == ""
    back(run, "100")
    words = "a person went back to global_step100 from step 430, after attempt 1"
    assert survey(run.record.name).runs[0].went_back == words
    assert words in Case(run).notes
