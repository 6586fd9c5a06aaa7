"""When a lookout tells of a loss, by a clock of its own; and that it starts the witness with how."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pretrainctl.liveness import beat
from pretrainctl.liveness.beat import Silence
from pretrainctl.liveness.lookout import Lookout


class World:
    """A lookout that looks each second; asks take no time, or two seconds where nobody answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.how: Silence | None = None
        self.busy = False
        self.lost: list[tuple[float, str]] = []
        monkeypatch.setattr(beat.time, "monotonic", lambda: self.now)
        self.lookout = Lookout(self.ask, 1.0, 4.0, on_lost=self.on_lost, busy=lambda: self.busy)

    def ask(self) -> Silence | None:
        self.now += 2.0 if self.how == "silent" else 0.0
        return self.how

    def on_lost(self, how: Silence) -> None:
        self.lost.append((self.now, how))

    def pass_by(self, seconds: float, how: Silence | None) -> None:
        self.how = how
        end = self.now + seconds
        while self.now < end:
            before = self.now
            self.lookout.look()
            self.now = max(self.now, before + 1.0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_who_answers_is_not_lost(world: World) -> None:
    for _ in range(3):
        world.pass_by(60, None)
        world.pass_by(2, "closed")
        world.pass_by(1, None)
        world.pass_by(4, "silent")
    assert world.lost == []


@pytest.mark.parametrize(("how", "soonest", "latest"), [("closed", 3.0, 5.0), ("silent", 6.0, 8.0)])
def test_a_loss_is_told_once_and_again_while_it_lasts_unless_somebody_is_at_work(
    world: World, how: Silence, soonest: float, latest: float
) -> None:
    world.pass_by(10, None)
    world.pass_by(15, how)
    ((moment, told),) = world.lost
    assert told == how
    assert soonest < moment - 9 <= latest
    world.pass_by(30, how)
    assert len(world.lost) == 2
    world.busy = True
    world.pass_by(60, how)
    assert len(world.lost) == 2
    world.pass_by(1, None)
    world.busy = False
    world.pass_by(10, how)
    assert len(world.lost) == 3, "a new loss"


def test_a_lookout_that_was_stopped_itself_begins_anew(world: World) -> None:
    world.pass_by(10, None)
    world.now += 600
    world.pass_by(3, "closed")
    assert world.lost == []


def test_the_witness_is_started_with_how_the_attempt_was_lost(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    witness = ("bash", "-c", f'echo "$1" >{tmp_path}/told.new; mv {tmp_path}/told.new {tmp_path}/told', "witness")
    lookout = subprocess.Popen(
        [sys.executable, "-m", "pretrainctl.liveness.lookout", "127.0.0.1", port, "0.05", "0.4", *witness]
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            lookout.wait(6)
        assert (tmp_path / "told").read_text() == "closed\n"
    finally:
        lookout.kill()
        lookout.wait()
