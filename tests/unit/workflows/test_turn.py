"""Who may queue jobs of a run, where several want to at once: exactly one, and never nobody for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pretrainctl.records.run import Event, EventKind
from pretrainctl.runs import ledger
from pretrainctl.workflows import reconcile
from pretrainctl.workflows.reconcile import reconcile as look
from pretrainctl.workflows.turn import find_holder, give_turn, take_turn
from tests.unit.workflows.test_lost_jobs import Cluster, begin, path, prequeued, slurm

__all__ = ["path", "slurm"]


def story(*told: tuple[EventKind, float], **data: object) -> list[Event]:
    return [
        Event(kind, 0, number, when, "host", kind, data=data if kind == "submitted" else {})
        for number, (kind, when) in enumerate(told, start=1)
    ]


@pytest.mark.parametrize(
    ("events", "holder"),
    [
        (story(("submitting", 0.0)), 1),
        (story(("submitting", 0.0), ("submitting", 1.0), ("submitting", 2.0)), 1),
        (story(("resume_requested", 0.0), ("change_accepted", 0.5), ("submitting", 1.0)), 1),
        (story(("submitting", 0.0), ("submitted", 1.0)), None),
        (story(("submitting", 0.0), ("submitted", 1.0), left=1), 1),
        (story(("submitting", 0.0), ("submitted", 1.0), found=True), 1),
        (story(("submitting", 0.0), ("submitted", 1.0), ("submitting", 2.0)), 3),
        (story(("submitting", 0.0), ("note", 1.0)), None),
        (story(("resume_requested", 0.0), ("stopped", 1.0)), None),
        (story(("submitting", 0.0), *[("submitting", 60.0 * n) for n in range(1, 7)]), 6),
        (story(("submitting", 9000.0), ("submitting", 0.0)), 2),
    ],
)
def test_the_first_has_the_turn_until_it_is_done_or_too_late(events: Sequence[Event], holder: int | None) -> None:
    found = find_holder(events)
    assert (found.sequence if found is not None else None) == holder


def test_a_turn_that_nobody_ended_is_over_after_a_while(tmp_path: Path) -> None:
    assert take_turn(tmp_path, "first") is None
    (event,) = ledger.read_events(tmp_path, 0)
    assert find_holder([event], now=event.time + 299.0) == event
    assert find_holder([event], now=event.time + 301.0) is None
    other = take_turn(tmp_path, "second")
    assert other is not None
    assert (other.message, len(ledger.read_events(tmp_path, 0))) == ("first", 1)
    give_turn(tmp_path, "gave up")
    assert take_turn(tmp_path, "second") is None


@pytest.mark.parametrize("chain", ["inside", "prequeued"])
def test_looks_at_once_queue_what_one_would(
    path: Path, slurm: Cluster, chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chain == "prequeued":
        prequeued(path)
    slurm.says(7, "PREEMPTED", "node01", "node02")
    all_asked = threading.Barrier(6)
    real, counting = slurm.submit, threading.Lock()

    def submit(*args: object, **more: object) -> object:
        with counting:
            time.sleep(0.05)
            return real(*args, **more)  # type: ignore[arg-type]

    def look_back(*_: object) -> None:
        all_asked.wait(10.0)

    monkeypatch.setattr(slurm, "submit", submit)
    monkeypatch.setattr(reconcile, "look_back", look_back)
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.append(look("a").outcomes[0].message)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert len(said) == 6
    assert sum(one.startswith("queued job 8") for one in said) == 1
    assert max(slurm.known) == (8 if chain == "inside" else 10)


def test_a_job_that_was_queued_since_the_look_asked_is_seen(path: Path, slurm: Cluster) -> None:
    """As where one question to Slurm is for the runs of a whole root."""
    slurm.says(7, "PENDING")
    real, asked = slurm.queued, []

    def queued(name: str) -> list[object]:
        asked.append(name)
        return [] if len(asked) == 1 else real(name)  # type: ignore[return-value]

    slurm.queued = queued  # type: ignore[method-assign,assignment]
    assert look("a").outcomes[0].message == "job 7 is queued already"
    assert max(slurm.known) == 7


def test_a_look_that_could_not_submit_leaves_the_turn_to_the_next(path: Path, slurm: Cluster) -> None:
    slurm.says(7, "PREEMPTED", "node01", "node02")
    (path / "bundle" / "job.sbatch").write_text("exec python -m pretrainctl attempt /elsewhere\n")
    with pytest.raises(Exception, match="elsewhere"):
        look("a")
    (path / "bundle" / "job.sbatch").write_text(f"exec python -m pretrainctl attempt {path}\n")
    assert look("a").outcomes[0].message.startswith("queued job 8")


def test_a_launch_that_is_at_work_is_waited_for(path: Path, slurm: Cluster) -> None:
    next((path / "events").glob("*.json")).unlink()
    ledger.append(path, "submitting", "the launch submits the first job")
    said = look("a").outcomes[0].message
    assert said.startswith("nothing queued: the launch submits the first job, on ")
    assert slurm.known == {}


def test_a_chain_is_topped_up_once(path: Path, slurm: Cluster) -> None:
    prequeued(path)
    begin(path, 1, 7)
    slurm.says(7, "RUNNING", "node01", "node02", host="node01")
    assert take_turn(path, "a look queues what goes on") is None
    assert "nothing queued: a look queues" in look("a").outcomes[0].message
    assert max(slurm.known) == 7
