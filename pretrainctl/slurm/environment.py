"""Which of an outer job's variables a new job, a query and a Slurm step may see."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["COUNTS_OF_THE_JOB", "clean_environment", "query_environment", "step_environment"]

_SLURM_PREFIXES = (
    "SLURM_",
    "SLURMD_",
    "SBATCH_",
    "SRUN_",
    "SALLOC_",
    "SQUEUE_",
    "SACCT_",
    "SINFO_",
    "SCANCEL_",
)
_NEEDED_TO_REACH_SLURM = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")

COUNTS_OF_THE_JOB = frozenset(
    {
        # Counts: srun takes each as an option, and `srun -N2` in a job of three nodes is refused for them.
        *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_TASKS_PER_NODE"),
        *(
            "SLURM_NTASKS_PER_NODE",
            "SLURM_NTASKS_PER_CORE",
            "SLURM_NTASKS_PER_SOCKET",
            "SLURM_NTASKS_PER_GPU",
        ),
        # Cores: a second value beside an explicit --cpus-per-task is fatal.
        *("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_TRES_PER_TASK"),
        # GPUs of the whole job; SLURM_GPUS_PER_NODE fits any number of nodes and stays.
        *("SLURM_GPUS", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET"),
        # Memory: two of these are "mutually exclusive"; without any, a step has the job's.
        *("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"),
        # Placement of the job's tasks, and choices that the builder of the srun line makes itself.
        *("SLURM_DISTRIBUTION", "SLURM_DIST_PLANESIZE", "SLURM_SPREAD_JOB", "SLURM_HOSTFILE"),
        *("SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_WHOLE", "SLURM_OVERCOMMIT", "SLURM_NO_KILL"),
        *("SLURM_EXPORT_ENV", "SRUN_EXPORT_ENV", "SLURM_TIMELIMIT", "SLURM_UNBUFFEREDIO"),
    }
)


def clean_environment(env: Mapping[str, str]) -> dict[str, str]:
    """`env` for a new job: without the variables of the job or allocation that we may be inside.

    Kept is what is needed to reach the controller. User defaults such as SBATCH_PARTITION or SQUEUE_FORMAT go
    too: what is asked for comes from the recipe and the profile alone.
    """
    return {
        key: value for key, value in env.items() if key in _NEEDED_TO_REACH_SLURM or not key.startswith(_SLURM_PREFIXES)
    }


def query_environment(env: Mapping[str, str]) -> dict[str, str]:
    """`env` for a command whose answer we read: plain English, and full times in UTC."""
    return {**clean_environment(env), "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard", "TZ": "UTC0"}


def step_environment(env: Mapping[str, str]) -> dict[str, str]:
    """`env` for an srun inside our own job: the job stays known, its counts and placement are dropped."""
    return {key: value for key, value in env.items() if key not in COUNTS_OF_THE_JOB}
