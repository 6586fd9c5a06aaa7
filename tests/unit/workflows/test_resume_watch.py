"""The first steps after a resume, as the attempt sees them."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from pretrainctl.records import codec, contract
from pretrainctl.records.run import RunRecord
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows.attempt.resume_watch import ResumeWatch


class Seen:
    """An attempt that keeps what it is told."""

    number = 2

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    def event(self, kind: str, message: str, data: dict[str, Any]) -> None:
        self.events.append((kind, message, data))


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    codec.write(tmp_path / "run.json", RunRecord("a", "a-1", "a-1", "sandbox", 0.0, getpass.getuser(), {}, {}, {}))
    return Seen(RunFolder(tmp_path))


def write(seen: Seen, attempt: int, first: int, last: int, *, up: float = 0.0, lr: float = 1e-3, save: int = 0) -> Path:
    folder = contract.restart_dir(seen.run.path, attempt, 0)
    folder.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = [{"kind": "phase", "phase": "start", "step": 0, "time": 0.0}]
    for step in range(first, last + 1):
        loss = 3.0 - 0.001 * step + 0.01 * (step * 7919 % 11 - 5) / 5 + up
        lines.append({"kind": "step", "step": step, "loss": loss, "lr": lr, "tokens": 1, "seconds": 1.0, "time": 1.0})
        if step == save:
            lines.append({"kind": "saved", "tag": f"global_step{save}", "step": save, "seconds": 1.0, "time": 1.0})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def watch(seen: Seen, folder: Path, tag: str | None = "global_step80") -> ResumeWatch:
    clock = iter(range(0, 10000, 10))
    watch = ResumeWatch(seen, folder, tag, clock=lambda: float(next(clock)))  # type: ignore[arg-type]
    for _ in range(3):
        watch.tick()
    return watch


def test_a_resume_that_goes_on_says_nothing(seen: Seen) -> None:
    write(seen, 1, 1, 85, save=80)
    assert watch(seen, write(seen, 2, 81, 90)).from_scratch is None
    assert seen.events == []


def test_a_loss_that_jumps_is_an_alarm_with_its_figures(seen: Seen) -> None:
    write(seen, 1, 1, 80, save=80)
    watch(seen, write(seen, 2, 81, 90, up=0.7))
    ((kind, message, data),) = seen.events
    assert kind == "loss_jump"
    assert "jumped up" in message
    assert data["seen"] - data["expected"] == pytest.approx(0.7, abs=0.02)
    assert (data["restart"], data["first_step"]) == (0, 81)


def test_steps_done_twice_that_differ(seen: Seen) -> None:
    write(seen, 1, 1, 88, save=80)
    watch(seen, write(seen, 2, 81, 90, up=0.02))
    assert [kind for kind, _, _ in seen.events] == ["loss_jump"]
    assert "done twice" in seen.events[0][1]


def test_a_learning_rate_that_jumps(seen: Seen) -> None:
    write(seen, 1, 1, 80, save=80)
    watch(seen, write(seen, 2, 81, 90, lr=1e-6))
    assert [kind for kind, _, _ in seen.events] == ["lr_jump"]


def test_a_change_that_was_accepted_is_a_note(seen: Seen) -> None:
    write(seen, 1, 1, 80, save=80)
    folder = write(seen, 2, 81, 90, up=0.7, lr=5e-4)
    changes = [{"key": "training.optimizer.lr", "before": "0.001", "after": "0.0005", "alters": True}]
    ledger.append(seen.run.path, "lineage", "accepted", attempt=2, data={"changes": changes})
    watch(seen, folder)
    assert [kind for kind, _, _ in seen.events] == ["note", "note"]
    assert all("explained by training.optimizer.lr" in message for _, message, _ in seen.events)


def test_a_start_from_scratch_is_ended_before_it_saves(seen: Seen) -> None:
    write(seen, 1, 1, 85, save=80)
    found = watch(seen, write(seen, 2, 1, 1, up=8.0)).from_scratch
    assert found is not None
    assert found.failure_class == "config"
    assert "given global_step80, saved at step 80, and began anew at step 1" in found.message


def test_a_first_start_may_begin_at_step_1(seen: Seen) -> None:
    assert watch(seen, write(seen, 2, 1, 9), tag=None).from_scratch is None


def test_steps_that_are_counted_otherwise_are_not_judged(seen: Seen) -> None:
    write(seen, 1, 1, 85)  # it never said at which of its steps the tag was saved
    assert watch(seen, write(seen, 2, 1, 9)).from_scratch is None


def test_it_waits_for_enough_steps_and_looks_no_longer(seen: Seen) -> None:
    write(seen, 1, 1, 80, save=80)
    folder = write(seen, 2, 81, 82, up=0.7)
    looking = watch(seen, folder)
    assert seen.events == []
    write(seen, 2, 81, 85, up=0.7)
    looking.tick()
    looking.tick()
    assert len(seen.events) == 1


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (2, "began 79 steps back, at step 2"),
        (51, "began 30 steps back, at step 51"),
        (79, "began 2 steps back, at step 79"),
        (84, "began at step 84: the 3 steps between were never done"),
        (141, "began at step 141: the 60 steps between were never done"),
        (8001, "began at step 8001: the 7920 steps between were never done"),
    ],
)
def test_a_start_elsewhere_than_its_checkpoint_ends_is_ended(seen: Seen, first: int, said: str) -> None:
    write(seen, 1, 1, 85, save=80)
    found = watch(seen, write(seen, 2, first, first + 9)).from_scratch
    assert found is not None
    assert found.failure_class == "config"
    assert f"given global_step80, saved at step 80, and {said}" in found.message


@pytest.mark.parametrize("first", [80, 81, 82])
def test_a_step_that_is_counted_before_it_is_done_is_the_next_one(seen: Seen, first: int) -> None:
    write(seen, 1, 1, 85, save=80)
    assert watch(seen, write(seen, 2, first, first + 9)).from_scratch is None


@pytest.mark.parametrize(("first", "ended"), [(81, False), (90, False), (100, False), (150, True), (60, True)])
def test_a_program_that_reports_every_tenth_step(seen: Seen, first: int, ended: bool) -> None:
    for attempt, begin, end in ((1, 10, 85), (2, first, first + 60)):
        folder = write(seen, attempt, begin, end, save=80 if attempt == 1 else 0)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        kept = [line for line in lines if line["kind"] != "step" or (line["step"] - begin) % 10 == 0]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert (watch(seen, contract.restart_dir(seen.run.path, 2, 0)).from_scratch is not None) == ended


def test_a_tag_that_was_saved_twice_is_that_of_the_later_save(seen: Seen) -> None:
    """A program that always saves under one name."""
    for attempt, first, last in ((1, 1, 40), (2, 41, 85)):
        path = write(seen, attempt, first, last, save=last) / "metrics.jsonl"
        path.write_text(path.read_text().replace(f"global_step{last}", "latest"))
    assert watch(seen, write(seen, 3, 86, 95), tag="latest").from_scratch is None


def test_a_start_that_skipped_steps_does_not_let_the_next_one_skip_them(seen: Seen) -> None:
    write(seen, 1, 1, 60, save=60)
    write(seen, 2, 121, 121)
    assert watch(seen, write(seen, 3, 121, 130), tag="global_step60").from_scratch is not None


def test_what_it_has_saved_meanwhile_is_named(seen: Seen) -> None:
    write(seen, 1, 1, 85, save=80)
    found = watch(seen, write(seen, 2, 141, 150, save=145)).from_scratch
    assert found is not None
    assert found.message.endswith("was ended after it had saved global_step145, which is not to be used")
