"""The srun lines of an attempt. Pure: nothing is started here.

The caller starts them with `environment.step_environment`, stdout and stderr into one log file (srun's own
messages then stand in it too), and finds the Slurm step's id by its name (`Slurm.step_ids`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pretrainctl.errors import InputError
from pretrainctl.records.launch import SrunShape
from pretrainctl.slurm.environment import COUNTS_OF_THE_JOB
from pretrainctl.slurm.nodes import fold

__all__ = ["beats_argv", "lookout_argv", "test_argv", "training_argv"]

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
    return _on_each(nodes, step_name, ("--gres=none",), task)


def lookout_argv(nodes: Sequence[str], *, step_name: str, task: Sequence[str]) -> tuple[str, ...]:
    """A step of one task on each of `nodes` whose srun runs on the first of them, in a step of its own.

    An srun that is told to end (SIGTERM: its host is shut down) ends its step on all nodes; one that is killed by
    Slurm, as the inner one is then, leaves its step alone (both seen on 22.05). At the job's end the inner one would
    wait for nodes that are dead, until Slurm kills it, and hold up the end of the job on its own node.
    """
    outer = _on_each(nodes[:1], step_name, ("--gres=none",), ())
    at_once = ("bash", "-c", "trap 'kill -KILL $!' TERM; \"$@\" & wait", step_name)
    unset = (f"--unset={name}" for name in sorted(COUNTS_OF_THE_JOB))
    return (*outer, *at_once, "env", *unset, *_on_each(nodes, step_name, ("--gres=none",), task))


def test_argv(nodes: Sequence[str], *, step_name: str, gpus: bool, task: Sequence[str]) -> tuple[str, ...]:
    """A step of one task on each node, with all GPUs of the job or with none; its lines are printed whole."""
    return _on_each(nodes, step_name, ("--label", *(() if gpus else ("--gres=none",))), task)


def _on_each(nodes: Sequence[str], step_name: str, options: Sequence[str], task: Sequence[str]) -> tuple[str, ...]:
    return (
        "srun",
        f"--job-name={step_name}",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        "--cpus-per-task=1",
        f"--nodelist={fold(nodes)}",
        "--overlap",
        *options,
        "--mem=0",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--export=ALL",
        *task,
    )
