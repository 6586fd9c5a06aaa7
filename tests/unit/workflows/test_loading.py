"""From a start that could not load its checkpoint to the gate before the next one, through the ledger."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pretrainctl.cli.main import main
from pretrainctl.errors import CheckpointError
from pretrainctl.frameworks.checkpoint_gate import check
from pretrainctl.frameworks.zero_checkpoint import inventory
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import Failure
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.run import AttemptRecord, Checkpoint, CheckpointStatus, Diagnosis, RunRecord
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows import checkpoints
from pretrainctl.workflows.checkpoints import list_checkpoints, verify_checkpoints
from pretrainctl.workflows.loading import judge_load, refused_tags
from pretrainctl.workflows.look_back import expected_checkpoint, look_back, restart_summaries

TAG = "global_step60"
OWN = f"rank 1: error: /scratch/{TAG} cannot be loaded: EOFError: Ran out of input"
PROVEN = Diagnosis("checkpoint_incomplete", f"the checkpoint cannot be loaded: 1: {OWN}")
ODD = Diagnosis("application_error", "rank 1 ended with status 1: TypeError: x", confidence="medium")
OTHER = Diagnosis("node_failure", "lost node02")


@pytest.fixture
def run(tmp_path: Path, pytestconfig: pytest.Config) -> RunFolder:
    """A run with complete checkpoints of the steps 20, 40 and 60."""
    folder = tmp_path / "a"
    golden = pytestconfig.rootpath / "tests" / "golden" / "quickstart-on-sandbox" / "launch.json"
    launch = json.loads(golden.read_text())
    launch["checkpoint"] |= {"directory": str(folder / "checkpoints"), "zero_stage": 0, "world_size": 1}
    (folder / "bundle").mkdir(parents=True)
    codec.write(folder / "run.json", RunRecord("a", "a", "a-1", "sandbox", 0.0, "u", {}, {}, {}))
    (folder / "bundle" / "launch.json").write_text(json.dumps(launch))
    for step in (20, 40, 60):
        tag = folder / "checkpoints" / f"global_step{step}"
        tag.mkdir(parents=True)
        torch.save({"module": torch.zeros(8), "dp_world_size": 1}, tag / "mp_rank_00_model_states.pt")
        (tag / "state.json").write_text(f'{{"step": {step}}}')
    return RunFolder(folder)


def start(run: RunFolder, restart: int, tag: str, *, attempt: int = 1, phase: str = "load") -> Path:
    folder = contract.restart_dir(run.path, attempt, restart)
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(f'{{"kind":"phase","phase":"{phase}","step":0,"time":1.0}}\n')
    data = {"restart": restart, "resume_tag": tag, "nodes": ["node01"]}
    ledger.append(run.path, "checkpoint_gate", "", attempt=attempt, data={"resume_tag": tag})
    ledger.append(run.path, "restart_started", "", attempt=attempt, data=data)
    return folder


def end(run: RunFolder, restart: int, diagnosis: Diagnosis, *, attempt: int = 1, tag: str = TAG, **more) -> Diagnosis:
    folder = start(run, restart, tag, attempt=attempt, **more)
    found, data = judge_load(run, folder, tag, diagnosis, stepped=False)
    data |= {"restart": restart, "class": found.failure_class}
    ledger.append(run.path, "restart_ended", "", attempt=attempt, data=data)
    return found


def choice(run: RunFolder) -> str | None:
    layout = run.launch().checkpoint
    return check(layout.directory, layout, **expected_checkpoint(run))


def test_the_trainers_own_word_sets_its_tag_aside_and_the_older_one_is_taken(run: RunFolder) -> None:
    assert choice(run) == TAG
    end(run, 0, PROVEN)
    assert choice(run) == "global_step40"
    assert refused_tags(ledger.read_events(run.path))[TAG].reason == OWN.removeprefix("rank 1: error: ")
    assert [one.refused for one in restart_summaries(run, 1)] == [TAG]


def test_a_tag_that_the_gate_could_not_move_away_stays_refused_until_it_can(run: RunFolder) -> None:
    end(run, 0, PROVEN)
    ledger.append(run.path, "checkpoint_gate", "", attempt=1, data={"resume_tag": "global_step40", "left": [TAG]})
    assert set(refused_tags(ledger.read_events(run.path))) == {TAG}
    assert choice(run) == "global_step40"
    ledger.append(run.path, "checkpoint_gate", "", attempt=1, data={"resume_tag": "global_step40", "left": []})
    assert refused_tags(ledger.read_events(run.path)) == {}


def test_an_error_of_the_program_does_so_the_second_time_in_a_row(run: RunFolder) -> None:
    assert end(run, 0, ODD) == ODD
    assert choice(run) == TAG
    assert end(run, 0, ODD, attempt=2).failure_class == "checkpoint_incomplete", "in the next attempt too"
    assert choice(run) == "global_step40"


@pytest.mark.parametrize("between", [OTHER, None])
def test_twice_means_the_same_tag_and_nothing_between(run: RunFolder, between: Diagnosis | None) -> None:
    end(run, 0, ODD)
    if between is not None:
        end(run, 1, between)
    assert end(run, 2, ODD, tag=TAG if between else "global_step40").failure_class == "application_error"
    assert choice(run) == TAG


def test_what_was_repaired_since_is_tried_again(run: RunFolder) -> None:
    end(run, 0, PROVEN)
    assert choice(run) == "global_step40"
    shard = run.launch().checkpoint.directory / TAG / "mp_rank_00_model_states.pt"
    shard.write_bytes(shard.read_bytes())
    assert choice(run) == TAG


def test_a_gate_has_moved_it_so_that_a_new_one_of_the_name_is_another(run: RunFolder) -> None:
    end(run, 0, PROVEN)
    ledger.append(run.path, "checkpoint_gate", "", attempt=1, data={"resume_tag": "global_step40"})
    assert choice(run) == TAG


def test_where_no_other_is_left_step_zero_is_not_started(run: RunFolder) -> None:
    for step in (20, 40):
        (run.launch().checkpoint.directory / f"global_step{step}" / "mp_rank_00_model_states.pt").write_bytes(b"")
    end(run, 0, PROVEN)
    with pytest.raises(CheckpointError, match=r"global_step60 is corrupt \(it could not be loaded: .*Ran out of input"):
        choice(run)


def test_the_list_of_checkpoints_says_so(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRETRAINCTL_RUNS", str(run.path.parent))
    end(run, 0, PROVEN)
    assert [one.status.value for one in list_checkpoints("a")] == ["complete", "complete", "corrupt"]


class Slurm:
    """Says that the attempt's job ran to the end of its script."""

    def jobs(self, ids: list[int]) -> dict[int, Job]:
        return {number: Job(number, "a-1", StateMeaning("COMPLETED", JobClass.FINISHED, alive=False)) for number in ids}


@pytest.mark.parametrize("said", [False, True])
def test_an_attempt_that_died_before_it_could_say_so_is_looked_back_at(run: RunFolder, said: bool) -> None:
    folder = start(run, 0, TAG)
    ledger.append(run.path, "claimed", "", attempt=1, data={"job_id": 7})
    codec.write(folder.parent / "attempt.json", AttemptRecord(1, 7, 0, "node01", 1, ("node01",), 0.0))
    codec.write(folder / "failure.json", Failure(1, "node01", 1, 1.0))
    (folder / "training.log").write_text(f"1: {OWN}\n")
    if said:
        ledger.append(run.path, "restart_ended", "", attempt=1, data={"restart": 0, "class": "checkpoint_incomplete"})
    past = look_back(run, Slurm())  # type: ignore[arg-type]
    assert past is not None
    assert past.diagnosis.failure_class == "checkpoint_incomplete"
    assert past.stop is None
    assert past.loading.get("load_failed") == (None if said else TAG)
    ledger.append(run.path, "looked_back", "", attempt=2, data={"of": 1, **past.loading})
    assert choice(run) == (TAG if said else "global_step40")


def flip(run: RunFolder, tag: str) -> None:
    """Flip one bit of a weight; flipped again, it is as it was."""
    shard = run.launch().checkpoint.directory / tag / "mp_rank_00_model_states.pt"
    content = bytearray(shard.read_bytes())
    content[content.index(b"data/0") + 80] ^= 1
    shard.write_bytes(content)


@pytest.fixture
def own(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("PRETRAINCTL_RUNS", str(run.path.parent))
    monkeypatch.setattr(RunFolder, "is_own", lambda _: True)
    return run


def test_what_was_read_and_found_damaged_is_not_resumed_from(own: RunFolder) -> None:
    flip(own, TAG)
    assert choice(own) == TAG, "the gate does not read the bytes"
    before = sorted(own.path.rglob("*.pt"))
    assert verify_checkpoints("a").corrupt == (TAG,)
    assert sorted(own.path.rglob("*.pt")) == before, "no file is moved"
    assert choice(own) == "global_step40"
    listed = {one.tag: one for one in list_checkpoints("a")}
    assert listed[TAG].status.value == "corrupt"
    assert listed[TAG].reason == "mp_rank_00_model_states.pt: data/0 not as written (CRC-32)"
    assert verify_checkpoints("a").corrupt == (TAG,)
    assert len(ledger.read_events(own.path)) == 1, "told once, however often it is read"


def test_a_mark_outlasts_gates_and_ends_with_the_files_that_it_is_of(own: RunFolder) -> None:
    start(own, 0, TAG)
    flip(own, TAG)
    flip(own, "global_step20")
    verify_checkpoints("a")
    start(own, 1, "global_step40")
    assert [one.status.value for one in list_checkpoints("a")] == ["corrupt", "complete", "corrupt"]
    flip(own, TAG)
    assert [one.status.value for one in list_checkpoints("a")] == ["corrupt", "complete", "complete"], "it was repaired"
    assert verify_checkpoints("a").corrupt == ("global_step20",)
    assert choice(own) == TAG


def test_a_tag_that_reads_well_after_all_loses_its_mark(own: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        wrong = replace(
            inventory(own.launch().checkpoint.directory, own.launch().checkpoint)[-1],
            status=CheckpointStatus.CORRUPT,
            reason="bytes",
        )
        patched.setattr(checkpoints, "verify", lambda _directory, one, _tell: wrong if one.tag == TAG else one)
        assert verify_checkpoints("a").corrupt == (TAG,)
    assert choice(own) == "global_step40"
    assert verify_checkpoints("a").corrupt == ()
    assert choice(own) == TAG


def test_a_tag_that_is_written_anew_while_it_is_read_gets_no_mark(
    own: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_directory: Path, one: Checkpoint, _tell: object) -> Checkpoint:
        flip(own, one.tag)
        return replace(one, status=CheckpointStatus.CORRUPT, reason="torn")

    monkeypatch.setattr(checkpoints, "verify", read)
    assert verify_checkpoints("a").corrupt == ()
    assert ledger.read_events(own.path) == []


def test_a_lone_tag_that_is_damaged_is_no_fresh_start(own: RunFolder) -> None:
    for step in (20, 40):
        shutil.rmtree(own.launch().checkpoint.directory / f"global_step{step}")
    flip(own, TAG)
    verify_checkpoints("a")
    with pytest.raises(CheckpointError, match=r"global_step60 was complete once\. .*not as written") as caught:
        choice(own)
    assert caught.value.exit_code == 8


def test_who_may_not_write_is_told_that_no_start_will_know(own: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(own, TAG)
    monkeypatch.setattr(RunFolder, "is_own", lambda _: False)
    (note,) = verify_checkpoints("a").notes
    assert "not recorded, so no start knows of it: the run belongs to u" in note
    monkeypatch.setattr(RunFolder, "is_own", lambda _: True)
    monkeypatch.setattr(ledger, "append", lambda *_, **__: Path("/proc/none").read_bytes())
    (note,) = verify_checkpoints("a").notes
    assert note.endswith("/proc/none: No such file or directory")
    assert verify_checkpoints("a").corrupt == (TAG,)


def test_the_command_reads_every_byte_where_asked(
    own: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(own, "global_step40")
    for options, status, code in (([], "complete", 0), (["--verify"], "corrupt", 8), ([], "corrupt", 0)):
        monkeypatch.setattr(sys, "argv", ["pretrainctl", "checkpoints", "a", "--json", *options])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == code
        listed = {entry["tag"]: entry for entry in json.loads(capsys.readouterr().out)}
        assert [listed[tag]["status"] for tag in ("global_step20", "global_step40", TAG)] == [
            *("complete", status, "complete")
        ]
    assert listed["global_step40"]["reason"] == "mp_rank_00_model_states.pt: data/0 not as written (CRC-32)"
    told: list[tuple[int, int]] = []
    verify_checkpoints("a", lambda *figures: told.append(figures))
    assert told
    assert all(0 < done <= total for done, total in told)
