"""Options of sbatch and srun that a profile may add: by their long names, and none that the plan decides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = ["check_sbatch_options", "check_srun_options", "option_name"]

_JOB_COUNTS = "resources.nodes and resources.tasks_per_node say it"
_GPUS = "resources.gpus_per_node and cluster.request.gpus say it"
_QUEUE = "resources.queue and the rows of cluster.queues say it"
_ENVIRONMENT = "jobs have the environment of the launch, and `environment` adds to it"
_NO_JOB = "with it sbatch submits no job of this run"
_DECIDED = {
    "account": "cluster.account.name says it",
    "array": "a run is one job after another",
    "chdir": "jobs start in the run folder",
    "clusters": "the chained jobs would go to another cluster than the one that is asked",
    "cpus-per-gpu": "cluster.tasks.cpus_per_task says it",
    "cpus-per-task": "cluster.tasks.cpus_per_task says it",
    "dependency": "the jobs of a run wait for each other by it",
    "error": "the log lies in the run folder",
    "exclusive": "cluster.request.exclusive says it",
    "export": _ENVIRONMENT,
    "export-file": _ENVIRONMENT,
    "get-user-env": _ENVIRONMENT,
    "gpus": _GPUS,
    "gpus-per-node": _GPUS,
    "gpus-per-socket": _GPUS,
    "gpus-per-task": _GPUS,
    "help": _NO_JOB,
    "job-name": "it is the run id, by which the jobs of a run wait for each other",
    "mail-type": "cluster.mail says it",
    "mail-user": "cluster.mail says it",
    "mem": "cluster.request.memory says it",
    "mem-per-cpu": "cluster.request.memory says it",
    "mem-per-gpu": "cluster.request.memory says it",
    "no-kill": "it is always given: a dead node ends the training step, not the job",
    "no-requeue": "it is always given: the chained job goes on",
    "nodes": _JOB_COUNTS,
    "ntasks": _JOB_COUNTS,
    "ntasks-per-gpu": _JOB_COUNTS,
    "ntasks-per-node": _JOB_COUNTS,
    "open-mode": "logs are appended to, and never overwritten",
    "output": "the log lies in the run folder",
    "oversubscribe": "cluster.request.exclusive says it",
    "parsable": "pretrainctl reads what sbatch says",
    "partition": _QUEUE,
    "qos": _QUEUE,
    "requeue": "the chained job goes on; both together would block each other",
    "signal": "cluster.signals.lead says it",
    "test-only": _NO_JOB,
    "time": "resources.walltime says it",
    "time-min": "resources.walltime says it",
    "usage": _NO_JOB,
    "version": _NO_JOB,
    "wait": "sbatch would not return before the job has ended",
    "wrap": "the script that is rendered is what runs",
}
"""Options of sbatch (its `--help`, 22.05 to 25.11) that are not for a profile to give, and why."""
_STEP = "the step has its place in the nodes of the job"
_STEP_DECIDED = {
    "cpus-per-task": "cluster.tasks.cpus_per_task says it",
    "error": "the log lies in the run folder",
    "exclude": _STEP,
    "help": "with it srun starts nothing",
    "jobid": _STEP,
    "job-name": "attempt and restart are found by it",
    "multi-prog": "all ranks run the same program",
    "nodelist": _STEP,
    "nodes": _JOB_COUNTS,
    "ntasks": _JOB_COUNTS,
    "ntasks-per-gpu": _JOB_COUNTS,
    "ntasks-per-node": _JOB_COUNTS,
    "output": "the log lies in the run folder",
    "pty": "nobody sits before a job",
    "relative": _STEP,
    "test-only": "with it srun starts nothing",
    "usage": "with it srun starts nothing",
    "version": "with it srun starts nothing",
}
"""The same of srun; what else it is given may be given otherwise."""
_LONG = {
    "A": "account",
    "B": "extra-node-info",
    "C": "constraint",
    "D": "chdir",
    "F": "nodefile",
    "G": "gpus",
    "H": "hold",
    "J": "job-name",
    "K": "kill-on-bad-exit",
    "L": "licenses",
    "M": "clusters",
    "N": "nodes",
    "O": "overcommit",
    "S": "core-spec",
    "a": "array",
    "b": "begin",
    "c": "cpus-per-task",
    "d": "dependency",
    "k": "no-kill",
    "l": "label",
    "m": "distribution",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "s": "oversubscribe",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}
"""Short options by their long names."""
_GRES_GPU = re.compile(r"(?:^|,)\s*(?:gres[/:])?gpu(?:$|[:,=\s])")


def option_name(option: str) -> str:
    """The name of a long option: `constraint` of `--constraint=a100`."""
    return option.removeprefix("--").partition("=")[0]


def check_sbatch_options(options: Sequence[str]) -> None:
    """ValueError for an option of sbatch that the plan decides, that is not a long one, or that comes twice."""
    _check(options, _DECIDED)
    for option in options:
        if option_name(option) == "gres" and _GRES_GPU.search(option.partition("=")[2]):
            raise ValueError(f"{option}: {_GPUS}")


def check_srun_options(options: Sequence[str]) -> None:
    """The same for an option of the training srun."""
    _check(options, _STEP_DECIDED)


def _check(options: Sequence[str], decided: Mapping[str, str]) -> None:
    names: set[str] = set()
    for option in options:
        name = option_name(option)
        if not option.startswith("--"):
            known = _LONG.get(option[1:2])
            raise ValueError(f"{option} is a short option: write {f'--{known}=...' if known else 'the long one'}")
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise ValueError(f"{option} is not of the form --name or --name=value")
        # Slurm takes the beginning of a name for the name.
        meant = [full for full in decided if full.startswith(name)] if name not in _WHOLE else [name]
        for full in meant:
            if full in decided:
                raise ValueError(f"{option} has no place here: {decided[full]}")
        if name in names:
            raise ValueError(f"--{name} is given twice, and Slurm takes the last")
        names.add(name)


_WHOLE = frozenset({*_DECIDED, *_STEP_DECIDED, "gres"})
"""Names that are a name of their own, even where they begin another."""
