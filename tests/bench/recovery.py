"""From a fault to the next start and to the first new step: ours, and what Slurm and PyTorch do by themselves.

    python -m tests.bench.recovery [--repeats 3] [--only spare-killed ...] [--json FILE]

A node is killed (SIGKILL of all its processes), or silent (SIGSTOP): one that trains and does not carry the batch
script, or (`host`) the one that does. A rank is killed, or stopped, where the figures count from the end of the run's
own time-out for a hang. The time limit is Slurm's own; its figures count from the last step before it. `chain-*` is a
singleton chain of a plain script, `srun-loop` a loop around srun inside the job. The start-up of the same work stands
beside: subtract it from the new step to see what the tool adds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pretrainctl.sandbox import Sandbox, Shape
from tests.bench.figures import Figure, Start, await_recovery, newest_start, now
from tests.bench.peers import Peers
from tests.sandbox.training_runs import Site, TrainingRun, meet_the_time_limit, rank_process

EVERY = 10
FAULT_AT = EVERY + 3
STEPS = 5000
HANG_AFTER = 10
"""Least seconds without a step after which a run is taken for hung in `rank-stopped`."""


class Ours:
    """Runs of ours that meet a fault."""

    def __init__(self, site: Site, sandbox: Sandbox) -> None:
        self.site = site
        self.sandbox = sandbox

    def lose_node(self, case: str, number: int, *, spares: int = 0, silent: bool = False, host: bool = False) -> Figure:
        """A node dies."""
        run = self._launch(case, number, f"resources.spares={spares}")
        batch_host = run.events("claimed")[0].message.split()[-1]
        nodes = run.events("restart_started")[0].data["nodes"]
        old, fault = newest_start(run), now()
        self.sandbox.kill_node(next(node for node in nodes if (node == batch_host) == host), silent=silent)
        return self._recover(case, run, fault, old)

    def lose_rank(self, case: str, number: int) -> Figure:
        """A rank dies."""
        run = self._launch(case, number)
        victim = rank_process(run, 1)
        old, fault = newest_start(run), now()
        os.kill(victim, signal.SIGKILL)
        return self._recover(case, run, fault, old)

    def stop_rank(self, case: str, number: int) -> Figure:
        """A rank stands still, and with it all. The figure counts from the end of the run's own time-out."""
        run = self._launch(case, number, f"cluster.hang.step={HANG_AFTER}s")
        victim = rank_process(run, 1)
        old, fault = newest_start(run), now()
        os.kill(victim, signal.SIGSTOP)
        return self._recover(case, run, fault + run.wait_for("hang").data["limit"], old)

    def meet_the_limit(self, case: str, number: int) -> Figure:
        """The job's time is over."""
        # The ranks are held until Slurm's signal comes, which may take longer than a step may.
        run = self._launch(case, number, "cluster.signals.lead=55s", "cluster.hang.step=90s")
        old = newest_start(run)
        meet_the_time_limit(self.site, run)
        run.wait_for("attempt_ended")
        last = max(one["time"] for one in run.samples() if one["attempt"] == old.attempt)
        return self._recover(case, run, last, old)

    def _launch(self, case: str, number: int, *sets: str) -> TrainingRun:
        values = [f"checkpoint.every_steps={EVERY}", "resources.walltime=00:20:00", *sets]
        run = self.site.launch(f"{case}-{number}", steps=STEPS, sets=values)
        run.wait_for_step(FAULT_AT)
        return run

    def _recover(self, case: str, run: TrainingRun, fault: float, old: Start) -> Figure:
        figure = await_recovery(case, run, fault, old)
        self.site.command("cancel", run.name)
        return figure


Case = Callable[[Ours, Peers, str, int], Figure]

CASES: dict[str, Case] = {
    "rank-killed": lambda ours, _, case, n: ours.lose_rank(case, n),
    "spare-killed": lambda ours, _, case, n: ours.lose_node(case, n, spares=1),
    "spare-silent": lambda ours, _, case, n: ours.lose_node(case, n, spares=1, silent=True),
    "no-spare-killed": lambda ours, _, case, n: ours.lose_node(case, n),
    "no-spare-silent": lambda ours, _, case, n: ours.lose_node(case, n, silent=True),
    "rank-stopped": lambda ours, _, case, n: ours.stop_rank(case, n),
    "host-killed": lambda ours, _, case, n: ours.lose_node(case, n, host=True),
    "host-silent": lambda ours, _, case, n: ours.lose_node(case, n, host=True, silent=True),
    "time-limit": lambda ours, _, case, n: ours.meet_the_limit(case, n),
    "srun-loop-rank": lambda _, peers, case, n: peers.loop(case, n),
    "torchrun-rank": lambda _, peers, case, n: peers.torchrun(case, n),
    "chain-node": lambda _, peers, case, n: peers.chain(case, n, host=False),
    "chain-host": lambda _, peers, case, n: peers.chain(case, n, host=True),
    "requeue-node": lambda _, peers, case, n: peers.requeue(case, n),
}
SLOW = {"requeue-node"}
"""Three minutes each."""


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--slow-repeats", type=int, default=1, help=f"of {', '.join(SLOW)}, three minutes each")
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES), metavar="CASE")
    parser.add_argument("--json", type=Path, help="each figure, besides the medians")
    chosen = parser.parse_args()
    end_well()
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="ptb-", dir="/tmp"))
    sandbox = Sandbox(folder / "sb")
    figures: list[Figure] = []
    lost: Counter[str] = Counter()
    try:
        sandbox.up(Shape(nodes=4, gpus=4))
        site = make_site(folder, sandbox)
        ours, peers = Ours(site, sandbox), Peers(site, sandbox, steps=STEPS, every=EVERY, fault_at=FAULT_AT)
        for case in chosen.only:
            for number in range(chosen.slow_repeats if case in SLOW else chosen.repeats):
                try:
                    figures.append(CASES[case](ours, peers, case, number))
                    told = _row(case, "", figures[-1])
                except AssertionError as error:  # torchrun may use up its restarts
                    told = f"{case}: {error}"
                    lost[case] += 1
                print(f"{time.monotonic() - begun:6.0f} s  {told}", file=sys.stderr, flush=True)
                sandbox.reset()
                site.forget_nodes()
        _show(figures, lost, sandbox)
        print(f"all of it took {(time.monotonic() - begun) / 60:.1f} minutes")
        if chosen.json:
            chosen.json.write_text(json.dumps([vars(figure) for figure in figures], indent=1))
    finally:
        sandbox.down()
        shutil.rmtree(folder, ignore_errors=True)


def end_well() -> None:
    """Let SIGTERM unwind this program, so that its sandbox is taken down."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def make_site(folder: Path, sandbox: Sandbox, **environment: str) -> Site:
    """A user of the sandbox in `folder`, who has data; `environment` comes on top."""
    own = {"PRETRAINCTL_RUNS": str(folder / "runs"), "PRETRAINCTL_CONFIG": str(folder / "config"), **environment}
    site = Site(folder, {**os.environ, **sandbox.environment(), **own})
    output = folder / "data" / "quickstart"
    if not output.with_suffix(".bin").exists():
        source = Path(sysconfig.get_paths()["stdlib"]) / "email"
        words = ("--input", str(source), "--suffix", ".py", "--output", str(output))
        site.python("-m", "pretrainctl.trainer.tokenize", *words)
    return site


def _row(case: str, runs: str, figure: Figure) -> str:
    return f"{case:<18}{runs:>5}{figure.next_start:>12.2f}{figure.new_step:>10.2f}{figure.start_up:>10.2f}"


def _show(figures: list[Figure], lost: Counter[str], sandbox: Sandbox) -> None:
    config = sandbox.command("scontrol", "show", "config").stdout
    timeout = next(line.split("=")[1].strip() for line in config.splitlines() if line.startswith("SlurmdTimeout"))
    print(f"medians in seconds; SlurmdTimeout {timeout}")
    print(f"{'case':<18}{'runs':>5}{'next start':>12}{'new step':>10}{'start-up':>10}")
    for case in dict.fromkeys(figure.case for figure in figures):
        mine = [figure for figure in figures if figure.case == case]
        medians = [statistics.median(getattr(f, key) for f in mine) for key in ("next_start", "new_step", "start_up")]
        print(_row(case, str(len(mine)), Figure(case, *medians)))
    for case, times in lost.items():
        print(f"{case}: {times} more did not recover")


if __name__ == "__main__":
    main()
