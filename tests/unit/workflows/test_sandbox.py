"""The sandbox's verbs where no Slurm is needed to see what they do."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.cli.sandbox import down
from pretrainctl.errors import MissingError
from pretrainctl.sandbox import Shape
from pretrainctl.sandbox.layout import Layout, Settings, save
from pretrainctl.workflows import demo, sandbox


def test_down_says_what_stays_and_purge_removes_only_a_sandbox(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "sandbox"
    layout = Layout.at(root)
    layout.make()
    save(layout, Settings(Shape(), 1, 2, 3))
    (root / "db" / "history").write_bytes(b"x" * 5000)
    left = sandbox.down(root, say=print)
    assert (left.root, left.processes) == (str(root), 0)
    assert left.bytes_left >= 5000
    down(root, purge=True)
    assert f"{root} is removed, " in capsys.readouterr().err
    assert not root.exists()
    other = tmp_path / "mine"
    other.mkdir()
    (other / "file").touch()
    down(other, purge=True)
    assert f"no sandbox was made in {other}" in capsys.readouterr().err
    assert (other / "file").exists()


def test_a_demo_without_its_training_environment_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(MissingError, match=r"torch is not in this environment") as caught:
        demo.demo(tmp_path / "demo", say=print, confirm=lambda _: True)
    assert "[demo]" in caught.value.hint
    assert not (tmp_path / "demo").exists()
