"""An attempt that is no longer the newest takes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.errors import SupersededError
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import Fence
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
