"""A program of one's own that prints harmless words, and then loses a rank, on a real Slurm: the run goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.sandbox.training_runs import Site

pytestmark = pytest.mark.usefixtures("sandbox")

PROGRAM = """
import os, signal, sys, time
from pretrainctl.records.contract import End, ExitCode
from pretrainctl.telemetry import Reporter, find_place, write_end

OVERFLOW = "{'loss': 9.1, 'grad_norm': nan, 'learning_rate': 0.0, 'step': %d}"
CHATTER = [
    "wandb: WARNING 429 Too Many Requests: API quota exceeded, retrying in 30s",
    "INFO config: {retry_on: ['CUDA error: uncorrectable ECC error encountered'], max_retries: 3}",
]
place, reporter, rank = find_place(), Reporter(), int(os.environ["RANK"])
first = place.restart == 0 and place.attempt == 1
if rank == 0:
    print(*CHATTER, sep="\\n", flush=True)
reporter.phase("step", 0)
for step in range(1, 25):
    time.sleep(0.2)
    if rank == 0:
        sound = "{'loss': 2.1, 'grad_norm': 0.7, 'learning_rate': 1e-4, 'step': %d}"
        print((OVERFLOW if step <= 3 else sound) % step, flush=True)
    reporter.step(step, step * 512, 2.1, 0.7, 1e-4, 0.2)
    if rank == 1 and first and step == 15:
        os.kill(os.getpid(), signal.SIGKILL)
if rank == 0:
    time.sleep(0.5)
    write_end(End("reached", step, step * 512, None, "", time.time()))
time.sleep(1.5)
os._exit(ExitCode.REACHED)
"""


def test_harmless_words_stop_no_run_and_leave_out_no_node(site: Site) -> None:
    program = site.folder / "chatter.py"
    program.write_text(PROGRAM)
    run = site.launch(
        "chatter",
        steps=24,
        sets=[
            f"program={{argv: [{sys.executable}, {program}], checkpoint: {{directory: checkpoints}}}}",
            f"environment={{PYTHONPATH: {Path(__file__).parents[2]}}}",
        ],
    )
    run.wait_for_finish(120)
    assert [event.data["class"] for event in run.events("restart_ended")] == ["unknown", "finished"], run.story()
    assert not run.events("node_excluded")
    run.wait_for_an_empty_queue()
