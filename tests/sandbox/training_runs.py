"""Runs on the real Slurm of the sandbox, driven as a user drives them: by the command line, and by its JSON."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pretrainctl.records.run import Event
from pretrainctl.runs import ledger
from pretrainctl.runs.state import fold

__all__ = ["Site", "TrainingRun", "meet_the_time_limit", "rank_process", "wait_until"]

TINY = (
    "model.layers=2",
    "model.hidden=64",
    "model.heads=2",
    "model.kv_heads=1",
    "model.ffn=128",
    "data.sequence_length=64",
    "model.context=64",
    "training.micro_batch=4",
    "training.global_batch=8 samples",
    "training.schedule.warmup_steps=4",
    "checkpoint.keep=0",
)
"""A model that steps as fast as two slow cores can; 512 tokens a step."""


def wait_until(
    condition: Callable[[], Any], timeout: float, what: str, pause: float = 0.1, run: TrainingRun | None = None
) -> Any:
    """The first true value of `condition`; after `timeout` seconds an AssertionError: `what`, and all about `run`."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s in vain for {what}{f'; {run.story()}' if run else ''}")
        time.sleep(pause)


@dataclass(frozen=True)
class Site:
    """A user on the login node: a folder to work in and the environment of the sandbox."""

    folder: Path
    environment: Mapping[str, str]

    def command(self, *words: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run `pretrainctl ...` as a user does: it finds the Slurm of the profile, or of the run, by itself."""
        return subprocess.run(
            [sys.executable, "-m", "pretrainctl", *words],
            cwd=self.folder,
            env={name: value for name, value in self.environment.items() if name != "SLURM_CONF"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def python(self, *words: str, timeout: float = 120.0) -> str:
        """Run a program of the training environment."""
        return self.slurm(sys.executable, *words, timeout=timeout)

    def slurm(self, *words: str, timeout: float = 60.0) -> str:
        """Run one of Slurm's own commands."""
        done = subprocess.run(
            list(words),
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def forget_nodes(self) -> None:
        """Empty the node exclusion list: a node that a test has killed is well again."""
        shutil.rmtree(Path(self.environment["PRETRAINCTL_RUNS"]) / ".nodes", ignore_errors=True)

    def launch(self, name: str, *, steps: int, sets: Sequence[str] = (), options: Sequence[str] = ()) -> TrainingRun:
        """Launch the tiny model for `steps` optimizer steps."""
        values = (*TINY, f"training.tokens={steps * 512}", *sets)
        done = self.command(
            *("launch", "quickstart", "--cluster", "sandbox", "--name", name, "--yes", "--json"),
            *options,
            *(word for value in values for word in ("--set", value)),
        )
        assert done.returncode == 0, done.stderr
        return TrainingRun(self, name, Path(json.loads(done.stdout)["path"]))


@dataclass(frozen=True)
class TrainingRun:
    """One run, read through its folder and through the commands."""

    site: Site
    name: str
    folder: Path

    def status(self) -> dict[str, Any]:
        """`pretrainctl status RUN --json`."""
        done = self.site.command("status", self.name, "--json")
        assert done.returncode == 0, done.stderr
        loaded: dict[str, Any] = json.loads(done.stdout)
        return loaded

    def events(self, kind: str | None = None) -> list[Event]:
        """The ledger, or its events of one kind."""
        return [event for event in ledger.read_events(self.folder) if kind in {None, event.kind}]

    def samples(self, kind: str = "step") -> list[dict[str, Any]]:
        """Lines of all metrics files in order, each with its attempt and restart."""
        found = []
        for path in sorted(self.folder.glob("attempts/[0-9]*/restart-*/metrics.jsonl")):
            attempt, restart = int(path.parts[-3]), int(path.parts[-2].removeprefix("restart-"))
            for line in path.read_text().splitlines():
                if line.endswith("}"):
                    entry = json.loads(line)
                    if entry["kind"] == kind:
                        found.append(entry | {"attempt": attempt, "restart": restart})
        return found

    def step(self) -> int:
        """The newest step."""
        samples = self.samples()
        return samples[-1]["step"] if samples else 0

    def wait_for_step(self, step: int, timeout: float = 120.0) -> None:
        """Wait until a step is done, failing at once where the run has stopped."""

        def reached() -> bool:
            assert fold(self.events()).stopped is None, self.story()
            return self.step() >= step

        wait_until(reached, timeout, f"step {step} of {self.name}", run=self)

    def wait_for(self, kind: str, timeout: float = 180.0) -> Event:
        """Wait for the first event of a kind."""
        wait_until(lambda: self.events(kind), timeout, f"the event {kind} of {self.name}", run=self)
        return self.events(kind)[0]

    def wait_for_finish(self, timeout: float = 240.0) -> None:
        """Wait until the run's own record says that the target is reached."""

        def finished() -> bool:
            assert fold(self.events()).stopped is None, self.story()
            return bool(self.events("finished"))

        wait_until(finished, timeout, f"the end of {self.name}", pause=0.3, run=self)

    def first_step_of(self, attempt: int, restart: int = 0) -> int:
        """The first step that a restart did."""
        return min(s["step"] for s in self.samples() if (s["attempt"], s["restart"]) == (attempt, restart))

    def assert_goes_on(self, attempt: int, restart: int = 0, *, every: int) -> None:
        """That start took the last checkpoint, and did the step after it first. A checkpoint may be whole though the
        fault came before the line that tells of it, which stands after its last byte."""
        (gate,) = (
            event.data
            for event in self.events("checkpoint_gate")
            if (event.attempt, event.data["restart"]) == (attempt, restart)
        )
        before = [one["step"] for one in self.samples("saved") if (one["attempt"], one["restart"]) < (attempt, restart)]
        assert gate["resume_step"] in {max(before), max(before) + every}, self.story()
        assert self.first_step_of(attempt, restart) == gate["resume_step"] + 1, self.story()

    def weights_digest(self) -> str:
        """SHA-256 of the final weights, as written by the training program."""
        (path,) = self.folder.glob("attempts/*/restart-*/weights.sha256")
        return path.read_text().split()[0]

    def jobs(self) -> list[int]:
        """Jobs of this run that Slurm still has in its queue: those too that it clears off their nodes."""
        name = json.loads((self.folder / "run.json").read_text())["job_name"]
        return [int(line) for line in self.site.slurm("squeue", "-h", "-o", "%A", f"--name={name}").split()]

    def wait_for_an_empty_queue(self, timeout: float = 240.0) -> None:
        """Wait until no job is in the queue, and so nothing of one on a node.

        A step that ended while Slurm was away tells it so every 15 s, and Slurm asks a node for a job's end at growing
        intervals of up to 45 s: 100 s were seen.
        """
        deadline = time.monotonic() + timeout
        while jobs := self.jobs():
            queue = self.site.slurm("squeue", "-o", "%A %T %r %N")
            assert time.monotonic() < deadline, f"jobs {jobs} did not end in {timeout:g} s; {queue}\n{self.story()}"
            time.sleep(0.1)

    def story(self) -> str:
        """The ledger as people read it, for a test that fails."""
        lines = [f"{event.attempt}.{event.sequence} {event.kind}: {event.message}" for event in self.events()]
        logs = sorted(self.folder.glob("attempts/[0-9]*/restart-*/training.log"))
        tails = [f"--- {path}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:]) for path in logs[-2:]]
        return "\n".join([*lines, *tails])


def rank_process(run: TrainingRun, rank: int) -> int:
    """The pid of a rank of a run: a program of Slurm's task script, not the script itself."""
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            environment = (path / "environ").read_bytes().split(b"\0")
            command = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        wanted = {f"PRETRAINCTL_RUN_DIR={run.folder}".encode(), f"RANK={rank}".encode()}
        if wanted <= set(environment) and b"pretrainctl.trainer" in command:
            return int(path.name)
    raise AssertionError(f"no process of rank {rank}; {run.story()}")


def meet_the_time_limit(site: Site, run: TrainingRun) -> None:
    """Make the job's limit one minute: Slurm itself sends the signal, the lead being 55 s.

    Slurm looks at limits every 30 s only, so the ranks are held until the attempt has heard the signal.
    """
    ranks = [rank_process(run, rank) for rank in (0, 1)]
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    try:
        site.slurm("scontrol", "update", f"JobId={run.events('submitted')[0].data['job_id']}", "TimeLimit=1")
        run.wait_for("save_asked", 60)
    finally:
        for pid in ranks:
            os.kill(pid, signal.SIGCONT)
