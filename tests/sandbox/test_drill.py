"""The drill itself, on a Slurm of its own: two rows of its table, judged and shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(400)


def test_two_faults_and_nothing_left(tmp_path: Path) -> None:
    argv = ["drill", "--only", "rank-killed", "user-scancel", "--folder", str(tmp_path / "drill"), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "pretrainctl", *argv],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )
    assert done.returncode == 0, done.stderr
    killed, cancelled = json.loads(done.stdout)
    assert (killed["fault"], killed["verdict"], killed["resumed"]) == ("rank-killed", "pass", "11 after 10")
    assert 0 < killed["noticed"] < killed["again"] < 60
    assert (cancelled["verdict"], cancelled["failure_class"], cancelled["again"]) == ("pass", "user_cancel", None)
    assert "2 passed, 0 failed, 0 skipped" in done.stderr
    mark = str(tmp_path / "drill" / "sandbox").encode()
    left = [path for path in Path("/proc").glob("[0-9]*/environ") if mark in _read(path)]
    assert not left, "processes of its sandbox still run"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
