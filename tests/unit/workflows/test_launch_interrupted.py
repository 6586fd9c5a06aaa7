"""A launch that ends in any moment leaves no run that goes on by itself: nothing at all, or a stopped run."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pretrainctl.errors import SlurmError
from pretrainctl.records import codec
from pretrainctl.records.launch import Bundle
from pretrainctl.records.run import RunRecord
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.state import fold
from pretrainctl.slurm.parse import Submission
from pretrainctl.workflows import interrupted
from pretrainctl.workflows import launch as launching

STEPS = {module.__file__ for module in (launching, folder, ledger, codec, interrupted)}
"""Files in which each line is a moment."""
WRITERS = {"create", "write", "_write_durably"}
"""Of the codec."""


class Queue:
    """Stands where the Slurm client stands, and refuses the job where it is told to."""

    def __init__(self) -> None:
        self.refuses = False
        self.jobs: list[int] = []

    def cluster_name(self) -> str:
        return "test"

    def submit(self, *_: object, **__: object) -> Submission:
        if self.refuses:
            raise SlurmError("Slurm refused the job: no", status=1)
        self.jobs.append(len(self.jobs) + 1)
        return Submission(self.jobs[-1])


class Interrupt:
    """Ctrl-C at the n-th line that runs after the folder is begun; `done` where there were no more."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.begun = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Interrupt | None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file not in STEPS or (file == codec.__file__ and name not in WRITERS):
            return None
        self.begun = self.begun or (file == folder.__file__ and name == "create")
        if self.begun and event == "line":
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return self

    @property
    def done(self) -> bool:
        return self.left >= 0


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue()
    monkeypatch.chdir(tmp_path)
    settings = [f"checkpoint.directory={tmp_path / 'ckpt'}"]
    plan = launching.plan_warned("quickstart", "sandbox", set_values=settings, name="first")
    rendered = launching.render_bundle(plan, tmp_path / "runs" / "first")
    monkeypatch.setattr(launching, "plan_warned", lambda *_, **__: plan)
    monkeypatch.setattr(launching, "render_bundle", lambda *_, **__: rendered)
    monkeypatch.setattr(launching, "refuse_missing_data", lambda _: None)
    monkeypatch.setattr(launching.snapshot, "take_snapshot", lambda _: {"commit": "x"})
    monkeypatch.setattr(launching, "_slurm_for", lambda _plan: ("", made))
    monkeypatch.setattr(codec.os, "fsync", lambda _: None)
    return made


def launch() -> None:
    launching.launch("quickstart", "sandbox", set_values=[], name="first", confirm=lambda *_: True)


def interrupted_after(lines: int, call: Callable[[], None]) -> bool:
    """Whether the call was interrupted."""
    interrupt = Interrupt(lines)
    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        call()
    except (KeyboardInterrupt, SlurmError):
        pass
    finally:
        sys.settrace(before)
    return not interrupt.done


def clear(root: Path) -> None:
    for name in ("runs", "ckpt"):
        if (root / name).exists():
            shutil.rmtree(root / name)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file that was just opened
@pytest.mark.parametrize("refuses", [False, True])
def test_a_launch_that_is_interrupted_at_any_line_leaves_nothing_or_a_stopped_run(
    tmp_path: Path, queue: Queue, refuses: bool
) -> None:
    queue.refuses = refuses
    stopped = nothing = 0
    for lines in range(5_000):
        clear(tmp_path)
        if not interrupted_after(lines, launch):
            break
        path = tmp_path / "runs" / "first"
        if not path.exists():
            nothing += 1
            continue
        (run,) = folder.all_runs()[0]
        assert fold(ledger.read_events(run.path)).stopped is not None, f"it goes on after {lines} lines"
        stopped += 1
    else:
        pytest.fail("the launch never came to its end")
    assert stopped > 20
    assert nothing > 20
    assert (tmp_path / "runs" / "first").exists() is not refuses


def test_a_launch_that_was_not_interrupted_is_a_run_that_goes_on(tmp_path: Path, queue: Queue) -> None:
    launch()
    state = fold(ledger.read_events(tmp_path / "runs" / "first"))
    assert (state.stopped, state.jobs) == (None, (1,))


def test_a_folder_that_a_killed_launch_left_is_a_stopped_run_until_a_resume(tmp_path: Path) -> None:
    record = RunRecord("first", "first-1", "first-1", "sandbox", 0.0, "u", {}, {}, {})
    run = folder.create(tmp_path / "runs" / "first", record, Bundle({"launch.json": "{}\n"}))
    assert fold(ledger.read_events(run.path)).stopped == "the run folder was made, and nothing was submitted"
    ledger.append(run.path, "resume_requested", "resume asked for")
    assert fold(ledger.read_events(run.path)).stopped is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_does_not_keep_the_stop_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    append = ledger.append

    def interrupted_again(*arguments: Any) -> None:
        os.kill(os.getpid(), number)
        append(*arguments)

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    monkeypatch.setattr(ledger, "append", interrupted_again)
    before = signal.signal(number, leave)
    try:
        interrupted.record_stop(tmp_path, "the launch was interrupted")
        assert signal.getsignal(number) is leave
    finally:
        signal.signal(number, before)
    assert [event.kind for event in ledger.read_events(tmp_path)] == ["stopped"]
