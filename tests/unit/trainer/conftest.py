"""Real trainings: ranks as plain processes that meet over gloo, as the task script of a job starts them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pretrainctl.records import codec
from pretrainctl.records.contract import End, restart_dir
from pretrainctl.trainer.tokenize import VOCAB, tokenize

PATIENCE = 180.0
"""Seconds within which anything a test waits for has happened, on a slow and busy machine."""


@dataclass
class Restart:
    """The ranks of one start of the training program, and what they left."""

    run_dir: Path
    attempt: int
    ranks: list[subprocess.Popen[bytes]]
    logs: list[Path]

    def wait(self) -> list[int]:
        """Exit codes by rank."""
        deadline = time.monotonic() + PATIENCE
        return [rank.wait(max(0.1, deadline - time.monotonic())) for rank in self.ranks]

    def wait_for_one(self, code: int) -> list[int | None]:
        """Exit codes by rank once one has ended with `code`; the others, which wait for it, are then killed."""
        deadline = time.monotonic() + PATIENCE
        while code not in (codes := [rank.poll() for rank in self.ranks]):
            assert None in codes, codes
            assert time.monotonic() < deadline, self.log(0)
            time.sleep(0.05)
        self.stop()
        return codes

    def wait_for(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first line of metrics for which `condition` holds."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for line in self.metrics():
                if condition(line):
                    return line
            assert self.ranks[0].poll() is None, self.log(0)
            time.sleep(0.02)
        raise AssertionError(self.log(0))

    def wait_for_step(self, step: int) -> None:
        """Wait until an optimizer step is reported."""
        self.wait_for(lambda line: line["kind"] == "step" and line["step"] >= step)

    def metrics(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Lines of metrics that are whole."""
        path = self.directory / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if kind in {None, line["kind"]}]

    @property
    def directory(self) -> Path:
        return restart_dir(self.run_dir, self.attempt, 0)

    @property
    def end(self) -> End:
        return codec.read(End, self.directory / "end.json")

    @property
    def digest(self) -> str:
        return (self.directory / "weights.sha256").read_text()

    def log(self, rank: int) -> str:
        return self.logs[rank].read_text()

    def stop(self) -> None:
        for rank in self.ranks:
            if rank.poll() is None:
                os.kill(rank.pid, signal.SIGKILL)
                rank.wait(30)


@dataclass
class Trainer:
    """A run folder with settings; `start` starts its ranks."""

    run_dir: Path
    settings: dict[str, Any]
    restarts: list[Restart] = field(default_factory=list)

    @property
    def checkpoints(self) -> Path:
        return Path(self.settings["checkpoint"]["directory"])

    def tags(self) -> list[str]:
        return sorted(path.name for path in self.checkpoints.glob("global_step*"))

    def start(self, *, attempt: int = 1, tag: str | None = "", ranks: int = 2) -> Restart:
        """Start one process a rank. No program is on their PATH: nothing may be compiled or looked for."""
        settings = self.run_dir / f"training-{attempt}.json"
        settings.write_text(json.dumps(self.settings))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        shared = {
            "PATH": str(self.run_dir / "no-programs"),
            "HOME": str(self.run_dir),
            "TORCH_EXTENSIONS_DIR": str(self.run_dir / "extensions"),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "PRETRAINCTL_RUN_DIR": str(self.run_dir),
            "PRETRAINCTL_ATTEMPT": str(attempt),
            "PRETRAINCTL_RESTART": "0",
            "PRETRAINCTL_WEIGHTS_DIGEST": "1",
        }
        if tag is not None:
            shared["PRETRAINCTL_RESUME_TAG"] = tag
        logs = [self.run_dir / f"log-{attempt}-{rank}.txt" for rank in range(ranks)]
        processes = []
        for rank, log in enumerate(logs):
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", "pretrainctl.trainer", str(settings)],
                    env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
                processes.append(process)
        self.restarts.append(Restart(self.run_dir, attempt, processes, logs))
        return self.restarts[-1]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """Prefix of token files made from real text: two packages of the standard library."""
    prefix = tmp_path_factory.mktemp("corpus") / "stdlib.text"
    library = Path(json.__file__).parents[1]
    tokenize([library / "json", library / "email"], prefix, ".py")
    return prefix


@pytest.fixture
def settings(corpus) -> dict[str, Any]:
    """A tiny model: 2 layers of width 32, 8 sequences of 64 tokens a step."""
    return {
        "model": {
            "layers": 2,
            "hidden": 32,
            "heads": 4,
            "kv_heads": 2,
            "ffn": 64,
            "vocab": VOCAB,
            "context": 64,
        },
        "data": {"sources": [{"prefix": str(corpus)}], "sequence_length": 64, "seed": 11},
        "optimizer": {"lr": 0.01, "clip": 0.5},
        "schedule": {"warmup_steps": 2},
        "checkpoint": {"directory": "", "every_steps": 4},
        "precision": "fp32",
        "zero_stage": 2,
        "total_steps": 8,
        "global_batch": 8,
        "micro_batch": 2,
        "init_seed": 5,
        "deepspeed_config": "",
        "threads": 1,
    }


@pytest.fixture
def trainer(tmp_path, settings) -> Iterator[Trainer]:
    """A run folder whose ranks are gone when the test is."""
    settings["checkpoint"]["directory"] = str(tmp_path / "checkpoints")
    settings["deepspeed_config"] = str(tmp_path / "deepspeed.json")
    (tmp_path / "deepspeed.json").write_text("{}")
    (tmp_path / "control").mkdir()
    made = Trainer(tmp_path, settings)
    yield made
    for restart in made.restarts:
        restart.stop()
