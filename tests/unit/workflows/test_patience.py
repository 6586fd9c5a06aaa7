"""What may come back is waited for, in bounds, and not past a signal."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from pretrainctl.errors import InputError, LedgerError, SlurmError, UnreadableError
from pretrainctl.workflows.attempt.patience import Patience
from pretrainctl.workflows.attempt.signals import Signals


class Clock:
    """Time passes only in pauses."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def idle(self, seconds: float) -> None:
        self.now += seconds


def failing(times: int, error: Exception, clock: Clock | None = None) -> tuple[Callable[[], str], list[float]]:
    """An action that fails so often, and when it was tried."""
    tried: list[float] = []

    def action() -> str:
        tried.append(clock() if clock else 0.0)
        if len(tried) <= times:
            raise error
        return "there"

    return action, tried


def patience(clock: Clock, signals: Signals | None = None, limit: float = 900.0) -> Patience:
    return Patience(signals or Signals(), limit=limit, idle=clock.idle, clock=clock)


@pytest.mark.parametrize(
    "error", [OSError(30, "read-only"), SlurmError("away"), UnreadableError("x"), LedgerError("x")]
)
def test_it_waits_with_growing_pauses_and_says_for_what(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    action, tried = failing(7, error, clock)
    assert patience(clock).until("the folder", action) == "there"
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert f"waiting for the folder, 900 s at most: {error}" in capsys.readouterr().err


def test_it_gives_up_at_the_limit_with_the_last_error() -> None:
    clock = Clock()
    action, tried = failing(1000, OSError(5, "gone"), clock)
    with pytest.raises(OSError, match="gone"):
        patience(clock, limit=100).until("the folder", action)
    assert clock.now == tried[-1] == 100


@pytest.mark.parametrize("flag", ["terminated", "time_limit_near"])
def test_a_signal_ends_the_wait(flag: str) -> None:
    clock, signals = Clock(), Signals()
    action, _ = failing(1000, OSError("gone"))

    def idle(seconds: float) -> None:
        clock.idle(seconds)
        if clock.now >= 20:
            setattr(signals, flag, True)

    wait = Patience(signals, idle=idle, clock=clock)
    with pytest.raises(OSError, match="gone"):
        wait.until("the folder", action)
    assert clock.now == 20
    assert wait.over
    assert not wait.pause(60)
    assert clock.now == 20


def test_what_does_not_pass_is_not_waited_for() -> None:
    clock = Clock()
    action, tried = failing(1, InputError("no"), clock)
    with pytest.raises(InputError):
        patience(clock).until("the folder", action)
    assert len(tried) == 1


def test_a_pause_is_whole_where_nothing_happens() -> None:
    clock = Clock()
    assert patience(clock).pause(7.25)
    assert clock.now == 7.25
