"""What must be true of a run that met faults: read from its folder, its queue and the processes of this machine."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.sandbox.training_runs import TrainingRun, wait_until

__all__ = ["Expected", "wrong_with"]

_QUEUE_PATIENCE = 240.0
"""Seconds for Slurm to end a job. A bare job whose batch script dies with its node, and the node boots at once, is
RUNNING for 54 s more until Slurm calls it NODE_FAIL."""
_PROCESS_PATIENCE = 60.0


@dataclass(frozen=True)
class Expected:
    """Of the undisturbed run: the loss of each step, and the digest of the final weights."""

    losses: dict[int, float]
    weights: str

    @classmethod
    def of(cls, run: TrainingRun) -> Expected:
        """What a run that is finished gave."""
        return cls({sample["step"]: sample["loss"] for sample in run.samples()}, run.weights_digest())


def wrong_with(run: TrainingRun, expected: Expected, *, faults: int) -> str:
    """The first thing that is wrong with a run that finished, empty where nothing is."""
    for look in (_losses, _weights):
        wrong = look(run, expected)
        if wrong:
            return wrong
    return _overlap(run) or _attempts(run, faults) or _leftovers(run)


def _losses(run: TrainingRun, expected: Expected) -> str:
    """Each step was done, and each time it was done with the same loss."""
    samples = run.samples()
    for sample in samples:
        if sample["loss"] != expected.losses.get(sample["step"]):
            where = f"attempt {sample['attempt']}, restart {sample['restart']}"
            return f"step {sample['step']} has loss {sample['loss']} in {where}, {expected.losses.get(sample['step'])}"
    missing = sorted(set(expected.losses) - {sample["step"] for sample in samples})
    return f"steps {missing} were never reported" if missing else ""


def _weights(run: TrainingRun, expected: Expected) -> str:
    found = {path.read_text().split()[0] for path in run.folder.glob("attempts/*/restart-*/weights.sha256")}
    return "" if found == {expected.weights} else f"the weights are {found}, not {expected.weights}"


def _overlap(run: TrainingRun) -> str:
    """No start did a step after the next one had begun to."""
    spans: dict[tuple[int, int], list[float]] = {}
    for sample in run.samples():
        spans.setdefault((sample["attempt"], sample["restart"]), []).append(sample["time"])
    for (one, before), (other, after) in itertools.pairwise(sorted(spans.items())):
        if before[-1] > after[0]:
            return f"attempt.restart {one} did a step {before[-1] - after[0]:.1f} s after {other} had begun"
    return ""


def _attempts(run: TrainingRun, faults: int) -> str:
    """Each attempt claimed the run once; none but the last finished it; there are not more than faults call for."""
    claims = [event.attempt for event in run.events("claimed")]
    if claims != sorted(set(claims)):
        return f"attempts claimed more than once: {claims}"
    if len(run.events("finished")) != 1:
        return f"finished {len(run.events('finished'))} times"
    if len(claims) > 2 * faults + 2:
        return f"{len(claims)} attempts for {faults} faults"
    return ""


def _leftovers(run: TrainingRun) -> str:
    try:
        wait_until(lambda: not _jobs(run), _QUEUE_PATIENCE, "the queue to be empty")
    except AssertionError as error:
        return f"{error}: {_jobs(run)} are left"
    deadline = time.monotonic() + _PROCESS_PATIENCE
    while left := _processes(run.folder):
        if time.monotonic() > deadline:
            return f"processes are left: {left}"
        time.sleep(0.5)
    state = json.loads(run.site.command("status", run.name, "--json").stdout)
    return "" if state["phase"] == "finished" else f"status says {state['phase']}"


def _jobs(run: TrainingRun) -> list[str]:
    """Jobs that wait or run. One that is COMPLETING is over: Slurm waits for the word of a node that died."""
    name = json.loads((run.folder / "run.json").read_text())["job_name"]
    states = "--states=PENDING,RUNNING,SUSPENDED,CONFIGURING,REQUEUED"
    return run.site.slurm("squeue", "-h", "-o", "%A %T", f"--name={name}", states).splitlines()


def _processes(folder: Path) -> list[int]:
    """Ranks, and others of the run's jobs, that live."""
    found = []
    mark = f"PRETRAINCTL_RUN_DIR={folder}".encode()
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
    return found
