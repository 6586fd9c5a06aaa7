"""The sandbox's verbs where no Slurm is needed to see what they do."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pretrainctl.cli.sandbox import down
from pretrainctl.errors import InputError, MissingError
from pretrainctl.sandbox import Shape
from pretrainctl.sandbox.layout import Layout, Settings, save
from pretrainctl.workflows import demo, sandbox
from pretrainctl.workflows.drill import run as drill


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


ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Doomed:
    """A sandbox that is taken down while more signals come."""

    downs = 0

    def __init__(self, root: Path, **_: object) -> None:
        self.root = root

    def environment(self) -> dict[str, str]:
        return {}

    def down(self) -> int:
        for number in ENDINGS:
            os.kill(os.getpid(), number)
        Doomed.downs += 1
        return 1


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is done when the first signal comes; the handlers are those of the command."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    def end(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("the signal was not heard")

    before = {number: signal.signal(number, leave) for number in ENDINGS}
    monkeypatch.setattr(Doomed, "downs", 0)
    monkeypatch.setattr(sandbox, "up", end)
    monkeypatch.setattr(demo, "Sandbox", Doomed)
    monkeypatch.setattr(drill, "Sandbox", Doomed)
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda _name: object())
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("ending")
def test_more_signals_do_not_leave_a_sandbox_half_taken_down(tmp_path: Path) -> None:
    desk = drill.Desk(row=print, say=print, confirm=lambda _: True)
    with pytest.raises(SystemExit) as caught:
        drill.drill([], tmp_path / "drill", cluster=None, desk=desk)
    assert (caught.value.code, Doomed.downs) == (128 + signal.SIGTERM, 1)
    with pytest.raises(SystemExit) as caught:
        demo.demo(tmp_path / "demo", say=print, confirm=lambda _: True)
    assert (caught.value.code, Doomed.downs) == (128 + signal.SIGTERM, 2)
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), signal.SIGHUP)  # afterwards they are heard again


def test_the_folder_of_a_sandbox_that_runs_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "drill" / "sandbox").mkdir(parents=True)
    monkeypatch.setattr(sandbox.Sandbox, "lives", lambda _self: True)
    assert not sandbox.discard(tmp_path / "drill", tmp_path / "drill" / "sandbox", say=print)
    assert f"PRETRAINCTL_SANDBOX={tmp_path}/drill/sandbox pretrainctl sandbox down" in capsys.readouterr().out
    assert (tmp_path / "drill" / "sandbox").is_dir()
    monkeypatch.undo()
    assert sandbox.discard(tmp_path / "drill", tmp_path / "drill" / "sandbox", say=print)
    assert not (tmp_path / "drill").exists()


@pytest.mark.parametrize("place", ["/dev/null", "/proc/x"])
def test_a_place_where_nothing_can_be_made_is_refused(place: str) -> None:
    with pytest.raises(InputError, match=f"{place} is no folder to work in") as caught:
        sandbox.prepare(Path(place))
    assert "--folder" in caught.value.hint
