"""How fast `doctor --log` reads, beside `grep -c ''`: python -m tests.bench.doctor [--megabytes 200] [--label].

The log is what 2,048 ranks of a healthy run print, and at its end one GPU that breaks and the echoes of the others.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from pretrainctl.workflows.doctor import examine_logs

RANKS = 2048


def line(rng: random.Random, number: int, rank: int) -> str:
    kind = rng.random()
    clock = f"2026-11-30 10:{number // 60000 % 60:02d}:{number // 1000 % 60:02d},{number % 1000:03d}"
    if kind < 0.3:
        return f"[{clock}] [INFO] [engine.py:1234:step] [Rank {rank}] micro step {rng.random():.4f} s"
    if kind < 0.4:
        return (
            f" [{clock}] iteration {number:8d}/ 500000 | consumed samples: {number * 512:12d} | elapsed time per "
            f"iteration (ms): {rng.random() * 1000:.1f} | learning rate: 1.500000E-04 | lm loss: {rng.random():.6E} | "
            f"grad norm: {rng.random():.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
    if kind < 0.7:
        return (
            f"gn{rank // 4:03d}:{number}:{number + 7} [{rank % 4}] NCCL INFO Channel {number % 32:02d}/0 : "
            f"{rank}[{rank % 4}] -> {(rank + 1) % RANKS}[{(rank + 1) % 4}] via P2P/CUMEM/read"
        )
    return (
        f'  File "/opt/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line {number % 900}, in _next'
    )


def make_log(path: Path, megabytes: float, *, label: bool) -> None:
    rng = random.Random(1)
    size = number = 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1e6:
            number += 1
            rank = rng.randrange(RANKS)
            size += file.write((f"{rank:4d}: " if label else "") + line(rng, number, rank) + "\n")
        end = "ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank"
        for index, rank in enumerate([1234, *range(0, RANKS, 3)]):
            what = "NCCL error: remote process exited or there was a network error"
            if index == 0:
                what = "CUDA error: uncorrectable ECC error encountered"
            prefix = f"{rank:4d}: " if label else ""
            file.write(
                f"{prefix}[rank{rank}]:[E1130 11:40:{index % 60:02d}.227531918 {end} {rank}] Process group watchdog "
                f"thread terminated with exception: {what}\n"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--label", action="store_true", help="lines as `srun --label` writes them")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        make_log(log, options.megabytes, label=options.label)
        grep, doctor = [], []
        for _ in range(options.rounds):
            begun = time.perf_counter()
            counted = subprocess.run(["grep", "-c", "", str(log)], capture_output=True, text=True, check=True).stdout
            grep.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            found = examine_logs([log])
            doctor.append(time.perf_counter() - begun)
        assert (found.failure_class, found.ranks) == ("gpu_hardware", (1234,)), found
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        fast, slow = statistics.median(grep), statistics.median(doctor)
        print(f"{log.stat().st_size / 1e6:.0f} MB, {int(counted):,} lines, medians of {options.rounds}")
        print(f"grep -c ''    {fast:.3f} s")
        print(f"doctor --log  {slow:.3f} s, {log.stat().st_size / 1e6 / slow:.0f} MB/s, peak memory {peak:.0f} MB")
        print(f"ratio         {slow / fast:.1f}")


if __name__ == "__main__":
    main()
