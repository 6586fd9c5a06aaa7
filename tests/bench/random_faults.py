"""Random faults at random times, each run held against the undisturbed run of the same recipe.

    python -m tests.bench.random_faults [--runs 50] [--from 1] [--seed 1] [--only-seed K] [--folder DIR]

A run is drawn from its number and the seed alone: nodes, spares, ZeRO stage, one to three faults, and when. It must
finish by itself in bounded time, with the losses of every step and the final weights equal to the last bit, no step
done by two starts at once, and nothing left behind. With --folder, what is done is kept there: a second call with the
same folder goes on where the first was ended, and makes no undisturbed run twice.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pretrainctl.errors import PretrainctlError
from pretrainctl.runs.state import fold
from pretrainctl.sandbox import Sandbox, Shape
from tests.bench.faults import FAULTS, Fault, Scene
from tests.bench.recovery import end_well, make_site
from tests.bench.verdict import Expected, wrong_with
from tests.sandbox.training_runs import TrainingRun

STEPS = 200
EVERY = 10
NODES = 6
LONGEST = 300.0
"""Seconds that a run may take; undisturbed, one takes 15."""
START_LIMIT = 90
"""Seconds after which a rank that stands still before its first step is noticed: the sandbox's own are five minutes."""
SLOW = 90.0
"""Seconds after which its events are printed."""


@dataclass(frozen=True)
class Blow:
    """A fault: it strikes `pause` seconds after the run has reached `step` and the one before has struck."""

    kind: Fault
    step: int
    pause: float
    u: float
    v: float


@dataclass(frozen=True)
class Story:
    """What is drawn for one run, with all of its faults in order."""

    number: int
    nodes: int
    spares: int
    stage: int
    faults: tuple[Blow, ...]

    @classmethod
    def draw(cls, seed: int, number: int) -> Story:
        """The story of a number; the same for the same seed."""
        rng = random.Random(f"{seed}-{number}")
        count = rng.choice((1, 2, 2, 3))
        kinds = rng.choices(list(FAULTS), list(FAULTS.values()), k=count)
        steps = sorted(rng.choice((0, *[rng.randrange(1, STEPS - EVERY)] * 3)) for _ in kinds)
        faults = [
            Blow(kind, step, rng.uniform(0.0, 5.0), rng.random(), rng.random())
            for kind, step in zip(kinds, steps, strict=True)
        ]
        return cls(number, rng.choice((2, 2, 2, 4)), rng.choice((0, 1, 1)), rng.choice((1, 2, 3)), tuple(faults))

    @property
    def shape(self) -> str:
        """What decides the weights."""
        return f"{self.nodes} nodes, ZeRO {self.stage}"

    def words(self) -> str:
        """One line."""
        told = ", ".join(f"{blow.kind.__name__} at {blow.step} + {blow.pause:.1f} s" for blow in self.faults)
        return f"{self.shape}, {self.spares} spares: {told}"


def ledger(run: TrainingRun) -> str:
    """The events of a run with their times, for one that took long."""
    events = run.events()
    first = min(event.time for event in events)
    ordered = sorted(events, key=lambda event: event.time)
    return "\n".join(f"        {one.time - first:6.1f} s {one.attempt} {one.kind}: {one.message}" for one in ordered)


def struck(blow: Blow, scene: Scene) -> str:
    """What the fault says that it did."""
    try:
        return blow.kind(scene, blow.u, blow.v)
    except (PretrainctlError, AssertionError) as error:
        return f"it could not strike: {error}"


class Stage:
    """The sandbox, its user, and the undisturbed runs."""

    def __init__(self, folder: Path, sandbox: Sandbox) -> None:
        self.folder = folder
        self.sandbox = sandbox
        self.site = make_site(folder, sandbox, PRETRAINCTL_WEIGHTS_DIGEST="1")

    def launch(self, name: str, story: Story, spares: int) -> TrainingRun:
        """The run of a story."""
        sets = [
            f"resources.nodes={story.nodes}",
            f"resources.spares={spares}",
            f"training.micro_batch={8 // story.nodes}",
            f"training.zero_stage={story.stage}",
            f"checkpoint.every_steps={EVERY}",
            f"cluster.hang.start={START_LIMIT}s",
        ]
        return self.site.launch(name, steps=STEPS, sets=sets)

    def expected(self, story: Story) -> Expected:
        """What the undisturbed run of the same recipe gave."""
        known = self.folder / f"undisturbed {story.shape}.json"
        if not known.exists():
            run = self.launch(f"undisturbed-{story.nodes}-{story.stage}-{time.time():.0f}", story, 0)
            run.wait_for_finish()
            known.write_text(json.dumps(vars(Expected.of(run))))
            self.sandbox.reset()  # nobody writes into the folder any more
            shutil.rmtree(run.folder)
        found = json.loads(known.read_text())
        return Expected({int(step): loss for step, loss in found["losses"].items()}, found["weights"])

    def play(self, story: Story, name: str) -> tuple[TrainingRun, list[str], str]:
        """Run a story; the run, what happened to it, and what is wrong with it (empty: nothing)."""
        run = self.launch(name, story, story.spares)
        scene = Scene(run, self.sandbox)
        begun = time.monotonic()
        told: list[str] = []
        waiting = list(story.faults)
        reached: float | None = None
        wrong = ""

        def say(text: str) -> None:
            told.append(f"{time.monotonic() - begun:6.1f} s at step {run.step()}: {text}")

        while not run.events("finished"):
            if waiting and reached is None and run.step() >= waiting[0].step:
                reached = time.monotonic()
            if waiting and reached is not None and time.monotonic() >= reached + waiting[0].pause:
                blow, reached = waiting.pop(0), None
                say(f"{blow.kind.__name__}: {struck(blow, scene)}")
            for mended in scene.mend():
                say(mended)
            stopped = fold(run.events()).stopped
            if stopped is not None or time.monotonic() - begun > LONGEST:
                wrong = f"stopped: {stopped}" if stopped is not None else f"not finished after {LONGEST:.0f} s"
                break
            time.sleep(0.1)
        say("it is over")
        for mended in scene.mend(all_of_it=True):
            say(mended)
        return run, told, wrong or wrong_with(run, self.expected(story), faults=len(story.faults))


def to_do(results: Path, first: int, runs: int) -> list[int]:
    """Numbers of this call, less those that an earlier one has done."""
    lines = results.read_text().splitlines() if results.exists() else []
    over = {int(line.split()[0]) for line in lines if line}
    return [number for number in range(first, first + runs) if number not in over]


def main() -> int:
    """Play the stories; 1 where one ended wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--from", type=int, default=1, dest="first", help="number of the first run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only-seed", type=int, metavar="K", help="the run of this number, once more")
    parser.add_argument("--folder", type=Path, help="keep runs that ended wrong, and what is done, here")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no run after these")
    chosen = parser.parse_args()
    end_well()
    begun = time.monotonic()
    folder = (chosen.folder or Path(tempfile.mkdtemp(prefix="ptr-", dir="/tmp"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / f"seed-{chosen.seed}.txt"
    numbers = [chosen.only_seed] if chosen.only_seed is not None else to_do(results, chosen.first, chosen.runs)
    bad = played = 0
    sandbox = Sandbox(Path(tempfile.mkdtemp(prefix="ptr-", dir="/tmp")))
    try:
        sandbox.up(Shape(nodes=NODES, gpus=4))
        stage = Stage(folder, sandbox)
        for number in numbers:
            story = Story.draw(chosen.seed, number)
            stage.expected(story)
            if time.monotonic() - begun > chosen.seconds:
                break
            played += 1
            started = time.monotonic()
            run, told, wrong = stage.play(story, f"random-{chosen.seed}-{number}-{time.time():.0f}")
            line = (
                f"{number} {'WRONG: ' + wrong if wrong else 'ok'}, {time.monotonic() - started:.0f} s; {story.words()}"
            )
            print(line, *(f"    {one}" for one in told), sep="\n", flush=True)
            with results.open("a") as file:
                file.write(line + "\n")
            if not wrong and time.monotonic() - started > SLOW:
                print(ledger(run), run.story(), sep="\n", flush=True)
            if wrong:
                bad += 1
                print(run.story(), f"kept: {run.folder}", sep="\n", flush=True)
            else:
                shutil.rmtree(run.folder)
            sandbox.reset()
            stage.site.forget_nodes()
    finally:
        sandbox.down()
        shutil.rmtree(sandbox.root, ignore_errors=True)
        if chosen.folder is None and not bad:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{bad} of {played} ended wrong, {(time.monotonic() - begun) / 60:.1f} minutes")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
