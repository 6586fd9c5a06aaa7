"""What ends alone on a real Slurm: a rank without a word, and the beat of a node that is well."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.sandbox.training_runs import Site, TrainingRun, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")

PROGRAM = """
import os, time
from pretrainctl.telemetry import Reporter

reporter, rank = Reporter(), os.environ["RANK"]
reporter.phase("step", 0)
for step in range(1, 9):
    reporter.step(step, step * 512, 3.0, 1.0, 1e-3, 0.1)
    time.sleep(0.1)
if rank == LEAVES:
    os._exit(0)
time.sleep(600)
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_leaves_ends_the_program_and_no_node_is_blamed(site: Site, rank: int) -> None:
    program = site.folder / f"leaves-{rank}.py"
    program.write_text(PROGRAM.replace("LEAVES", repr(str(rank))))
    run = site.launch(
        f"leaves-{rank}",
        steps=1000,
        sets=[
            f"program={{argv: [{sys.executable}, {program}], checkpoint: {{directory: checkpoints}}}}",
            f"environment={{PYTHONPATH: {Path(__file__).parents[2]}}}",
        ],
    )
    run.wait_for("attempt_ended", 90)
    ends = run.events("restart_ended")
    found = [(end.data["class"], end.data["ranks"], end.data["nodes"]) for end in ends]
    assert found == [("application_error", [rank], [])] * 2, run.story()
    for start, end in zip(run.events("restart_started"), ends, strict=True):
        print(f"rank {rank} left: the start was ended {end.time - start.time:.1f} s after its begin")
        assert end.time - start.time < 25, run.story()
    assert f"rank {rank} left with status 0 after step 8, without an end record" in ends[0].message
    assert not run.events("hang")
    assert not run.events("node_listed")
    assert [event.data["class"] for event in run.events("stopped")] == ["application_error"]
    run.wait_for_an_empty_queue()


def beat_of(run: TrainingRun, node: str) -> int:
    """The pid of the beat of a node, of the run's newest job."""
    wanted = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_JOB_ID={run.events('claimed')[-1].data['job_id']}".encode()}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
                environment = set((path / "environ").read_bytes().split(b"\0"))
            except OSError:
                continue
            if wanted <= environment and b"pretrainctl.liveness.beat" in words and b"python" in words[0]:
                return int(path.name)
    return 0


def test_a_beat_that_is_killed_costs_no_step(site: Site) -> None:
    run = site.launch("beat-killed", steps=5000, sets=["checkpoint.every_steps=1000"])
    run.wait_for_step(20)
    host = run.events("claimed")[0].message.split()[-1]
    (node,) = (name for name in run.events("restart_started")[0].data["nodes"] if name != host)
    before, pid = run.step(), beat_of(run, node)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: beat_of(run, node) not in {0, pid}, 20, "a new beat", run=run)
    time.sleep(3.0)  # longer than a closed connection may take to come back
    run.wait_for_step(before + 20)
    assert len(run.events("restart_started")) == 1, run.story()
    assert not run.events("node_dead")
    assert not run.events("node_listed")
    assert any(f"the beat on {node} ended, and the node did not" in event.message for event in run.events("note"))
    assert site.command("cancel", run.name).returncode == 0
