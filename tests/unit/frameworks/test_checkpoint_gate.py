"""Which tag a start resumes from, and what is moved out of its way."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import BinaryIO

import pytest

from pretrainctl.errors import CheckpointError, UnreadableError
from pretrainctl.frameworks import checkpoint_gate, shard_record, zero_checkpoint
from pretrainctl.frameworks.checkpoint_gate import GateResult, check, gate
from pretrainctl.frameworks.zero_checkpoint import read_pointer, tags


def run_gate(tree, *, expected: bool = True, last_saved_step: int | None = None, **layout) -> GateResult:
    return gate(
        tree.directory,
        tree.layout(**layout),
        expected=expected,
        last_saved_step=last_saved_step,
        label="attempt-0002",
    )


def moved(result: GateResult) -> list[str]:
    return [checkpoint.tag for checkpoint, _ in result.quarantined]


# the pointer and the tags, tree by tree: `latest` names nothing, newer folders are shells


@pytest.fixture
def two(tree):
    tree.save(7000)
    tree.save(8000)
    return tree


def test_tree_a_latest_names_a_tag_that_is_not_there(two) -> None:
    two.point("global_step9000\n")
    result = run_gate(two)
    assert (result.resume_tag, result.resume_step) == ("global_step8000", 8000)
    assert result.pointer_rewritten
    assert read_pointer(two.directory) == "global_step8000"
    assert any("global_step9000" in note for note in result.notes)


def test_tree_b_latest_is_missing(two) -> None:
    assert run_gate(two).resume_tag == "global_step8000"
    assert read_pointer(two.directory) == "global_step8000"


def test_latest_is_a_folder(two) -> None:
    (two.directory / "latest").mkdir()
    (two.directory / "latest" / "kept").touch()
    result = run_gate(two)
    assert result.resume_tag == "global_step8000"
    assert read_pointer(two.directory) == "global_step8000"
    assert (two.directory / "quarantine" / "latest.attempt-0002" / "kept").exists()
    assert "was a folder" in result.notes[-1] + result.notes[-2]


def test_a_check_says_what_the_gate_would_and_changes_nothing(two) -> None:
    (two.directory / "global_step8500").mkdir()
    before = sorted(two.directory.rglob("*"))
    asked = {"expected": True, "last_saved_step": 8500}
    assert check(two.directory, two.layout(), **asked) == "global_step8000"
    for name in ("global_step7000", "global_step8000"):
        shutil.rmtree(two.directory / name)
    with pytest.raises(CheckpointError, match="a save at step 8500 was recorded"):
        check(two.directory, two.layout(), **asked)
    assert {path for path in before if path.exists()} == set(two.directory.rglob("*"))


def test_tree_c_the_newest_holds_empty_files(two) -> None:
    two.point("")
    shell = two.directory / "global_step8500"
    shell.mkdir()
    for name in ("mp_rank_00_model_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"):
        (shell / name).touch()
    result = run_gate(two)
    assert result.resume_tag == "global_step8000"
    ((checkpoint, path),) = result.quarantined
    assert checkpoint.reason == "3 of 4 optimizer shards missing: ranks 1-3"
    assert path == two.directory / "quarantine" / "global_step8500.attempt-0002"
    assert len(list(path.iterdir())) == 2


def test_tree_d_the_newest_by_number_is_an_empty_folder(two) -> None:
    two.point("global_step10000 ")
    (two.directory / "global_step10000").mkdir()
    result = run_gate(two)
    assert result.resume_tag == "global_step8000"
    assert moved(result) == ["global_step10000"]
    assert read_pointer(two.directory) == "global_step8000"


def test_tree_e_latest_names_the_older_of_two_complete_tags(two) -> None:
    two.point("global_step7000\n")
    result = run_gate(two)
    assert result.resume_tag == "global_step8000"
    assert result.notes == (
        "latest named the older global_step7000; the newest complete checkpoint global_step8000 is taken",
    )
    assert result.quarantined == ()


@pytest.mark.parametrize("expected", [True, False])
def test_tree_f_only_latest_is_left(tree, expected: bool) -> None:
    tree.point("global_step100")
    with pytest.raises(CheckpointError, match="no usable checkpoint") as error:
        run_gate(tree, expected=expected)
    assert not isinstance(error.value, UnreadableError)
    assert tree.listing() == {"latest": b"global_step100"}


# fresh starts, and those that must not be


def test_nothing_at_all_and_nothing_expected_is_a_fresh_start(tree) -> None:
    result = run_gate(tree, expected=False)
    assert result == GateResult(None, None, (), pointer_rewritten=False, notes=(), inventory=())
    tree.directory.rmdir()
    assert run_gate(tree, expected=False) == result


@pytest.mark.parametrize("there", ["nothing", "no directory", "other folders"])
def test_a_checkpoint_that_must_be_there_is_missed_rather_than_step_0_begun(tree, there: str) -> None:
    """The same folder is a normal fresh start or a failed resume: the run's record decides."""
    if there == "no directory":
        tree.directory.rmdir()
    elif there == "other folders":
        (tree.directory / "iter_0042000").mkdir()
    assert run_gate(tree, expected=False).resume_tag is None
    with pytest.raises(CheckpointError, match="a save at step 42000 was recorded") as error:
        run_gate(tree, last_saved_step=42000)
    assert "no tag at all" in str(error.value)
    assert "step 0" in error.value.hint


def test_all_tags_bad_where_one_is_expected(tree) -> None:
    tree.save(100, without={3})
    (tree.save(200) / "mp_rank_00_model_states.pt").write_bytes(b"")
    tree.point("global_step200")
    before = tree.listing()
    with pytest.raises(CheckpointError) as error:
        run_gate(tree, last_saved_step=100)
    assert "global_step200 is corrupt (mp_rank_00_model_states.pt: 0 bytes)" in str(error.value)
    assert "global_step100 is incomplete (1 of 4 optimizer shards missing" in str(error.value)
    assert tree.listing() == before, "nothing moves where a person has to look"


def test_a_first_save_cut_short_is_moved_and_the_run_starts_afresh(tree) -> None:
    """DeepSpeed's rank 0 lets `latest` name it before the other ranks have written."""
    tree.save(10, without={1, 2, 3})
    tree.point("global_step10")
    result = run_gate(tree, expected=False)
    assert result.resume_tag is None
    assert moved(result) == ["global_step10"]
    assert read_pointer(tree.directory) is None
    assert (tree.directory / "quarantine" / "latest.attempt-0002").read_text() == "global_step10"
    assert run_gate(tree, expected=False).quarantined == ()


def test_the_same_after_a_gate_that_died_half_way(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.save(10, without={1, 2, 3})
    tree.point("global_step10")

    def dies(*_: object) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_gate, "set_aside", dies)
        with pytest.raises(KeyboardInterrupt):
            run_gate(tree, expected=False)
    assert read_pointer(tree.directory) == "global_step10"
    assert run_gate(tree, expected=False).resume_tag is None
    assert read_pointer(tree.directory) is None


def test_a_complete_tag_is_used_even_where_none_was_recorded(tree) -> None:
    tree.save(10)
    assert run_gate(tree, expected=False).resume_tag == "global_step10"


# which one, and what moves


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut"])
def test_the_newest_complete_one_is_taken_at_every_stage(tree, stage: int, damage: str) -> None:
    tree.save(1, stage=stage)
    tree.save(2, stage=stage)
    victim = max(tree.save(3, stage=stage).iterdir())
    if damage == "missing":
        victim.unlink()
    else:
        victim.write_bytes(b"" if damage == "empty" else victim.read_bytes()[:-9])
    tree.point("global_step3")
    result = run_gate(tree, zero_stage=stage, last_saved_step=2)
    assert result.resume_tag == "global_step2"
    assert moved(result) == ["global_step3"]
    reason = result.quarantined[0][0].reason
    assert victim.name in reason or reason == "the directory holds no shard"
    assert tags(tree.directory) == ["global_step2", "global_step1"]


def test_older_incomplete_tags_are_moved_and_older_whole_ones_are_not_opened(
    tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.save(1)
    tree.save(2, without={1})
    tree.save(3)
    tree.save(4)
    opened = set()
    whole = zero_checkpoint.open_archive
    monkeypatch.setattr(zero_checkpoint, "open_archive", lambda path: opened.add(path.parent.name) or whole(path))
    result = run_gate(tree)
    assert result.resume_tag == "global_step4"
    assert moved(result) == ["global_step2"]
    assert "global_step1" not in opened
    assert [checkpoint.tag for checkpoint in result.inventory] == ["global_step2", "global_step4"]


def test_a_second_gate_changes_nothing(tree) -> None:
    tree.save(1)
    tree.save(2, without={1})
    run_gate(tree)
    before = tree.listing()
    result = run_gate(tree)
    assert (result.resume_tag, result.quarantined, result.pointer_rewritten) == ("global_step1", (), False)
    assert tree.listing() == before


@pytest.mark.parametrize("text", ["global_step1", "global_step1\n"])
def test_a_pointer_that_is_right_is_left_alone(tree, text: str) -> None:
    tree.save(1)
    tree.point(text)
    assert not run_gate(tree).pointer_rewritten
    assert (tree.directory / "latest").read_text() == text


def test_folders_that_are_no_tags_stay(tree) -> None:
    tree.save(1)
    (tree.directory / "global_step1_universal").mkdir()
    (tree.directory / "notes.txt").write_text("mine")
    run_gate(tree)
    assert (tree.directory / "global_step1_universal").is_dir()
    assert (tree.directory / "notes.txt").is_file()


def test_the_steps_that_are_lost_are_told(tree) -> None:
    tree.save(100)
    tree.save(150, without={0})
    assert any("50 steps are done again" in note for note in run_gate(tree, last_saved_step=150).notes)
    assert not any("again" in note for note in run_gate(tree, last_saved_step=100).notes)


def test_the_node_that_did_not_write_is_named(tree) -> None:
    """Eight of sixteen shards: fall back to the older complete tag."""
    tree.save(8000, ranks=16, bf16=False)
    tree.save(9000, ranks=16, bf16=False, without=range(8, 16))
    result = gate(
        tree.directory,
        tree.layout(precision="fp16", world_size=16),
        expected=True,
        last_saved_step=8000,
        label="attempt-0002",
        tasks_per_node=8,
    )
    assert result.resume_tag == "global_step8000"
    reason = result.quarantined[0][0].reason
    assert "8 of 16 optimizer shards missing: ranks 8-15" in reason
    assert "node 2 did not write" in reason


# another layout is refused, never moved


@pytest.mark.parametrize("model", [True, False], ids=["whole", "names only"])
def test_another_world_size_is_refused_with_both_numbers_and_the_way_out(tree, model: bool) -> None:
    tree.save(4000, ranks=32, bf16=False, model=model)
    tree.point("global_step4000")
    before = tree.listing()
    for expected in (True, False):
        with pytest.raises(CheckpointError, match="32 data-parallel ranks, the run has 128") as error:
            run_gate(tree, expected=expected, precision="fp32", world_size=128)
        assert "ds_to_universal --input_folder" in error.value.hint
    assert tree.listing() == before


def test_another_world_size_with_slices(tree) -> None:
    tree.save(4000, ranks=4, slices=4, bf16=False)
    with pytest.raises(CheckpointError, match=r"4 data-parallel ranks x 4 .* the run has 8 x 4"):
        run_gate(tree, precision="fp32", world_size=8, model_parallel=4)


def test_an_older_tag_is_not_taken_behind_one_of_another_world_size(tree) -> None:
    tree.save(1)
    tree.save(2, ranks=8)
    tree.save(3, without={0})
    before = tree.listing()
    with pytest.raises(CheckpointError, match="8 data-parallel ranks, the run has 4"):
        run_gate(tree)
    assert tree.listing() == before


def test_an_older_tag_of_another_world_size_stays_where_it_is(tree) -> None:
    tree.save(1, ranks=2)
    tree.save(2, ranks=8)
    tree.save(3)
    result = run_gate(tree)
    assert (result.resume_tag, result.quarantined) == ("global_step3", ())


# unknown is not "no checkpoints"


@pytest.mark.parametrize("expected", [True, False])
@pytest.mark.parametrize("number", [5, 116])
@pytest.mark.parametrize("name", ["checkpoints", "global_step2", "latest", "quarantine"])
def test_a_file_system_that_does_not_answer(
    tree, monkeypatch: pytest.MonkeyPatch, expected: bool, number: int, name: str
) -> None:
    if name == "quarantine":
        tree.point("global_step9")
    else:
        tree.save(1)
        tree.save(2)
        tree.point("global_step1")
    bad = tree.directory if name == "checkpoints" else tree.directory / name
    before = tree.listing()

    def failing(real):
        def call(path, *args, **kwargs):
            if not isinstance(path, int) and Path(path) == bad:
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for function in ("scandir", "listdir", "open"):
            patch.setattr(os, function, failing(getattr(os, function)))
        real_open = Path.open
        patch.setattr(Path, "open", failing(real_open))
        with pytest.raises(UnreadableError):
            run_gate(tree, expected=expected)
    assert tree.listing() == before


def test_a_missing_parent_is_unknown(tree) -> None:
    layout = tree.layout()
    with pytest.raises(UnreadableError):
        gate(tree.directory / "not mounted" / "checkpoints", layout, expected=False, last_saved_step=None, label="x")


def test_an_older_tag_that_cannot_be_read_is_a_note(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.save(1)
    tree.save(2)
    real = os.listdir

    def failing(path="."):
        if Path(path).name == "global_step1":
            raise OSError(5, "Input/output error", str(path))
        return real(path)

    monkeypatch.setattr(os, "listdir", failing)
    result = run_gate(tree)
    assert result.resume_tag == "global_step2"
    assert any("left alone" in note for note in result.notes)


# size of the work


def test_thousands_of_shards_are_judged_quickly(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """One listing a tag and two opens a shard at most, and the readers work side by side."""
    tree.save(1, ranks=512)
    tree.save(2, ranks=512)
    calls: list[str] = []
    real_open, real_listdir = os.open, os.listdir

    def counted_open(path, *args, **kwargs):
        calls.append("open")
        return real_open(path, *args, **kwargs)

    def counted_listdir(path="."):
        calls.append("listdir")
        return real_listdir(path)

    monkeypatch.setattr(os, "open", counted_open)
    monkeypatch.setattr(os, "listdir", counted_listdir)
    assert run_gate(tree, world_size=512).resume_tag == "global_step2"
    assert calls.count("open") <= 513 + 10
    assert calls.count("listdir") <= 4


@pytest.mark.parametrize("place", ["tag", "model", "optimizer", "state.json"])
def test_a_link_in_a_circle_does_not_pass_by_itself(two, place: str) -> None:
    names = {
        "tag": "",
        "model": "mp_rank_00_model_states.pt",
        "optimizer": "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt",
        "state.json": "state.json",
    }
    path = two.directory / "global_step8000" / names[place]
    if place == "tag":
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)
    (two.directory / "latest").symlink_to("latest")
    result = run_gate(two)
    assert (result.resume_tag, moved(result)) == ("global_step7000", ["global_step8000"])
    assert "a link that leads in a circle" in result.quarantined[0][0].reason
    assert read_pointer(two.directory) == "global_step7000"


def test_a_directory_that_is_a_link_in_a_circle_is_an_error_to_mend(two) -> None:
    shutil.rmtree(two.directory)
    two.directory.symlink_to(two.directory.name)
    with pytest.raises(CheckpointError, match="a link that leads in a circle") as caught:
        run_gate(two)
    assert not isinstance(caught.value, UnreadableError)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"step": 7000}', "it was written at step 7000"),
        ("NaN", "it is no record"),
        ('{"step": "8000"}', "it was written at step 8000"),
        ('{"step": true}', "it was written at step True"),
        ("\0" * 64, "it cannot be read"),
        ("[" * 100_000, "it cannot be read"),
    ],
)
def test_a_state_that_is_not_of_its_tag(two, text: str, reason: str) -> None:
    (two.directory / "global_step7000" / "state.json").write_text('{"step": 7000}')
    (two.directory / "global_step8000" / "state.json").write_text(text)
    result = run_gate(two)
    assert (result.resume_tag, moved(result)) == ("global_step7000", ["global_step8000"])
    assert result.quarantined[0][0].reason == f"state.json: {reason}"


def test_a_state_that_the_file_system_does_not_give_is_unknown(two, monkeypatch: pytest.MonkeyPatch) -> None:
    state = two.directory / "global_step8000" / "state.json"
    state.write_text('{"step": 8000}')
    read = shard_record.open_regular

    def refuse(path: Path) -> BinaryIO:
        if path == state:
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    monkeypatch.setattr(shard_record, "open_regular", refuse)
    before = two.listing()
    with pytest.raises(UnreadableError, match=r"state\.json cannot be read \(Input/output error\)"):
        run_gate(two)
    assert two.listing() == before
