"""From a fault to the next start and to the first new step: ours, and Slurm's own --requeue, in one run.

    python -m tests.bench.recovery [--repeats 3] [--only spare-killed ...] [--json FILE]

The fault is SIGKILL (or SIGSTOP: `silent`) of every process of a node that trains: one that does not carry the batch
script, or (`host`) the one that does. `next start` is the moment before the next srun, `new step` the first step that
nobody had done before. The start-up of the same work stands beside: subtract it to see what the tool adds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pretrainctl.sandbox import Sandbox, Shape
from tests.sandbox.training_runs import Site, wait_until

EVERY = 10
FAULT_AT = EVERY + 3
STEPS = 5000


@dataclass(frozen=True)
class Figure:
    """Seconds from the fault; `start_up` from the start of the first srun to its first step."""

    case: str
    next_start: float
    new_step: float
    start_up: float


def ours(
    site: Site, sandbox: Sandbox, case: str, number: int, *, spares: int, silent: bool, host: bool = False
) -> Figure:
    """A run of ours that loses a node."""
    run = site.launch(
        f"{case}-{number}",
        steps=STEPS,
        sets=[f"checkpoint.every_steps={EVERY}", f"resources.spares={spares}", "resources.walltime=00:20:00"],
    )
    run.wait_for_step(FAULT_AT)
    first = run.events("restart_started")[0]
    start_up = run.samples()[0]["time"] - first.time
    batch_host = run.events("claimed")[0].message.split()[-1]
    victim = next(node for node in first.data["nodes"] if (node == batch_host) == host)
    fault = time.time()
    sandbox.kill_node(victim, silent=silent)
    before = run.step()
    wait_until(lambda: run.step() > before and len(run.events("restart_started")) > 1, 240, "a new step")
    second = run.events("restart_started")[1]
    new = next(sample for sample in run.samples() if sample["step"] > before and sample["time"] > second.time)
    site.command("cancel", run.name)
    return Figure(case, second.time - fault, new["time"] - fault, start_up)


def requeue(site: Site, sandbox: Sandbox, case: str, number: int, *, silent: bool) -> Figure:
    """The same work under Slurm's own --requeue, resumed from `latest` by a plain script."""
    model = site.launch(f"{case}-{number}", steps=STEPS, sets=[f"checkpoint.every_steps={EVERY}"])
    site.command("cancel", model.name)
    wait_until(lambda: not model.jobs(), 60, "the jobs to end")
    shutil.rmtree(model.folder / "checkpoints")
    shutil.rmtree(model.folder / "attempts")
    (model.folder / "checkpoints").mkdir()
    script = model.folder / "requeue.sbatch"
    script.write_text(
        "#!/bin/bash\n"
        "#SBATCH --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append --output=requeue.out\n"
        "export MASTER_ADDR=localhost MASTER_PORT=$((40000 + SLURM_JOB_ID % 1000 + ${SLURM_RESTART_COUNT:-0}))\n"
        f"export PRETRAINCTL_RUN_DIR={model.folder} PRETRAINCTL_ATTEMPT=1 LOCAL_WORLD_SIZE=1 OMP_NUM_THREADS=1\n"
        "export PRETRAINCTL_RESTART=${SLURM_RESTART_COUNT:-0} DS_ACCELERATOR=cpu\n"
        "export PRETRAINCTL_RESUME_TAG=$(cat checkpoints/latest 2>/dev/null)\n"
        "mkdir -p attempts/0001/restart-$PRETRAINCTL_RESTART\n"
        "date +%s.%N >attempts/0001/restart-$PRETRAINCTL_RESTART/begun\n"
        "srun --cpus-per-task=1 bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS"
        f" exec {sys.executable} -m pretrainctl.trainer bundle/training.json'\n"
    )
    job = site.slurm("sbatch", "--parsable", f"--chdir={model.folder}", str(script)).strip()
    wait_until(lambda: model.step() >= FAULT_AT, 120, f"step {FAULT_AT}")
    begun = [model.folder / "attempts" / "0001" / f"restart-{index}" / "begun" for index in (0, 1)]
    start_up = model.samples()[0]["time"] - float(begun[0].read_text())
    nodes = site.slurm("squeue", "-h", "-j", job, "-o", "%N %B").split()
    expanded = site.slurm("scontrol", "show", "hostnames", nodes[0]).split()
    fault = time.time()
    sandbox.kill_node(next(node for node in expanded if node != nodes[1]), silent=silent)
    before = model.step()
    wait_until(lambda: model.step() > before and begun[1].exists(), 300, "the requeued job's new step")
    again = float(begun[1].read_text())
    new = next(sample for sample in model.samples() if sample["step"] > before and sample["time"] > again)
    site.slurm("scancel", job)
    return Figure(case, again - fault, new["time"] - fault, start_up)


CASES: dict[str, Callable[[Site, Sandbox, str, int], Figure]] = {
    "spare-killed": lambda site, box, case, n: ours(site, box, case, n, spares=1, silent=False),
    "spare-silent": lambda site, box, case, n: ours(site, box, case, n, spares=1, silent=True),
    "no-spare-killed": lambda site, box, case, n: ours(site, box, case, n, spares=0, silent=False),
    "no-spare-silent": lambda site, box, case, n: ours(site, box, case, n, spares=0, silent=True),
    "host-killed": lambda site, box, case, n: ours(site, box, case, n, spares=0, silent=False, host=True),
    "host-silent": lambda site, box, case, n: ours(site, box, case, n, spares=0, silent=True, host=True),
    "requeue-killed": lambda site, box, case, n: requeue(site, box, case, n, silent=False),
}


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--requeue-repeats", type=int, default=1, help="one takes three minutes")
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ptb-", dir="/tmp"))
    sandbox = Sandbox(folder / "sb")
    figures: list[Figure] = []
    try:
        sandbox.up(Shape(nodes=4, gpus=4))
        site = _site(folder, sandbox)
        for case in chosen.only:
            for number in range(chosen.requeue_repeats if case.startswith("requeue") else chosen.repeats):
                figures.append(CASES[case](site, sandbox, case, number))
                print(figures[-1], file=sys.stderr, flush=True)
                sandbox.reset()
        _show(figures, sandbox)
        if chosen.json:
            chosen.json.write_text(json.dumps([vars(figure) for figure in figures], indent=1))
    finally:
        sandbox.down()
        shutil.rmtree(folder, ignore_errors=True)


def _site(folder: Path, sandbox: Sandbox) -> Site:
    site = Site(folder, {**os.environ, **sandbox.environment(), "PRETRAINCTL_RUNS": str(folder / "runs")})
    source = Path(sysconfig.get_paths()["stdlib"]) / "email"
    output = str(folder / "data" / "quickstart")
    site.python("-m", "pretrainctl.trainer.tokenize", "--input", str(source), "--suffix", ".py", "--output", output)
    return site


def _show(figures: list[Figure], sandbox: Sandbox) -> None:
    config = sandbox.command("scontrol", "show", "config").stdout
    timeout = next(line.split("=")[1].strip() for line in config.splitlines() if line.startswith("SlurmdTimeout"))
    print(f"medians in seconds; SlurmdTimeout {timeout}")
    print(f"{'case':<18}{'runs':>5}{'next start':>12}{'new step':>10}{'start-up':>10}")
    for case in dict.fromkeys(figure.case for figure in figures):
        mine = [figure for figure in figures if figure.case == case]
        row = [statistics.median(getattr(f, key) for f in mine) for key in ("next_start", "new_step", "start_up")]
        print(f"{case:<18}{len(mine):>5}" + f"{row[0]:>12.2f}{row[1]:>10.2f}{row[2]:>10.2f}")


if __name__ == "__main__":
    main()
