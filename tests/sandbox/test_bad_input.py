"""Bad input: one clear line, a hint, the documented exit code, no traceback, and nothing changed or submitted."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.training_runs import Site, TrainingRun

pytestmark = pytest.mark.usefixtures("sandbox")

LAUNCH = ("launch", "quickstart", "--cluster", "sandbox", "--yes", "--name")


def everything(site: Site) -> set[str]:
    """Names of all that lies in the user's folder, and the jobs in the queue."""
    files = {str(path) for path in site.folder.rglob("*")}
    return files | {f"job {job}" for job in site.slurm("squeue", "-h", "-o", "%A").split()}


def refused(site: Site, *words: str, code: int, says: str, hint: str) -> None:
    before = everything(site)
    done = site.command(*words)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert (done.returncode, len(errors)) == (code, 1), done.stderr
    assert says in errors[0], done.stderr
    assert hint in done.stderr.split("hint: ", 1)[1], done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert everything(site) == before


RECIPE = "extends: quickstart\nname: mine\n"


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        (RECIPE + "trainin:\n  tokens: 5\n", "recipe.yaml:3", "training"),
        (RECIPE + "training:\n  tokens: many\n", "'many' is not a count", "Token target"),
        (RECIPE + "training: [\n", "recipe.yaml:4: broken YAML", "indentation"),
        (RECIPE + "training:\n  global_batch: 9 samples\n", "9", "batch"),
        (RECIPE + "data:\n  sources:\n    - prefix: data/none\n", "data/none", "tokenize"),
    ],
    ids=["unknown key", "wrong type", "broken YAML", "batch that does not divide", "missing data"],
)
def test_a_recipe_that_cannot_be_used(site: Site, text: str, says: str, hint: str) -> None:
    (site.folder / "recipe.yaml").write_text(text)
    words = ("launch", "recipe.yaml", "--cluster", "sandbox", "--name", "bad", "--yes")
    refused(site, *words, code=2, says=says, hint=hint)


def test_no_slurm_here(site: Site, tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    without = dataclasses.replace(site, environment={**site.environment, "PATH": str(tmp_path)})
    before = everything(site)
    done = without.command(*LAUNCH, "nowhere")
    assert done.returncode == 3
    assert "there is no Slurm here" in done.stderr
    assert "pretrainctl sandbox up" in done.stderr
    assert everything(site) == before


def queue(where: str) -> str:
    return f"cluster.queues=[{{name: q, purpose: production, max_nodes: null, max_walltime: null, {where}}}]"


def test_sbatch_refuses_and_its_words_are_shown(site: Site) -> None:
    words = (*LAUNCH, "refused", "--set", queue("partition: production, qos: debug"))
    refused(site, *words, "--set", "resources.walltime=10:00:00", code=5, says="QOS", hint="time")


def test_sbatch_knows_no_such_partition(site: Site) -> None:
    words = (*LAUNCH, "refused", "--set", queue("partition: bosst"))
    refused(site, *words, code=5, says="invalid partition", hint="partition")


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("logs",),
        ("metrics",),
        ("checkpoints",),
        ("stop", "--save"),
        ("cancel",),
        ("resume",),
        ("reconcile",),
    ],
    ids=" ".join,
)
def test_a_folder_that_is_no_run_and_a_name_that_no_run_has(site: Site, words: tuple[str, ...]) -> None:
    refused(site, *words, str(site.folder / "data"), code=6, says="no run", hint="status")
    refused(site, *words, "no-such-run", code=6, says="no run 'no-such-run'", hint="runs under")


@pytest.fixture(scope="module")
def cancelled(site: Site) -> TrainingRun:
    """A run that was cancelled before it did much."""
    run = site.launch("cancelled", steps=50)
    assert site.command("cancel", run.name).returncode == 0
    run.wait_for_an_empty_queue()
    return run


def test_a_name_that_exists(site: Site, cancelled: TrainingRun) -> None:
    refused(site, *LAUNCH, cancelled.name, code=6, says="exists already", hint="--name")


def test_an_unreadable_event_is_said_and_is_not_passed_over(site: Site, cancelled: TrainingRun) -> None:
    event = cancelled.folder / "events" / "000001.json"
    text = event.read_text()
    event.write_text("")
    try:
        for words in (("status",), ("resume",), ("stop", "--save"), ("reconcile",)):
            refused(site, *words, cancelled.name, code=7, says="000001.json cannot be read", hint="")
        everywhere = site.command("status")
        assert everywhere.returncode == 0
        assert "000001.json cannot be read" in everywhere.stderr
    finally:
        event.write_text(text)


@pytest.fixture
def full_disk(site: Site) -> Iterator[Path]:
    """A small file system without any room left."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = site.folder / "full"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True, timeout=20)
    try:
        (folder / "filler").write_bytes(b"x" * 60 * 1024)
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=20)
        folder.rmdir()


def test_a_full_disk_under_the_run_folder(site: Site, full_disk: Path) -> None:
    there = dataclasses.replace(site, environment={**site.environment, "PRETRAINCTL_RUNS": str(full_disk)})
    refused(there, *LAUNCH, "full", code=1, says="No space left", hint="free some space")
    assert [path.name for path in full_disk.iterdir()] == ["filler"]
