"""Checkpoints that are not whole: torn in a real save, or damaged between a stop and a resume."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandbox.training_runs import Site, TrainingRun, rank_process, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")

EVERY = 10


def hold_back(run: TrainingRun, rank: int) -> str:
    """Hold a rank back just before its own shard in a real save; the tag, once the other rank's is written.

    A fifo stands where the shard will be: opening it blocks for as long as nobody reads.
    """
    others = f"zero_pp_rank_{1 - rank}_mp_rank_00_optim_states.pt"
    deadline = time.monotonic() + 120
    first = run.step() // EVERY + 2
    for number in range(first, first + 20):
        tag = run.folder / "checkpoints" / f"global_step{number * EVERY}"
        while not tag.exists():
            assert time.monotonic() < deadline, f"no save of {tag.name}; {run.story()}"
        try:
            os.mkfifo(tag / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
        except FileExistsError:
            continue  # the rank was quicker: try the next save
        wait_until(lambda tag=tag: (tag / others).exists(), 30, f"the other rank's shard in {tag.name}")
        return tag.name
    raise AssertionError(f"no save could be caught; {run.story()}")


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_save_torn_by_the_death_of_a_rank_is_quarantined_and_the_one_before_it_is_taken(
    site: Site, stage: int
) -> None:
    run = site.launch(
        f"torn-{stage}", steps=400, sets=[f"training.zero_stage={stage}", f"checkpoint.every_steps={EVERY}"]
    )
    run.wait_for_step(EVERY + 2)
    torn = hold_back(run, rank=1)
    os.kill(rank_process(run, 1), signal.SIGKILL)
    shard(run.folder / "checkpoints" / torn).unlink()  # the fifo
    gate = wait_until(lambda: run.events("checkpoint_gate")[1:], 60, "the next start", run=run)[0].data
    before = int(torn.removeprefix("global_step")) - EVERY
    assert (gate["resume_tag"], gate["resume_step"]) == (f"global_step{before}", before)
    assert [entry["tag"] for entry in gate["quarantined"]] == [torn]
    assert "1 of 2 optimizer shards missing" in gate["quarantined"][0]["reason"]
    assert Path(gate["quarantined"][0]["path"]).is_dir()
    run.wait_for_step(before + EVERY + 2)
    assert run.first_step_of(1, 1) == before + 1
    assert site.command("cancel", run.name).returncode == 0


@pytest.fixture(scope="module")
def saved(site: Site) -> TrainingRun:
    """One run for all that can be wrong with its checkpoints."""
    return save_and_stop(site, "saved")


def save_and_stop(site: Site, name: str) -> TrainingRun:
    """A run that was stopped with at least three complete checkpoints, which lie in `good` too."""
    run = site.launch(name, steps=600, sets=[f"checkpoint.every_steps={EVERY}"])
    run.wait_for_step(2 * EVERY + 2)
    assert site.command("stop", "--save", run.name).returncode == 0
    run.wait_for("attempt_ended")
    run.wait_for_an_empty_queue()
    shutil.copytree(run.folder / "checkpoints", run.folder / "good")
    return run


def restore(run: TrainingRun) -> Path:
    """The checkpoints as they were after the stop."""
    shutil.rmtree(run.folder / "checkpoints")
    shutil.copytree(run.folder / "good", run.folder / "checkpoints")
    return run.folder / "checkpoints"


def by_step(folder: Path) -> list[Path]:
    return sorted(folder.glob("global_step*"), key=lambda path: int(path.name.removeprefix("global_step")))


def shard(tag: Path) -> Path:
    return tag / "zero_pp_rank_1_mp_rank_00_optim_states.pt"


def newest_shard(folder: Path) -> Path:
    return shard(by_step(folder)[-1])


def exchange_shards(tag: Path) -> None:
    """The optimizer shard of each of two ranks under the name of the other's."""
    one, other = (tag / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1))
    one.rename(tag / "aside")
    other.rename(one)
    (tag / "aside").rename(other)


DAMAGE: dict[str, tuple[Callable[[Path], object], bool]] = {
    "latest missing": (lambda folder: (folder / "latest").unlink(), True),
    "latest empty": (lambda folder: (folder / "latest").write_text(""), True),
    "latest names a missing tag": (lambda folder: (folder / "latest").write_text("global_step9000\n"), True),
    "shard of zero bytes": (lambda folder: newest_shard(folder).write_bytes(b""), False),
    "shard truncated": (
        lambda folder: os.truncate(newest_shard(folder), newest_shard(folder).stat().st_size - 100),
        False,
    ),
    "shard missing": (lambda folder: newest_shard(folder).unlink(), False),
    "shards of two ranks exchanged": (lambda folder: exchange_shards(by_step(folder)[-1]), False),
    "shard of the tag before": (
        lambda folder: shutil.copy(shard(by_step(folder)[-2]), newest_shard(folder)),
        False,
    ),
    "state missing": (lambda folder: (by_step(folder)[-1] / "state.json").unlink(), False),
    "latest is a fifo": (lambda folder: ((folder / "latest").unlink(), os.mkfifo(folder / "latest")), True),
    "quarantine is a file": (
        lambda folder: (newest_shard(folder).unlink(), (folder / "quarantine").write_text("")),
        False,
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_the_newest_complete_tag_is_taken_whatever_is_damaged(site: Site, saved: TrainingRun, name: str) -> None:
    damage, newest_is_good = DAMAGE[name]
    folder = restore(saved)
    *_, before, newest = by_step(folder)
    expected = newest if newest_is_good else before
    damage(folder)
    known = len(saved.events("checkpoint_gate"))
    assert site.command("resume", saved.name).returncode == 0
    gate = wait_until(lambda: saved.events("checkpoint_gate")[known:], 60, "the gate")[0]
    assert gate.data["resume_tag"] == expected.name, saved.story()
    assert [entry["tag"] for entry in gate.data["quarantined"]] == ([] if newest_is_good else [newest.name])
    assert (folder / "latest").read_text().strip() == expected.name
    step = int(expected.name.removeprefix("global_step"))
    started = gate.attempt
    wait_until(lambda: any(s["attempt"] == started for s in saved.samples()), 60, "a step", run=saved)
    assert saved.first_step_of(started) == step + 1
    assert site.command("cancel", saved.name).returncode == 0
    saved.wait_for_an_empty_queue()


def zero_a_pickle(file: Path) -> None:
    """Zero a part of what torch reads first; the archive's own directory, which the gate reads, stays whole."""
    content = bytearray(file.read_bytes())
    at = content.index(b"data.pkl") + 200
    content[at : at + 200] = bytes(200)
    file.write_bytes(content)


def test_tags_that_look_whole_and_do_not_load_are_set_aside_as_often_as_the_recipe_allows(
    site: Site,
) -> None:
    saved = save_and_stop(site, "look-whole")  # of its own: how often a run has gone back counts
    folder = saved.folder / "checkpoints"
    *_, third, second, newest = by_step(folder)
    shutil.copy(second / "mp_rank_00_model_states.pt", newest / "mp_rank_00_model_states.pt")
    (newest / "shards.json").unlink()  # a tag that was saved before there were such records
    zero_a_pickle(shard(second))
    known = len(saved.events("checkpoint_gate"))
    assert site.command("resume", saved.name, "--set", "recovery.older_checkpoints=1").returncode == 0
    wait_until(lambda: saved.events("checkpoint_gate")[known + 2 :], 120, "three gates", run=saved)
    gates = saved.events("checkpoint_gate")[known:]
    assert [gate.data["resume_tag"] for gate in gates] == [newest.name, second.name, third.name]
    moved = [entry for gate in gates for entry in gate.data["quarantined"]]
    assert [entry["tag"] for entry in moved] == [newest.name, second.name]
    assert f"{newest.name} holds the weights of step" in moved[0]["reason"]
    assert f"{second.name} cannot be loaded: " in moved[1]["reason"]
    assert all(Path(entry["path"]).is_dir() for entry in moved), "nothing is deleted"
    stopped = wait_until(lambda: saved.events("stopped"), 30, "the stop", run=saved)[-1]
    assert stopped.data["class"] == "checkpoint_incomplete"
    assert "recovery.older_checkpoints" in stopped.message
    ended = [event for event in saved.events("decided") if event.attempt == gates[0].attempt]
    assert all("pause" not in event.message for event in ended), "no node waits for what does not pass"
    saved.wait_for_an_empty_queue()
    # A person says that it may go on: from the one that loads.
    assert site.command("resume", saved.name).returncode == 0
    gate = wait_until(lambda: saved.events("checkpoint_gate")[known + 3 :], 60, "the gate")[0]
    assert gate.data["resume_tag"] == third.name
    step = int(third.name.removeprefix("global_step"))
    wait_until(lambda: any(s["attempt"] == gate.attempt for s in saved.samples()), 60, "a step", run=saved)
    assert saved.first_step_of(gate.attempt) == step + 1
    assert site.command("cancel", saved.name).returncode == 0
    saved.wait_for_an_empty_queue()


def test_when_every_tag_is_bad_the_run_stops_and_never_begins_anew(site: Site, saved: TrainingRun) -> None:
    folder = restore(saved)
    # The nodes are taken, so that the checkpoints go bad while the resumed job waits.
    filler = site.slurm("sbatch", "--parsable", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 90")
    assert site.command("resume", saved.name).returncode == 0
    for tag in folder.glob("global_step*"):
        shard(tag).write_bytes(b"")
    steps = len(saved.samples())
    site.slurm("scancel", filler.strip())
    stopped = wait_until(lambda: saved.events("stopped"), 60, "the stop", run=saved)[-1]
    assert stopped.data["class"] == "checkpoint_incomplete"
    assert "no usable checkpoint" in stopped.message
    saved.wait_for_an_empty_queue()
    assert len(saved.samples()) == steps
    assert not (folder / "quarantine").exists(), "nothing is moved where nothing can be chosen"
    listed = json.loads(site.command("checkpoints", saved.name, "--json").stdout)
    assert {entry["status"] for entry in listed} == {"corrupt"}
    # The same is known before a job waits for it.
    submitted = len(saved.events("submitted"))
    done = site.command("resume", saved.name)
    assert done.returncode == 8, done.stderr
    assert "no usable checkpoint" in done.stderr
    assert (saved.jobs(), len(saved.events("submitted"))) == ([], submitted)
