"""What a DeepSpeed checkpoint tag is worth, told from its files."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pretrainctl.errors import CheckpointError, UnreadableError
from pretrainctl.frameworks import zero_checkpoint
from pretrainctl.frameworks.quarantine import quarantine
from pretrainctl.frameworks.zero_checkpoint import (
    inventory,
    iter_checkpoints,
    read_pointer,
    tags,
    write_pointer,
)
from pretrainctl.frameworks.zero_shards import fold, parse_shard
from pretrainctl.records.run import Checkpoint, CheckpointStatus

COMPLETE, INCOMPLETE, CORRUPT = CheckpointStatus.COMPLETE, CheckpointStatus.INCOMPLETE, CheckpointStatus.CORRUPT


def only(tree, *, tasks_per_node: int | None = None, **layout) -> Checkpoint:
    (checkpoint,) = inventory(tree.directory, tree.layout(**layout), tasks_per_node=tasks_per_node)
    return checkpoint


# complete


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("slices", [1, 4])
def test_complete_at_every_stage(tree, stage: int, precision: str, slices: int) -> None:
    tag = tree.save(100, stage=stage, bf16=precision == "bf16", slices=slices)
    checkpoint = only(tree, zero_stage=stage, precision=precision, model_parallel=slices)
    assert (checkpoint.status, checkpoint.reason, checkpoint.other_layout) == (COMPLETE, "", "")
    assert (checkpoint.tag, checkpoint.step, checkpoint.world_size) == ("global_step100", 100, 4)
    assert checkpoint.size == sum(file.stat().st_size for file in tag.iterdir())


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_without_any_one_file_it_is_not_complete(tree, stage: int) -> None:
    tag = tree.save(100, stage=stage, slices=2)
    for file in sorted(tag.iterdir()):
        content = file.read_bytes()
        file.unlink()
        checkpoint = only(tree, zero_stage=stage, model_parallel=2)
        assert checkpoint.status is INCOMPLETE
        assert "1 of " in checkpoint.reason
        assert file.name in checkpoint.reason
        file.write_bytes(content)
    assert only(tree, zero_stage=stage, model_parallel=2).status is COMPLETE


def test_files_of_other_kinds_do_not_disturb(tree) -> None:
    tag = tree.save(100)
    (tag / "layer_00-model_00-model_states.pt").write_bytes(b"")
    (tag / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt.tmp").write_bytes(b"")
    (tag / "mp_rank_0_model_states.pt").write_bytes(b"")
    (tag / "offloaded_tensors").mkdir()
    (tag / "loop").symlink_to("loop")
    assert only(tree).status is COMPLETE


def test_steps_are_numbers(tree) -> None:
    for step in (9999, 10000, 8000, 0):
        tree.save(step)
    assert [checkpoint.step for checkpoint in inventory(tree.directory, tree.layout())] == [0, 8000, 9999, 10000]
    assert tags(tree.directory)[0] == "global_step10000"


def test_newest_first_and_only_as_far_as_asked(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (100, 200, 300):
        tree.save(step)
    opened = []
    whole = zero_checkpoint.open_archive
    monkeypatch.setattr(zero_checkpoint, "open_archive", lambda path: opened.append(path.parent.name) or whole(path))
    assert next(iter_checkpoints(tree.directory, tree.layout())).tag == "global_step300"
    assert opened.count("global_step300") >= 5
    assert "global_step100" not in opened


# missing shards


def test_ranks_of_a_node_that_did_not_write(tree) -> None:
    """Eight of sixteen shards on the listing of node 1: the folder is not shared."""
    tree.save(9000, ranks=16, bf16=False, without=range(8, 16))
    checkpoint = only(tree, precision="fp16", world_size=16, tasks_per_node=8)
    assert checkpoint.status is INCOMPLETE
    assert checkpoint.reason == (
        "8 of 16 optimizer shards missing: ranks 8-15; "
        "the directory is not on a shared file system, or node 2 did not write"
    )
    assert (checkpoint.world_size, checkpoint.other_layout) == (16, "")


@pytest.mark.parametrize(
    ("without", "nodes"),
    [
        ({9, 10}, None),
        ({4, 5, 6, 7}, "node 2 did"),
        ({4, 5, 6, 7, 9}, None),
        ({0, 1, 2, 3, 8, 9, 10, 11}, "nodes 1,3 did"),
        (set(range(16)), None),
    ],
)
def test_a_node_is_named_only_where_all_its_ranks_are_missing(tree, without, nodes) -> None:
    tree.save(9000, ranks=16, without=without)
    reason = only(tree, world_size=16, tasks_per_node=4).reason
    assert f"ranks {fold(without)}" in reason
    assert ("did not write" in reason) == (nodes is not None)
    assert nodes is None or nodes in reason


def test_ranks_are_in_the_order_of_numbers(tree) -> None:
    tree.save(9000, ranks=16, without={8, 9, 10, 2})
    assert "4 of 16 optimizer shards missing: ranks 2,8-10" in only(tree, world_size=16).reason


def test_missing_ranks_of_each_slice(tree) -> None:
    tag = tree.save(9000, slices=2)
    for name in ("0_mp_rank_01", "1_mp_rank_01", "3_mp_rank_00"):
        (tag / f"bf16_zero_pp_rank_{name}_optim_states.pt").unlink()
    reason = only(tree, model_parallel=2).reason
    assert reason == "3 of 8 optimizer shards missing: ranks 3 of slice 0, ranks 0-1 of slice 1"


def test_a_long_list_of_ranks_is_cut() -> None:
    assert fold(range(0, 100, 2)).endswith("22 and 38 more ranges")
    assert fold([3, 1, 2, 9]) == "1-3,9"


def test_an_empty_tag(tree) -> None:
    (tree.directory / "global_step10000").mkdir()
    assert only(tree).status is INCOMPLETE
    assert "no shard" in only(tree).reason


# damaged shards


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_every_shard_is_opened(tree, stage: int) -> None:
    tag = tree.save(100, stage=stage)
    for file in sorted(tag.iterdir()):
        content = file.read_bytes()
        for damaged in (b"", content[:-1], bytes(len(content)), content[:100]):
            file.write_bytes(damaged)
            checkpoint = only(tree, zero_stage=stage)
            assert checkpoint.status is CORRUPT
            assert checkpoint.reason.startswith(file.name)
        file.write_bytes(content)
    assert only(tree, zero_stage=stage).status is COMPLETE


def test_many_damaged_shards_are_counted(tree) -> None:
    tag = tree.save(100, ranks=40)
    for rank in range(10, 40):
        (tag / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").write_bytes(b"")
    reason = only(tree, world_size=40).reason
    assert reason == "bf16_zero_pp_rank_10_mp_rank_00_optim_states.pt: 0 bytes (and 29 more shards)"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_cut_anywhere_it_is_never_complete(tree, share: float) -> None:
    tag = tree.directory / "global_step100"
    if not tag.exists():
        tree.save(100)
    file = tag / "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt"
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    assert only(tree).status is CORRUPT
    file.write_bytes(content)


def test_a_shard_that_is_a_folder(tree) -> None:
    file = tree.save(100) / "mp_rank_00_model_states.pt"
    file.unlink()
    file.mkdir()
    assert only(tree).status is CORRUPT


def test_a_shard_that_is_a_link_to_nothing(tree) -> None:
    file = tree.save(100) / "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt"
    file.unlink()
    file.symlink_to("/nowhere/at/all")
    assert only(tree).status is CORRUPT


# sizes


def shard(numbers: int) -> bytes:
    buffer = io.BytesIO()
    torch.save({"fp32": torch.zeros(numbers)}, buffer)
    return buffer.getvalue()


def test_a_shard_far_smaller_than_its_siblings(tree) -> None:
    tag = tree.save(100)
    for rank in range(4):
        file = tag / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        file.write_bytes(shard(10 if rank == 1 else 500_000))
    checkpoint = only(tree)
    assert checkpoint.status is CORRUPT
    assert "rank_1_" in checkpoint.reason
    assert "its siblings have" in checkpoint.reason


def test_a_last_rank_whose_share_is_padding_is_healthy(tree) -> None:
    """Partitions differ by padding: small ones may do so by any factor."""
    tag = tree.save(100)
    for rank in range(4):
        file = tag / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        file.write_bytes(shard(0 if rank == 3 else 25_000))
    assert only(tree).status is COMPLETE


def test_one_rank_that_keeps_much_more_is_healthy(tree) -> None:
    tag = tree.save(100)
    (tag / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").write_bytes(shard(5_000_000))
    assert only(tree).status is COMPLETE


def test_a_model_file_far_smaller_than_in_the_older_checkpoint(tree) -> None:
    for step in (100, 200):
        tree.save(step)
    (tree.directory / "global_step100" / "mp_rank_00_model_states.pt").write_bytes(shard(1_000_000))
    older, newer = inventory(tree.directory, tree.layout())
    assert older.status is COMPLETE
    assert newer.status is CORRUPT
    assert "an older checkpoint has" in newer.reason


def test_a_torn_older_checkpoint_is_no_reference(tree) -> None:
    for step in (100, 200):
        tree.save(step)
    older = tree.directory / "global_step100" / "mp_rank_00_model_states.pt"
    older.write_bytes(shard(1_000_000)[:-1])
    assert [checkpoint.status for checkpoint in inventory(tree.directory, tree.layout())] == [CORRUPT, COMPLETE]


def test_another_world_size_is_no_reference(tree) -> None:
    tree.save(100, ranks=1)
    big = tree.directory / "global_step100" / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
    big.write_bytes(shard(1_000_000))
    tree.save(200, ranks=2)
    assert inventory(tree.directory, tree.layout(world_size=2))[1].status is COMPLETE


# another layout


@pytest.mark.parametrize("ranks", [32, 3, 5, 8])
def test_another_world_size_is_seen_in_the_model_file(tree, ranks: int) -> None:
    tree.save(4000, ranks=ranks)
    checkpoint = only(tree)
    assert checkpoint.status is COMPLETE
    assert checkpoint.world_size == ranks
    assert checkpoint.other_layout == f"saved by {ranks} data-parallel ranks, the run has 4"


@pytest.mark.parametrize(("ranks", "run"), [(32, 128), (128, 32), (1, 2)])
def test_another_world_size_is_seen_in_the_names_alone(tree, ranks: int, run: int) -> None:
    """A listing with optimizer shards only: highest rank + 1."""
    tree.save(4000, ranks=ranks, bf16=False, model=False)
    checkpoint = only(tree, precision="fp32", world_size=run, tasks_per_node=4)
    assert checkpoint.world_size == ranks
    assert checkpoint.other_layout == f"saved by {ranks} data-parallel ranks, the run has {run}"


def test_another_world_size_with_model_parallel_slices(tree) -> None:
    tree.save(4000, ranks=4, slices=4, bf16=False)
    checkpoint = only(tree, precision="fp32", world_size=8, model_parallel=4)
    assert checkpoint.status is COMPLETE
    assert checkpoint.other_layout == ("saved by 4 data-parallel ranks x 4 model-parallel slices, the run has 8 x 4")


def test_a_torn_save_is_never_taken_for_another_world_size(tree) -> None:
    """Whatever the ranks that wrote, rank 0 having written its model file first."""
    for count in range(5):
        tag = tree.save(count, without=range(count, 4))
        checkpoint = only(tree)
        assert checkpoint.other_layout == ""
        assert checkpoint.status is (COMPLETE if count == 4 else INCOMPLETE)
        model = tag / "mp_rank_00_model_states.pt"
        model.write_bytes(model.read_bytes()[:-5])
        if count < 4:
            assert only(tree).other_layout == ""
        shutil.rmtree(tag)


def test_a_torn_save_of_another_world_size_says_both(tree) -> None:
    tree.save(4000, ranks=8, without={7})
    checkpoint = only(tree)
    assert checkpoint.status is INCOMPLETE
    assert "saved by 8 data-parallel ranks, the run has 4" in checkpoint.reason
    assert "1 of 8 optimizer shards missing" in checkpoint.reason


def test_stage_0_does_not_depend_on_the_world_size(tree) -> None:
    tree.save(100, stage=0, ranks=8)
    checkpoint = only(tree, zero_stage=0)
    assert (checkpoint.status, checkpoint.other_layout, checkpoint.world_size) == (COMPLETE, "", 8)


@pytest.mark.parametrize(("saved", "run"), [(3, 1), (1, 3), (2, 0), (0, 3)])
def test_another_zero_stage(tree, saved: int, run: int) -> None:
    tree.save(100, stage=saved)
    checkpoint = only(tree, zero_stage=run)
    assert not (checkpoint.status is COMPLETE and not checkpoint.other_layout)
    assert f"ZeRO stage {'1 or 2' if saved in (1, 2) else saved}" in checkpoint.other_layout


def test_another_precision(tree) -> None:
    tree.save(100, bf16=False)
    assert only(tree).other_layout == "saved in fp32 or fp16, the run has bf16"


def test_leftovers_of_a_larger_run_do_not_hide_a_complete_tag(tree) -> None:
    tree.save(100, ranks=6, recorded=4)
    assert (only(tree).status, only(tree).other_layout) == (COMPLETE, "")


# junk, and what cannot be read


def test_entries_that_are_no_tags_are_left_out(tree) -> None:
    tree.save(100)
    for name in ("global_step0100", "global_step100_universal", "global_step", "tmp-global_step5", "x", "quarantine"):
        (tree.directory / name).mkdir()
    (tree.directory / "zero_to_fp32.py").write_text("")
    assert tags(tree.directory) == ["global_step100"]


def test_entries_named_like_tags(tree) -> None:
    (tree.directory / "global_step1").write_text("a file")
    (tree.directory / "global_step2").symlink_to("/nowhere/at/all")
    tree.save(3).rename(tree.directory / "elsewhere")
    (tree.directory / "global_step3").symlink_to("elsewhere")
    file, link, moved = inventory(tree.directory, tree.layout())
    assert (file.status, file.reason) == (CORRUPT, "not a directory")
    assert (link.status, link.reason) == (CORRUPT, "a link to /nowhere/at/all, where nothing is")
    assert moved.status is COMPLETE


def test_no_directory_yet(tree) -> None:
    layout = tree.layout()
    tree.directory.rmdir()
    assert inventory(tree.directory, layout) == []


@pytest.mark.parametrize("make", ["parent is missing", "dangling link", "file"])
def test_a_directory_that_cannot_be_known(tree, make: str) -> None:
    tree.directory.rmdir()
    directory = tree.directory
    if make == "parent is missing":
        directory = tree.directory / "below"
    elif make == "dangling link":
        directory.symlink_to("/nowhere/at/all")
    else:
        directory.write_text("")
    with pytest.raises(UnreadableError, match="unknown"):
        inventory(directory, tree.layout())


@pytest.mark.parametrize("number", [5, 13, 116])
@pytest.mark.parametrize("where", ["directory", "tag", "shard"])
def test_an_error_of_the_file_system_is_unknown(tree, monkeypatch: pytest.MonkeyPatch, number: int, where: str) -> None:
    """EIO, EACCES, ESTALE at every depth: neither complete nor incomplete."""
    tag = tree.save(100)
    bad = {
        "directory": tree.directory,
        "tag": tag,
        "shard": tag / "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt",
    }[where]

    def failing(real):
        def call(path, *args, **kwargs):
            if Path(path) == bad:
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *args, **kwargs)

        return call

    for name in ("scandir", "listdir", "open"):
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
    with pytest.raises(UnreadableError, match=f"{bad.name} cannot be read"):
        inventory(tree.directory, tree.layout())


def test_a_tag_that_goes_away_while_it_is_read(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (100, 200):
        tree.save(step)
    whole = zero_checkpoint.open_archive

    def vanishing(path: Path):
        if path.parent.name == "global_step200" and "optim" in path.name:
            shutil.rmtree(path.parent, ignore_errors=True)
        return whole(path)

    monkeypatch.setattr(zero_checkpoint, "open_archive", vanishing)
    assert [checkpoint.tag for checkpoint in inventory(tree.directory, tree.layout())] == ["global_step100"]


def test_a_shard_that_goes_away_while_it_is_read(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.save(100)
    whole = zero_checkpoint.open_archive

    def vanishing(path: Path):
        if "rank_3" in path.name:
            path.unlink(missing_ok=True)
        return whole(path)

    monkeypatch.setattr(zero_checkpoint, "open_archive", vanishing)
    assert only(tree).status is CORRUPT


def test_the_old_torch_format_is_an_error_that_says_what_to_set(tree) -> None:
    buffer = io.BytesIO()
    torch.save({"a": 1}, buffer, _use_new_zipfile_serialization=False)
    for file in tree.save(100).iterdir():
        file.write_bytes(buffer.getvalue())
    with pytest.raises(CheckpointError, match="cannot be told") as error:
        inventory(tree.directory, tree.layout())
    assert "checkpoint_serialization" in error.value.hint


# the pointer and quarantine


@pytest.mark.parametrize(
    ("content", "tag"),
    [
        ("global_step100", "global_step100"),
        ("global_step100\n", "global_step100"),
        ("  global_step100 \r\n", "global_step100"),
        ("\n\nglobal_step100", "global_step100"),
        ("", None),
        (" \n\t\n", None),
        ("\0" * 14, None),
        ("a name that is nowhere", "a name that is nowhere"),
    ],
)
def test_read_pointer(tree, content: str, tag: str | None) -> None:
    tree.point(content)
    assert read_pointer(tree.directory) == tag


def test_read_pointer_that_is_none(tree) -> None:
    assert read_pointer(tree.directory) is None
    (tree.directory / "latest").mkdir()
    assert read_pointer(tree.directory) is None
    assert read_pointer(tree.directory / "nowhere") is None


def test_write_pointer(tree) -> None:
    tree.point("old\n")
    write_pointer(tree.directory, "global_step100")
    assert (tree.directory / "latest").read_text() == "global_step100"
    assert [path.name for path in tree.directory.iterdir()] == ["latest"]


def test_write_pointer_where_nothing_can_be_written(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.point("old")

    def full(handle: int) -> None:
        raise OSError(122, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="Disk quota exceeded"):
        write_pointer(tree.directory, "global_step100")
    assert tree.listing() == {"latest": b"old"}


def test_quarantine_deletes_and_overwrites_nothing(tree) -> None:
    paths = []
    for number in range(3):
        tag = tree.save(100, without={number})
        content = {file.name: file.read_bytes() for file in tag.iterdir()}
        path = quarantine(tree.directory, only(tree), "attempt-0002")
        assert {file.name: file.read_bytes() for file in path.iterdir()} == content
        paths.append(path.name)
    assert paths == [f"global_step100.attempt-0002{end}" for end in ("", ".2", ".3")]
    assert tags(tree.directory) == []
    assert sorted(path.name for path in (tree.directory / "quarantine").iterdir()) == sorted(paths)


def test_quarantine_does_not_replace_an_empty_folder(tree) -> None:
    (tree.directory / "quarantine" / "global_step100.x").mkdir(parents=True)
    tree.save(100, without={0})
    assert quarantine(tree.directory, only(tree), "x").name == "global_step100.x.2"


@pytest.mark.parametrize("kind", ["file", "dangling link", "circle", "fifo", "other file system"])
def test_another_folder_takes_the_place_of_a_quarantine_that_is_none(tree, kind: str) -> None:
    tag = tree.save(100, without={0})
    place = tree.directory / "quarantine"
    if kind == "file":
        place.write_text("in the way")
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to({"dangling link": "/scratch/purged", "circle": place}.get(kind, "/dev/shm"))
    path = quarantine(tree.directory, only(tree), "x")
    assert (path, tag.exists()) == (tree.directory / "quarantine.1" / "global_step100.x", False)
    assert place.is_symlink() or place.exists()
    tree.save(200, without={0})
    assert quarantine(tree.directory, only(tree), "x").parent.name == "quarantine.1"


def test_a_tag_that_cannot_be_moved_stays_and_no_folder_is_left(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.save(100, without={0})
    before = tree.listing()
    checkpoint = only(tree)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(PermissionError):
        quarantine(tree.directory, checkpoint, "x")
    assert tree.listing() == before


@pytest.mark.parametrize(
    "name",
    [
        "mp_rank_00_model_states.pt",
        "zero_pp_rank_10_mp_rank_03_optim_states.pt",
        "bf16_zero_pp_rank_0_mp_rank_100_optim_states.pt",
    ],
)
def test_names_both_ways(name: str) -> None:
    found = parse_shard(name)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("name", ["mp_rank_0_model_states.pt", "zero_pp_rank_01_mp_rank_00_optim_states.pt", "latest"])
def test_names_of_no_shard(name: str) -> None:
    assert parse_shard(name) is None
