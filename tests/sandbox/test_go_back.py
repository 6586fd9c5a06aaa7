"""A person goes back to an older checkpoint; and bytes that are not those that were saved."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from pretrainctl.metrics.series import read_series
from tests.sandbox.training_runs import Site, TrainingRun, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")

STEPS = 200
EVERY = ("checkpoint.every_steps=50", "recovery.older_checkpoints=0")
"""No start may fall back by itself: that a person goes back is none."""


@pytest.fixture(scope="module")
def straight(site: Site) -> TrainingRun:
    """A run that nothing disturbed."""
    run = site.launch("straight", steps=STEPS, sets=EVERY)
    run.wait_for_finish()
    run.wait_for_an_empty_queue()
    return run


def digest(run: TrainingRun, attempt: int) -> str:
    """SHA-256 of the final weights that an attempt came to."""
    (path,) = run.folder.glob(f"attempts/{attempt:04d}/restart-*/weights.sha256")
    return path.read_text().split()[0]


def losses(run: TrainingRun) -> list[float]:
    series = read_series(run.folder.glob("attempts/[0-9]*/restart-*/metrics.jsonl"))
    assert list(series.step) == list(range(1, STEPS + 1))
    return list(series.loss)


def test_a_finished_run_goes_back_and_comes_to_the_same_weights(site: Site, straight: TrainingRun) -> None:
    run, before = straight, losses(straight)
    refused = site.command("resume", run.name, "--from", "100")
    assert refused.returncode == 2
    assert "100 steps are done again" in refused.stderr
    done = site.command("resume", run.name, "--from", "100", "--yes")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: run.events("finished")[1:], 120, "the second end", run=run)
    run.wait_for_an_empty_queue()
    assert run.first_step_of(2) == 101
    assert digest(run, 2) == digest(run, 1)
    assert losses(run) == before
    quarantine = run.folder / "checkpoints" / "quarantine"
    label = "went-back-to-global_step100"
    assert sorted(path.name for path in quarantine.iterdir()) == [
        f"global_step150.{label}",
        f"global_step200.{label}",
    ]
    assert not run.events("checkpoint_gate")[-1].data["quarantined"], "nothing was left for the gate to move"
    words = "a person went back to global_step100 from step 200, after attempt 1"
    assert run.status()["went_back"] == words
    assert words in site.command("doctor", run.name).stderr
    # A lower learning rate after a spike, say.
    change = ("--set", "training.optimizer.lr=1e-4", "--accept")
    assert site.command("resume", run.name, "--from", "global_step150", "--yes", *change).returncode == 0
    wait_until(lambda: run.events("finished")[2:], 120, "the third end", run=run)
    rates = {sample["lr"] for sample in run.samples() if sample["attempt"] == 3}
    assert max(rates) <= 1e-4
    assert digest(run, 3) != digest(run, 1)
    run.wait_for_an_empty_queue()


def flip(tag: Path) -> None:
    """Flip one bit in the middle of the largest tensor of an optimizer shard: torch.load takes it without a word."""
    shard = tag / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    with zipfile.ZipFile(shard) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
    content = bytearray(shard.read_bytes())
    content[largest.header_offset + largest.file_size // 2] ^= 64
    shard.write_bytes(content)


@pytest.mark.parametrize("verified", [False, True])
def test_a_flipped_bit_is_not_trained_with(site: Site, straight: TrainingRun, verified: bool) -> None:
    run = site.launch(f"flipped-{verified}", steps=STEPS, sets=["checkpoint.every_steps=10"])
    run.wait_for_step(12)
    assert site.command("stop", "--save", run.name).returncode == 0
    run.wait_for("attempt_ended")
    run.wait_for_an_empty_queue()
    checkpoints = run.folder / "checkpoints"
    *_, second, newest = sorted(checkpoints.glob("global_step*"), key=lambda path: int(path.name[11:]))
    flip(newest)
    if verified:
        for options, status in ((["--verify", "--json"], 8), (["--json"], 0)):
            done = site.command("checkpoints", run.name, *options)
            assert done.returncode == status, done.stderr
            last = json.loads(done.stdout)[-1]
            assert (last["tag"], last["status"]) == (newest.name, "corrupt")
            assert "not as written (CRC-32)" in last["reason"]
        assert newest.is_dir(), "no file was moved"
    assert site.command("resume", run.name).returncode == 0
    wait_until(lambda: run.events("finished"), 150, "the end", run=run)
    gates = [event.data for event in run.events("checkpoint_gate") if event.attempt == 2]
    taken = [second.name] if verified else [newest.name, second.name]
    assert [gate["resume_tag"] for gate in gates] == taken, run.story()
    (moved,) = gates[-1]["quarantined"]
    assert moved["tag"] == newest.name
    assert "optim_states.pt: data/" in moved["reason"]
    assert "not as written (CRC-32)" in moved["reason"]
    assert digest(run, 2) == digest(straight, 1)
    run.wait_for_an_empty_queue()
