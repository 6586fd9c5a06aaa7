from __future__ import annotations

from pretrainctl.slurm.environment import clean_environment, query_environment, step_environment

INTERACTIVE = {
    "PATH": "/usr/bin",
    "HOME": "/home/usr1",
    "SLURM_JOB_ID": "16413634",
    "SLURM_MEM_PER_CPU": "8192",
    "SLURM_CPUS_PER_TASK": "16",
    "SLURM_NTASKS": "1",
    "SLURM_GPUS": "1",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_CLUSTERS": "boost",
    "SBATCH_PARTITION": "interactive",
    "SRUN_CPUS_PER_TASK": "16",
    "SLURM_TIME_FORMAT": "relative",
    "SQUEUE_FORMAT": "%i",
    "SLURMD_NODENAME": "gn001",
}


def test_a_new_job_sees_nothing_of_the_allocation_it_was_submitted_from():
    assert clean_environment(INTERACTIVE) == {
        "PATH": "/usr/bin",
        "HOME": "/home/usr1",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_CLUSTERS": "boost",
    }


def test_queries_print_full_times_in_utc_and_plain_english():
    env = query_environment({**INTERACTIVE, "LC_ALL": "de_DE.UTF-8", "TZ": "Europe/Madrid"})
    assert (env["LC_ALL"], env["TZ"], env["SLURM_TIME_FORMAT"]) == ("C", "UTC0", "standard")
    assert "SLURM_JOB_ID" not in env


def test_a_slurm_step_keeps_the_job_and_drops_its_counts():
    kept = {"SLURM_JOB_ID", "SLURM_CONF", "SLURM_JOB_NODELIST", "SLURMD_NODENAME", "SLURM_GPUS_PER_NODE", "PATH"}
    dropped = {
        *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_TASKS_PER_NODE"),
        *("SLURM_NTASKS_PER_NODE", "SLURM_DISTRIBUTION", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK"),
        *("SLURM_TRES_PER_TASK", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE", "SLURM_EXPORT_ENV", "SLURM_NO_KILL"),
    }
    assert set(step_environment(dict.fromkeys(kept | dropped, "1"))) == kept
