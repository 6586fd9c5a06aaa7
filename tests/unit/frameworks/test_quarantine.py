"""A gate that cannot move what is in the way: the run goes on from what is whole."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pretrainctl.errors import CheckpointError, UnreadableError
from pretrainctl.frameworks import zero_checkpoint
from pretrainctl.frameworks.checkpoint_gate import GateResult, gate
from pretrainctl.frameworks.quarantine import quarantined
from pretrainctl.frameworks.zero_checkpoint import read_pointer


def run_gate(tree, *, trainer: bool = True, expected: bool = True, **more) -> GateResult:
    layout = tree.layout(trainer_state=trainer)
    return gate(tree.directory, layout, expected=expected, last_saved_step=None, label="attempt-0002", **more)


@pytest.fixture
def torn(tree):
    """Two whole tags of the reference trainer, and a newer one that is torn, which `latest` names."""
    for step in (7000, 8000):
        (tree.save(step) / "state.json").write_text(f'{{"step": {step}}}')
    tree.save(9000, without={1})
    tree.point("global_step9000")
    return tree


def fill(patch: pytest.MonkeyPatch) -> None:
    """From now on nothing new can be made: no inode is left, or the quota is used up."""
    opened = Path.open

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    def open_to_read(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        return refuse() if "w" in mode else opened(path, mode, *rest, **more)

    patch.setattr(Path, "mkdir", refuse)
    patch.setattr(Path, "open", open_to_read)


def test_the_older_tag_is_taken_where_the_torn_one_cannot_be_moved(torn, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torn.listing()
    with monkeypatch.context() as patch:
        fill(patch)
        result = run_gate(torn)
    assert (result.resume_tag, result.resume_step) == ("global_step8000", 8000)
    assert [one.tag for one in result.left] == ["global_step9000"]
    assert (result.quarantined, result.pointer_rewritten) == ((), False)
    said = " ".join(result.notes)
    assert "global_step9000 is incomplete" in said
    assert "cannot be moved (Disk quota exceeded) and is left" in said
    assert "latest cannot be written: Disk quota exceeded; the program is told the tag" in said
    assert torn.listing() == before
    again = run_gate(torn)
    assert ([one.tag for one, _ in again.quarantined], again.left) == (["global_step9000"], ())
    assert read_pointer(torn.directory) == "global_step8000"


def test_a_program_of_ones_own_may_read_the_pointer_so_it_is_waited_for(torn, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        fill(patch)
        with pytest.raises(UnreadableError, match="latest cannot be written: Disk quota exceeded"):
            run_gate(torn, trainer=False)
    assert run_gate(torn, trainer=False).resume_tag == "global_step8000"


def test_a_pointer_that_must_not_be_written_is_nothing_to_wait_for(torn, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(zero_checkpoint.Path, "replace", refuse)
    with pytest.raises(CheckpointError, match="latest cannot be written: Permission denied") as caught:
        run_gate(torn)
    assert not isinstance(caught.value, UnreadableError)


@pytest.mark.parametrize("trainer", [True, False])
def test_a_first_save_that_was_torn_and_cannot_be_moved(tree, trainer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.save(100, without={1})
    tree.point("global_step100")
    fill(monkeypatch)
    if trainer:
        result = run_gate(tree, expected=False)
        assert (result.resume_tag, [one.tag for one in result.left]) == (None, ["global_step100"])
        assert "the program starts anew" in result.notes[-1]
    else:
        with pytest.raises(OSError, match="Disk quota exceeded"):
            run_gate(tree, trainer=False, expected=False)


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_a_pointer_that_is_no_file(torn, kind: str) -> None:
    pointer = torn.directory / "latest"
    pointer.unlink()
    make = {"fifo": os.mkfifo, "folder": os.mkdir, "device": lambda path: path.symlink_to("/dev/zero")}
    make[kind](pointer)
    result = run_gate(torn)
    assert result.resume_tag == read_pointer(torn.directory) == "global_step8000"
    assert os.path.lexists(torn.directory / "quarantine" / "latest.attempt-0002")


def test_what_lies_in_a_second_quarantine_is_accounted_for(torn) -> None:
    (torn.directory / "quarantine").write_text("in the way")
    for step in (7000, 8000):
        shutil.rmtree(torn.directory / f"global_step{step}")
    assert run_gate(torn, expected=False).quarantined[0][1].parent.name == "quarantine.1"
    torn.point("global_step9000")
    result = run_gate(torn, expected=False)
    assert result.resume_tag is None
    assert "names" not in " ".join(result.notes)
    assert sorted(quarantined(torn.directory)) == [
        "global_step9000.attempt-0002",
        "latest.attempt-0002",
        "latest.attempt-0002.2",
    ]
