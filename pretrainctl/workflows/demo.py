"""The demo: a run on a real Slurm on this machine loses a node in the middle and goes on by itself.

It drives the product as a user does, by its own commands, and believes nothing but the run's record.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pretrainctl import process
from pretrainctl.errors import CommandError, MissingError, NotReachedError
from pretrainctl.records.run import Event
from pretrainctl.records.sample import Summary
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.sayings import Sayings
from pretrainctl.sandbox import Sandbox
from pretrainctl.workflows import sandbox as sandboxes
from pretrainctl.workflows.interrupted import uninterrupted
from pretrainctl.workflows.metrics import summarize_run

__all__ = ["DemoReport", "demo"]

Say = Callable[[str], None]

_RUN = "demo"
_PATIENCE = 360.0
"""Seconds that the run may take; it needs about 90."""
_STEPS_AFTER_SAVE = 5
_PROGRESS_EVERY = 20
_TOLD = {"claimed", "chained", "checkpoint_gate", "restart_started", "node_dead", "decided", "stopped"}


@dataclass(frozen=True)
class DemoReport:
    """What the run's own record says; `seconds` from launch to the end, `killed` the node that was killed, `path` the
    run folder."""

    finished: str
    seconds: float
    killed: str
    diagnosis: str
    attempts: int
    restarts: int
    summary: Summary
    path: str


def demo(folder: Path, *, say: Say, confirm: Callable[[str], bool], keep: bool = False) -> DemoReport:
    """Run the demo in `folder`, which is made; the sandbox is taken down at the end, whatever happens.

    MissingError, before anything is started, where the training environment is not there. NotReachedError where the
    run's record does not say that the target was reached. With `keep` the sandbox
    stays up. `confirm` is asked before Debian packages are installed.
    """
    missing = [name for name in ("numpy", "torch", "deepspeed") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(
            f"the demo trains, and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in this environment",
            hint="pip install -e '.[demo]'",
        )
    sandboxes.prepare(folder)
    sandbox = Sandbox(folder / "sandbox", say=say)
    try:
        say("starting a real Slurm of 4 nodes on this machine")
        sandboxes.up(sandbox.root, nodes=4, gpus=4, say=say, confirm=confirm)
        environment = {**sandbox.environment(), "PRETRAINCTL_RUNS": str(folder / "runs")}
        return _run(folder, sandbox, environment, say)
    finally:
        if keep:
            say(f"the sandbox stays up: PRETRAINCTL_SANDBOX={sandbox.root}")
        else:
            say("taking the sandbox down")
            with uninterrupted():
                sandbox.down()


def _run(folder: Path, sandbox: Sandbox, environment: Mapping[str, str], say: Say) -> DemoReport:
    say("tokenizing the sources of Python's standard library")
    standard_library = sysconfig.get_paths()["stdlib"]
    _python(
        *(folder, environment, "-m", "pretrainctl.trainer.tokenize"),
        *("--input", standard_library, "--suffix", ".py", "--output", str(folder / "data" / "quickstart")),
    )
    command = ("launch", "quickstart", "--cluster", "sandbox", "--name", _RUN, "--set", "resources.spares=1", "--yes")
    say(f"pretrainctl {' '.join(command)}")
    begun = time.monotonic()
    launched = json.loads(_python(folder, environment, "-m", "pretrainctl", *command, "--json"))
    run = RunFolder(Path(launched["path"]))
    killed = _watch(run, sandbox, say)
    return _report(run, time.monotonic() - begun, killed)


def _watch(run: RunFolder, sandbox: Sandbox, say: Say) -> str:
    """Tell what happens, kill a node once the run is well past a checkpoint, and return at the end of the run."""
    told, sayings = 0, Sayings()
    shown_step = 0
    killed = ""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        events = ledger.read_events(run.path)
        news = sorted(events, key=lambda event: event.time)[told:]
        told += len(news)
        for event in news:
            words = sayings.words(event.kind, event.message) if event.kind in _TOLD else ""
            if words:
                say(f"  {words}")
        if any(event.kind in {"finished", "stopped"} for event in events):
            return killed
        summary = summarize_run(run)
        if summary.step >= shown_step + _PROGRESS_EVERY:
            shown_step = summary.step - summary.step % _PROGRESS_EVERY
            say(f"  {_progress(summary, run.launch().target_steps)}")
        if not killed and summary.saves >= 2 and summary.step % _PROGRESS_EVERY >= _STEPS_AFTER_SAVE:
            killed = _victim(events)
            say(f"killing {killed}: its slurmd and every process on it, at once")
            sandbox.kill_node(killed)
        time.sleep(0.2)
    return killed


def _victim(events: list[Event]) -> str:
    """A node that trains and does not carry the batch script."""
    started = [event for event in events if event.kind == "restart_started"][-1]
    return str(started.data["nodes"][-1])


def _progress(summary: Summary, target: int) -> str:
    rate = "" if summary.tokens_per_second is None else f", {summary.tokens_per_second:,.0f} tokens/s"
    loss = "" if summary.loss is None else f", loss {summary.loss:.3f}"
    return f"step {summary.step}/{target}{loss}{rate}"


def _report(run: RunFolder, seconds: float, killed: str) -> DemoReport:
    events = ledger.read_events(run.path)
    finished = [event.message for event in events if event.kind == "finished"]
    if not finished:
        last = max(events, key=lambda event: event.time).message if events else "nothing was written"
        raise NotReachedError(
            f"the demo run did not reach its target: {last}", hint=f"its folder is {run.path}: see attempts/*/events"
        )
    ended = [event for event in events if event.kind == "restart_ended"]
    return DemoReport(
        finished=finished[-1],
        seconds=seconds,
        killed=killed,
        diagnosis=next((event.message for event in ended if event.data["class"] == "node_failure"), ""),
        attempts=len(run.attempts()),
        restarts=sum(event.kind == "restart_started" for event in events) - len(run.attempts()),
        summary=summarize_run(run),
        path=str(run.path),
    )


def _python(folder: Path, environment: Mapping[str, str], *words: str) -> str:
    done = process.run([sys.executable, *words], timeout=600.0, env=environment, cwd=folder, check=False)
    if done.status != 0:
        raise CommandError(
            f"`{' '.join(words[1:4])}` failed: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}",
            hint=f"run it by hand in {folder}",
            status=done.status,
            stdout=done.stdout,
            stderr=done.stderr,
        )
    return done.stdout
