"""The tokenizer where the training environment is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_numpy_that_is_missing_is_a_line_and_a_hint(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError('no numpy here')\n")
    done = subprocess.run(
        [sys.executable, "-m", "pretrainctl.trainer.tokenize", "--help"],
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr == "error: numpy is needed, and not installed\nhint: pip install -e '.[trainer]'\n"
