"""The srun lines of an attempt. Pure: nothing is started here.

The caller starts them with `environment.step_environment`, stdout and stderr into one log file (srun's own
messages then stand in it too), and finds the Slurm step's id by its name (`Slurm.step_ids`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pretrainctl.errors import InputError
from pretrainctl.records.launch import SrunShape
from pretrainctl.slurm.nodes import fold

__all__ = ["beats_argv", "training_argv"]

_WAIT = 60


def training_argv(shape: SrunShape, nodes: Sequence[str], *, step_name: str, task: Sequence[str]) -> tuple[str, ...]:
    """The training srun: `shape.tasks_per_node` tasks of `task` on each of `nodes`, its counts all explicit.

    Slurm sorts the nodes itself: rank 0 runs on the one that comes first in the job's node list. The first
    task that ends badly ends the step; tasks that outlive the first good end by a minute are killed.
    `shape.options` come last, so a profile can override what is here.
    """
    if len(nodes) != shape.nodes or len(set(nodes)) != shape.nodes:
        raise InputError(f"the step needs {shape.nodes} different nodes, not {list(nodes)}")
    return (
        "srun",
        f"--job-name={step_name}",
        f"--nodes={shape.nodes}",
        f"--ntasks={shape.tasks}",
        f"--ntasks-per-node={shape.tasks_per_node}",
        f"--cpus-per-task={shape.cpus_per_task}",
        f"--nodelist={fold(nodes)}",
        "--distribution=block",
        "--overlap",
        "--kill-on-bad-exit=1",
        f"--wait={_WAIT}",
        "--export=ALL",
        "--label",
        *shape.options,
        *task,
    )


def beats_argv(nodes: Sequence[str], *, step_name: str, task: Sequence[str]) -> tuple[str, ...]:
    """A small step beside the training: one task on each node, no GPU, which outlives the death of nodes."""
    return (
        "srun",
        f"--job-name={step_name}",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        "--cpus-per-task=1",
        f"--nodelist={fold(nodes)}",
        "--overlap",
        "--gres=none",
        "--mem=0",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--export=ALL",
        *task,
    )
