from __future__ import annotations

import pytest

from pretrainctl.errors import LedgerError
from pretrainctl.records import codec
from pretrainctl.records.contract import (
    RUN_DIR_VARIABLE,
    End,
    Fence,
    control_dir,
    fence_file,
    restart_dir,
)
from pretrainctl.telemetry import is_fenced, read_fence, write_end

END = End("checkpointed", 7, 3584, "global_step7", "stop", 1.5)


@pytest.fixture
def run_dir(run_dir):
    control_dir(run_dir).mkdir()
    restart_dir(run_dir, 3, 1).mkdir(parents=True)
    return run_dir


def test_rank_0_writes_the_end(run_dir, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    write_end(END)
    assert list(restart_dir(run_dir, 3, 1).iterdir()) == []
    monkeypatch.setenv("RANK", "0")
    write_end(END)
    assert codec.read(End, restart_dir(run_dir, 3, 1) / "end.json") == END


def test_outside_a_run_nothing_is_written(run_dir, monkeypatch):
    monkeypatch.delenv(RUN_DIR_VARIABLE)
    write_end(END)
    assert list(restart_dir(run_dir, 3, 1).iterdir()) == []
    assert read_fence() is None
    assert not is_fenced()


@pytest.mark.parametrize(
    ("owner", "fenced"),
    [((2, 9), False), ((3, 0), False), ((3, 1), False), ((3, 2), True), ((4, 0), True), ((10, 0), True)],
)
def test_a_newer_owner_fences(run_dir, owner, fenced):
    codec.write(fence_file(run_dir), Fence(*owner))
    assert is_fenced() is fenced


def test_without_a_fence_nobody_is_fenced(run_dir):
    assert read_fence() is None
    assert not is_fenced()


def test_a_fence_that_cannot_be_read_is_an_error(run_dir):
    fence_file(run_dir).write_text("")
    with pytest.raises(LedgerError, match=r"fence\.json"):
        is_fenced()
