"""What a fault is played on: one run, read through its folder and driven through the commands."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pretrainctl.errors import CommandError, PretrainctlError
from pretrainctl.metrics.series import Series, read_series
from pretrainctl.records.run import Event
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RUNS_VARIABLE, RunFolder
from pretrainctl.runs.state import RunState, fold
from pretrainctl.workflows.drill import ranks
from pretrainctl.workflows.drill.place import EVERY, STRIKE_AT, Place

__all__ = ["Scene", "SkippedError", "UnmetError"]

Value = TypeVar("Value")

_PAUSE = 0.05


class UnmetError(Exception):
    """What had to come did not, or what must not be is there; the message is the row's reason."""


class SkippedError(Exception):
    """This fault cannot be played here; the message says why."""


class Scene:
    """One fault and its run. `struck` is when the fault came, epoch seconds; `damaged` the steps whose checkpoints the
    fault made unusable after they were complete."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.name = name
        self.struck: float | None = None
        self.damaged: set[int] = set()
        self.path = place.run_dir(name)
        self._run: RunFolder | None = None

    # the run

    def launch(
        self,
        *sets: str,
        program: Sequence[str] = (),
        pace: float = 0.0,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Launch the tiny recipe. `program`: kind and options of the drill's own program; `pace`: seconds that a step
        takes longer. `variables` are laid over the environment."""
        pace = pace or self.place.pace
        settings = self.place.settings(sets)
        if program or pace:
            arguments = [*(program or ("none",)), *(("--pace", str(pace)) if pace else ())]
            settings.append(self.place.program(self.name, sets, arguments))
        self.place.pretrainctl(
            *("launch", "quickstart", "--cluster", self.place.cluster, "--name", self.name, "--yes"),
            *(word for value in settings for word in ("--set", value)),
            variables={RUNS_VARIABLE: str(self.path.parent), **(variables or {})},
        )

    def settings_file(self) -> Path:
        """The settings of the training: in the bundle, or aside where the drill's program has the trainer's place."""
        file = self.run.bundle / "training.json"
        return file if file.exists() else self.place.settings_aside(self.name)

    def once(self) -> tuple[str, str]:
        """The options of the drill's program by which its fault comes only once."""
        return ("--once", str(self.place.folder / "programs" / f"{self.name}.once"))

    @property
    def run(self) -> RunFolder:
        """The run; RunError before the launch."""
        self._run = self._run or RunFolder(self.path)
        return self._run

    @property
    def launched(self) -> bool:
        """Whether there is a run."""
        return (self.path / "run.json").exists()

    def events(self, kind: str | None = None) -> list[Event]:
        """The ledger, or its events of one kind."""
        return [event for event in ledger.read_events(self.path) if kind in {None, event.kind}]

    def state(self) -> RunState:
        """What the ledger says."""
        return fold(self.events())

    def series(self) -> Series:
        """All samples."""
        return read_series(path / "metrics.jsonl" for _, _, path in self.run.restart_dirs())

    def step(self) -> int:
        """The newest step that is done, 0 for none."""
        return max((start.last_step or 0 for start in self.series().starts), default=0)

    def jobs(self) -> list[int]:
        """Jobs of the run in Slurm's queue."""
        return [
            int(word)
            for word in self.place.slurm("squeue", "-h", "-o", "%A", f"--name={self.run.record.job_name}").split()
        ]

    def job(self) -> int:
        """The job of the newest attempt."""
        return int(self.wait_for("claimed")[-1].data["job_id"])

    def nodes(self) -> tuple[str, list[str]]:
        """The batch host of the newest attempt, and the nodes of its newest restart, rank 0 first."""
        return self.run.attempts()[-1].host, list(self.wait_for("restart_started")[-1].data["nodes"])

    def saves(self) -> list[Path]:
        """The folders of its checkpoints, oldest first."""
        folder = self.run.launch().checkpoint.directory
        return sorted(folder.glob("global_step*"), key=lambda path: int(path.name.removeprefix("global_step")))

    # waiting

    def wait(self, condition: Callable[[], Value | None], seconds: float, what: str) -> Value:
        """The first true value; UnmetError, which says `what`, after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            value = None
            with contextlib.suppress(CommandError):  # Slurm may be away: that is a fault too
                value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                raise UnmetError(f"waited {seconds:.0f} s in vain for {what}{self._last_words()}")
            time.sleep(_PAUSE)

    def wait_for(self, kind: str, *, count: int = 1, seconds: float = 120.0) -> list[Event]:
        """The events of a kind, once there are `count`."""

        def enough() -> list[Event] | None:
            found = self.events(kind)
            return found if len(found) >= count else None

        return self.wait(enough, seconds, f"the event {kind}")

    def wait_for_step(self, step: int = STRIKE_AT, seconds: float = 120.0) -> None:
        """Until a step is done; UnmetError at once where the run has stopped."""

        def reached() -> bool:
            state = self.state()
            if state.stopped is not None:
                raise UnmetError(f"it stopped before step {step}: {state.stopped}")
            return self.step() >= step

        self.wait(reached, seconds, f"step {step}")

    def wait_for_torn_save(self, step: int = 2 * EVERY) -> None:
        """Until a save is half done: the shard of rank 0 is there, and that of rank 1 is not."""
        tag = self.run.launch().checkpoint.directory / f"global_step{step}"
        self.wait(lambda: any(tag.glob("*zero_pp_rank_0_*optim_states.pt")), 120.0, f"the save at step {step}")

    # faults that any user may cause

    def strike(self) -> None:
        """The fault comes now."""
        self.struck = time.time()

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Signal a rank: its process here, or on its node from inside the own job. The fault comes now, unless it came
        before."""
        if self.place.sandbox is not None:
            moment = self.wait(lambda: ranks.send(self.path, rank, number), 60.0, f"a process of rank {rank}")
        else:
            moment = float(self._on_node_of(rank, number))
        self.struck = self.struck or moment

    def _on_node_of(self, rank: int, number: int) -> str:
        node = self.nodes()[1][rank // self.run.launch().srun.ranks_per_node]
        return self.place.slurm(
            *("srun", "--overlap", f"--jobid={self.job()}", "--nodes=1", "--ntasks=1", f"--nodelist={node}"),
            *("--gres=none", "--mem=0", sys.executable, "-m", "pretrainctl.workflows.drill.ranks"),
            *(str(self.path), str(rank), str(int(number))),
        )

    def all_ranks(self) -> range:
        """Every rank."""
        return range(self.run.launch().srun.tasks)

    def come_by_itself(self) -> None:
        """Wait for a fault of the program's own; it came with the last sign of its first start."""
        self.wait_for("restart_ended")
        first = self.series().starts[0]
        self.struck = first.last_time or first.begun

    # the end

    def end(self) -> None:
        """Take away what is left of the run, whatever happened to it."""
        if not self.launched:
            return
        with contextlib.suppress(PretrainctlError, UnmetError):
            if self.jobs():
                self.place.pretrainctl("cancel", str(self.path), check=False)
                self.wait(lambda: not self.jobs(), 60.0, "its jobs to end")

    def _last_words(self) -> str:
        with contextlib.suppress(PretrainctlError, OSError):
            last = self.state().last if self.launched else None
            return f"; its last event is {last.kind}: {last.message}" if last is not None else ""
        return ""
