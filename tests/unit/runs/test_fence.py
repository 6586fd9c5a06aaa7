"""An attempt that is no longer the newest takes nothing."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pretrainctl.errors import LedgerError, SupersededError
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import Fence
from pretrainctl.runs import requests
from pretrainctl.runs.fence import hold, raise_fence


def test_the_fence_goes_up_and_never_down(tmp_path: Path) -> None:
    contract.control_dir(tmp_path).mkdir()
    hold(tmp_path, 1)
    for attempt, restart in ((1, 0), (1, 1), (2, 0)):
        raise_fence(tmp_path, attempt, restart)
        hold(tmp_path, attempt)
    with pytest.raises(SupersededError, match="attempt 2 has the run"):
        raise_fence(tmp_path, 1, 2)
    with pytest.raises(SupersededError):
        hold(tmp_path, 1)
    assert codec.read(Fence, contract.fence_file(tmp_path)) == Fence(2, 0)


@pytest.mark.parametrize("text", ["", '{"attempt": 2', '{"attempt": 2}'])
def test_a_torn_fence_is_not_no_fence(tmp_path: Path, text: str) -> None:
    raise_fence(tmp_path, 1, 0)
    contract.attempt_dir(tmp_path, 2).mkdir(parents=True)
    contract.fence_file(tmp_path).write_text(text)
    with pytest.raises(LedgerError, match=r"fence\.json"):
        hold(tmp_path, 1)
    with pytest.raises(LedgerError):
        raise_fence(tmp_path, 1, 1)
    assert contract.fence_file(tmp_path).read_text() == text
    raise_fence(tmp_path, 2, 0)
    with pytest.raises(SupersededError):
        raise_fence(tmp_path, 1, 1)


def test_a_fence_that_the_file_system_does_not_give_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_fence(tmp_path, 2, 0)

    def fail(_path: Path) -> object:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(codec, "open_regular", fail)
        with pytest.raises(LedgerError, match="Input/output error"):
            hold(tmp_path, 1)
        with pytest.raises(LedgerError):
            raise_fence(tmp_path, 3, 0)
    assert codec.read(Fence, contract.fence_file(tmp_path)) == Fence(2, 0)


def test_a_control_folder_that_a_person_removed_is_made_again(tmp_path: Path) -> None:
    hold(tmp_path, 1)
    raise_fence(tmp_path, 1, 0)
    contract.fence_file(tmp_path).unlink()
    contract.control_dir(tmp_path).rmdir()
    assert requests.ask(tmp_path, "save", 1, "asked for").number == 1
    with pytest.raises(FileNotFoundError):
        raise_fence(tmp_path / "no run", 1, 0)
    assert not (tmp_path / "no run").exists()
