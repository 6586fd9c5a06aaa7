"""What it costs to watch a training: python -m tests.bench.watching [--seconds 60] [--nodes 2] [--spares 1].

CPU time and memory of the attempt and of each node's beats while a run trains undisturbed, the questions that the
attempt puts to Slurm meanwhile, and what a report and a look for requests cost the training program itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pretrainctl.sandbox import Sandbox, Shape
from pretrainctl.telemetry import Reporter, Requests
from tests.bench.recovery import end_well, make_site
from tests.sandbox.training_runs import TrainingRun, wait_until

ASKED = ("squeue", "sacct", "scontrol", "sinfo", "sacctmgr", "scancel", "sbatch")
SETTLED_AFTER = 10.0
"""Seconds from the start of a restart after which nothing of the start is left to do."""
TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK


def memory(pid: int) -> tuple[float, float]:
    """Resident and proportional memory, in MB (10^6 bytes)."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    rss, pss = (int(lines[key].split()[0]) * 1024 / 1e6 for key in ("Rss", "Pss"))
    return rss, pss


def watchers(run: TrainingRun) -> dict[int, str]:
    """Pid and name of the attempt, of the beats, and of the sruns that hold both."""
    (attempt,) = [event.attempt for event in run.events("claimed")]
    found = {}
    job = f"SLURM_JOB_ID={run.events('claimed')[0].data['job_id']}".encode()
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        with suppress(OSError):
            command = (path / "cmdline").read_bytes().split(b"\0")
            environment = (path / "environ").read_bytes().split(b"\0")
            if job not in environment or os.fsencode(run.site.environment["SLURM_CONF"]) not in b"".join(environment):
                continue
            node = next((one for one in environment if one.startswith(b"SLURMD_NODENAME=")), b"=").partition(b"=")[2]
            if b"pretrainctl.liveness.beat" in command and not command[0].endswith(b"srun"):
                found[int(path.name)] = f"beats of {node.decode()}"
            elif b"pretrainctl.liveness.lookout" in command and b"srun" not in command:
                found[int(path.name)] = f"lookout on {node.decode()}"
            elif b"attempt" in command and b"pretrainctl" in command:
                found[int(path.name)] = f"attempt {attempt}"
            elif command[0].endswith(b"srun"):
                name = next(word for word in command if word.startswith(b"--job-name=")).partition(b"=")[2]
                found[int(path.name)] = f"srun {name.decode()}"
    return found


def log_questions(folder: Path, path: str) -> tuple[Path, Path]:
    """Programs that stand in front of Slurm's own, and write down who called; their folder, and the list."""
    stand_ins, asked = folder / "bin", folder / "asked"
    stand_ins.mkdir()
    for name in ASKED:
        real = shutil.which(name, path=path)
        (stand_ins / name).write_text(f'#!/bin/sh\necho "$PPID $(date +%s.%N) {name} $*" >>{asked}\nexec {real} "$@"\n')
        (stand_ins / name).chmod(0o755)
    return stand_ins, asked


def questions(asked: Path, pid: int, since: float, until: float) -> Counter[str]:
    """What the attempt asked in a stretch of time."""
    found: Counter[str] = Counter()
    for line in asked.read_text().splitlines() if asked.exists() else ():
        caller, moment, program = line.split()[:3]
        if int(caller) == pid and since <= float(moment) <= until:
            found[program] += 1
    return found


def microseconds(what: Callable[[int], object], times: int) -> float:
    """Microseconds a call, the best of five tries: what else runs here is no cost of the call."""
    tries = []
    for _ in range(5):
        begun = time.perf_counter()
        for number in range(times):
            what(number)
        tries.append((time.perf_counter() - begun) / times * 1e6)
    return min(tries)


def telemetry(folder: Path) -> dict[str, float]:
    """Microseconds of rank 0 for a step's report, and for a look for requests."""
    os.environ |= {"PRETRAINCTL_RUN_DIR": str(folder), "PRETRAINCTL_ATTEMPT": "1", "PRETRAINCTL_RESTART": "0"}
    os.environ["RANK"] = "0"
    reporter, requests = Reporter(), Requests()
    return {
        "Reporter.step": microseconds(lambda n: reporter.step(n, n * 512, 2.345678, 0.987654, 1.5e-4, 0.0731), 10_000),
        "Requests.poll": microseconds(lambda _n: requests.poll(), 100_000),
    }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--spares", type=int, default=1)
    chosen = parser.parse_args()
    end_well()
    folder = Path(tempfile.mkdtemp(prefix="ptw-", dir="/tmp"))
    sandbox = Sandbox(folder / "sb")
    try:
        sandbox.up(Shape(nodes=chosen.nodes + chosen.spares, gpus=4))
        stand_ins, asked = log_questions(folder, sandbox.environment()["PATH"])
        site = make_site(folder, sandbox, PATH=f"{stand_ins}:{sandbox.environment()['PATH']}")
        shape = [f"resources.nodes={chosen.nodes}", f"resources.spares={chosen.spares}", "checkpoint.every_steps=200"]
        run = site.launch("watched", steps=100_000, sets=shape)
        run.wait_for_step(20)
        wait_until(lambda: time.time() > run.events("restart_started")[0].time + SETTLED_AFTER, 60, "the start's end")
        found = watchers(run)
        steps, begun = run.step(), time.time()
        before = {pid: cpu_seconds(pid) for pid in found}
        time.sleep(chosen.seconds)
        took, done = time.time() - begun, run.step() - steps
        after = {pid: cpu_seconds(pid) for pid in found}
        print(f"{took:.0f} s of a run that trains, {done} steps, {chosen.nodes} nodes and {chosen.spares} spares")
        print(f"{'':<24}{'CPU, % of a core':>18}{'RSS, MB':>10}{'PSS, MB':>10}")
        for pid, name in sorted(found.items(), key=lambda one: one[1]):
            rss, pss = memory(pid)
            print(f"{name:<24}{(after[pid] - before[pid]) / took * 100:>18.2f}{rss:>10.1f}{pss:>10.1f}")
        attempt = next(pid for pid, name in found.items() if name.startswith("attempt"))
        told = questions(asked, attempt, begun, begun + took)
        print(f"questions to Slurm: {told.total() * 30 / took:.2f} in 30 s {dict(told) or ''}")
        print(f"at the start: {dict(questions(asked, attempt, 0, begun))}")
        site.command("cancel", run.name)
        sandbox.down()
        for name, cost in telemetry(folder / "telemetry").items():
            print(f"{name:<24}{cost:>8.1f} us a call")
    finally:
        sandbox.down()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
