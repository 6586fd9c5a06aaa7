"""The folder of a run whose third attempt is in its second start, as rank 0 sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.records.contract import (
    ATTEMPT_VARIABLE,
    RESTART_VARIABLE,
    RUN_DIR_VARIABLE,
)


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setenv(ATTEMPT_VARIABLE, "3")
    monkeypatch.setenv(RESTART_VARIABLE, "1")
    monkeypatch.setenv("RANK", "0")
    return tmp_path
