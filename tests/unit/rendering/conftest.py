"""A run folder with a rendered bundle, and what stands in for srun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import pytest

from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle, write_bundle


class Run:
    """A run folder on disk whose training program is `argv`; `start` runs task.sh as one task of an srun."""

    def __init__(self, folder: Path, argv: Sequence[str], settings: Sequence[str]) -> None:
        self.folder = folder
        program = {"argv": list(argv), "checkpoint": {"directory": "{run_dir}/checkpoints"}}
        plan = make_plan(
            "quickstart",
            "sandbox",
            set_values=[f"program={json.dumps(program)}", *settings],
            directory=folder,
        )
        self.launch, _, self.bundle = render_bundle(plan, folder, python=sys.executable)
        self.restart = folder / "attempts" / "0008" / "restart-1"
        self.restart.mkdir(parents=True)
        self.paths = write_bundle(self.bundle, folder / "bundle")

    def start(
        self, rank: int = 0, tasks: int = 1, stdout: IO[bytes] | int = subprocess.PIPE, **variables: str
    ) -> subprocess.Popen[bytes]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": "0",
            "SLURM_NTASKS": str(tasks),
            "SLURMD_NODENAME": f"node{rank:02d}",
            "PRETRAINCTL_RUN_DIR": str(self.folder),
            "PRETRAINCTL_ATTEMPT": "8",
            "PRETRAINCTL_RESTART": "1",
            **variables,
        }
        return subprocess.Popen(
            ["bash", str(self.folder / "bundle" / "task.sh")],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    """Render a run whose program is the given argv."""

    def make(*argv: str, settings: Sequence[str] = (), name: str = "run") -> Run:
        return Run(tmp_path / name, argv, settings)

    return make
