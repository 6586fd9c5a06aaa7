"""Ranks that stand still, on a real Slurm: noticed, named, ended, and the run goes on from its newest checkpoint."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from pretrainctl.records.run import Event
from tests.sandbox.training_runs import Site, TrainingRun, rank_process, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")

STEPS = 30
EVERY = 10
FAULT_AT = EVERY + 3
STEP_LIMIT = 6
ENDED_WITHIN = 3.0
"""Seconds after its time-out in which a hang must be called."""


def launch(site: Site, name: str, *sets: str) -> TrainingRun:
    values = [f"checkpoint.every_steps={EVERY}", f"cluster.hang.step={STEP_LIMIT}s", *sets]
    return site.launch(name, steps=STEPS, sets=values)


def stop(run: TrainingRun, *ranks: int) -> None:
    for rank in ranks:
        os.kill(rank_process(run, rank), signal.SIGSTOP)


def called_in_time(run: TrainingRun) -> Event:
    """The one hang of a run, called soon after its time-out."""
    (event,) = run.events("hang")
    late = event.data["seconds"] - event.data["limit"]
    print(f"{run.name}: time-out {event.data['limit']:.1f} s, noticed {late:.2f} s after it; {event.message}")
    assert 0 <= late < ENDED_WITHIN, run.story()
    return event


def test_a_stopped_rank_is_named_and_the_run_ends_with_the_same_weights(site: Site) -> None:
    expected = launch(site, "undisturbed")
    expected.wait_for_finish()
    assert not expected.events("hang"), expected.story()
    run = launch(site, "one-rank-stopped")
    run.wait_for_step(FAULT_AT)
    stop(run, 1)
    run.wait_for_finish()
    event = called_in_time(run)
    node = run.events("restart_started")[0].data["nodes"][1]
    assert (event.data["ranks"], event.data["nodes"], event.data["phase"]) == ([1], [node], "step"), run.story()
    ended = run.events("restart_ended")[0]
    assert ended.time - event.time < ENDED_WITHIN
    assert (ended.data["class"], ended.data["ranks"], ended.data["nodes"]) == ("hang", [1], [node])
    stopped, waiting = (next(fact for fact in ended.data["evidence"] if f"rank {rank}:" in fact) for rank in (1, 0))
    assert "stopped (state T)" in stopped
    assert "all_reduce" in waiting or "torch/distributed" in waiting, waiting
    stacks = (run.folder / "attempts" / "0001" / "restart-0" / "stacks.txt").read_text()
    assert "loop.py" in stacks, stacks
    decided = run.events("decided")[0].data
    assert decided == {"action": "restart_here", "exclude": []}, "a node is left out when it is suspect twice"
    assert run.first_step_of(1, 1) == EVERY + 1
    losses = {sample["step"]: sample["loss"] for sample in run.samples()}
    assert losses == {sample["step"]: sample["loss"] for sample in expected.samples()}
    assert run.weights_digest() == expected.weights_digest()
    told = site.command("doctor", run.name)
    assert told.returncode == 0, told.stderr
    assert f"rank 1 on {node}, stopped (state T)" in told.stdout, told.stdout


def test_where_all_ranks_are_stopped_nobody_is_blamed(site: Site) -> None:
    run = launch(site, "all-stopped")
    run.wait_for_step(FAULT_AT)
    stop(run, 0, 1)
    run.wait_for_finish()
    event = called_in_time(run)
    assert event.message.endswith("all 2 ranks are stopped (state T)")
    assert (event.data["ranks"], event.data["nodes"]) == ([], [])
    assert run.first_step_of(1, 1) == EVERY + 1


@pytest.mark.every_stage("slow, and the drill has it")
def test_a_hang_before_the_first_step(site: Site) -> None:
    run = launch(site, "stopped-at-start", "cluster.hang.start=25s")
    wait_until(lambda: run.samples("phase"), 60, "the first line")
    stop(run, 1)
    run.wait_for_finish()
    event = called_in_time(run)
    assert (event.data["ranks"], event.data["phase"]) == ([1], "start"), run.story()
    assert run.samples()[0]["restart"] == 1
    assert [sample["step"] for sample in run.samples()] == list(range(1, STEPS + 1))


PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from pretrainctl.records.contract import End
from pretrainctl.telemetry import Reporter, find_place, write_end

place, reporter = find_place(), Reporter()
kind = "reached" if place.restart or place.attempt > 1 else sys.argv[1]
reporter.phase("step", 0)
reporter.step(10, 5120, 1.0, 1.0, 1.0, 0.1)
if os.environ["RANK"] == "0":
    write_end(End(kind, 10, 5120, None, "as the test wants it", time.time()))
    time.sleep(1.0)
    sys.exit({"reached": 0, "checkpointed": 75, "failed": 1}[kind])
while not (place.directory / "end.json").exists():
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("kind", ["reached", "failed"])
def test_a_rank_that_stays_after_the_end_record_is_not_waited_for(site: Site, kind: str) -> None:
    program = site.folder / "stays.py"
    program.write_text(PROGRAM)
    top = Path(__file__).parents[2]
    run = site.launch(
        f"stays-{kind}",
        steps=10,
        sets=[
            f"program={{argv: [{sys.executable}, {program}, {kind}], checkpoint: {{directory: checkpoints}}}}",
            f"environment={{PYTHONPATH: {top}}}",
        ],
    )
    run.wait_for_finish(90)
    ended = run.events("restart_ended")
    assert ended[-1].data["class"] == "finished", run.story()
    assert [event.data["class"] for event in ended[:-1]] == ([] if kind == "reached" else ["application_error"])
    assert not run.events("hang")
    run.wait_for_an_empty_queue()
