"""The srun that starts the training: the attempt runs it, `render`, `explain` and `diff` show it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pretrainctl.records.launch import Launch
from pretrainctl.slurm import steps

__all__ = ["shown_step", "step_name", "training_step"]


def step_name(attempt: int, restart: int) -> str:
    """The name by which the Slurm step of a restart is found again."""
    return f"train-{attempt}-{restart}"


def training_step(
    launch: Launch, run_dir: Path, nodes: Sequence[str], *, attempt: int, restart: int
) -> tuple[str, ...]:
    """The argv of a restart on `nodes`; MASTER_ADDR, MASTER_PORT and PRETRAINCTL_* come in its environment."""
    return steps.training_argv(
        launch.srun,
        nodes,
        step_name=step_name(attempt, restart),
        task=["bash", str(run_dir / "bundle" / "task.sh")],
    )


def shown_step(launch: Launch, run_dir: Path) -> tuple[str, ...]:
    """The argv of the first start, with stand-ins (`node[01-32]`) for the nodes that only the job knows."""
    width = len(str(launch.srun.nodes))
    nodes = [f"node{number:0{width}d}" for number in range(1, launch.srun.nodes + 1)]
    return training_step(launch, run_dir, nodes, attempt=1, restart=0)
