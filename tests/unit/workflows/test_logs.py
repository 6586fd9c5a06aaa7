"""A log that is not there: what there is instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.errors import RunError
from pretrainctl.records import codec
from pretrainctl.records.run import RunRecord
from pretrainctl.workflows.logs import log_file


def test_a_log_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    codec.write(tmp_path / "run.json", RunRecord("a", "a", "a", "sandbox", 0.0, "u", {}, {}, {}))
    with pytest.raises(RunError, match="no training log yet"):
        log_file(str(tmp_path))
    for place in ("0001/restart-0", "0001/restart-1", "0003/restart-0"):
        folder = tmp_path / "attempts" / place
        folder.mkdir(parents=True)
        (folder / "training.log").touch()
    assert log_file(str(tmp_path), 1).parent.name == "restart-1"
    with pytest.raises(RunError, match="no such training log") as caught:
        log_file(str(tmp_path), 7)
    assert caught.value.hint == "there is: attempt 1 restart 0, attempt 1 restart 1, attempt 3 restart 0"
