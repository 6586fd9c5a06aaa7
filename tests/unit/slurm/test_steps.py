from __future__ import annotations

import pytest

from pretrainctl.errors import InputError
from pretrainctl.records.launch import SrunShape
from pretrainctl.slurm.steps import beats_argv, lookout_argv, training_argv


def test_the_training_step_names_every_count_itself():
    shape = SrunShape(nodes=2, tasks_per_node=4, cpus_per_task=20, options=("--cpu-bind=none", "--wait=20"))
    argv = training_argv(shape, ["gn001", "gn002"], step_name="train-1-0", task=["bash", "/run dir/task.sh"])
    options = dict(item.lstrip("-").partition("=")[::2] for item in argv[1:-2])
    assert argv[0] == "srun"
    assert argv[-2:] == ("bash", "/run dir/task.sh")
    assert (options["nodes"], options["ntasks"], options["ntasks-per-node"]) == ("2", "8", "4")
    assert options["cpus-per-task"] == "20"
    assert options["nodelist"] == "gn[001-002]"
    assert options["kill-on-bad-exit"] == "1"
    assert "no-kill" not in options
    assert {"overlap", "label"} <= set(options)
    # The profile has the last word.
    assert argv.index("--wait=20") > argv.index("--wait=60")


@pytest.mark.parametrize("nodes", [["gn001"], ["gn001", "gn001"], ["gn001", "gn002", "gn003"]])
def test_another_number_of_nodes_is_refused(nodes):
    with pytest.raises(InputError):
        training_argv(SrunShape(2, 1, 1), nodes, step_name="t", task=["true"])


def test_the_beats_take_nothing_from_the_training_and_outlive_nodes():
    argv = beats_argv(["gn001", "gn002", "gn004"], step_name="beats-1", task=["beat"])
    assert {"--overlap", "--gres=none", "--mem=0", "--no-kill", "--kill-on-bad-exit=0"} <= set(argv)
    assert {"--nodes=3", "--ntasks=3", "--cpus-per-task=1", "--nodelist=gn[001-002,004]"} <= set(argv)
    assert argv[-1] == "beat"


def test_the_srun_of_the_lookouts_runs_on_another_node_free_of_its_own_step():
    argv = lookout_argv(["gn002", "gn003"], step_name="lookout-1-1", task=["lookout"])
    inner = argv.index("srun", 1)
    middle = argv.index("env")
    assert {"--nodes=1", "--ntasks=1", "--nodelist=gn002", "--overlap"} <= set(argv[:middle])
    assert {"--unset=SLURM_NTASKS", "--unset=SLURM_NNODES", "--unset=SLURM_MEM_PER_NODE"} <= set(argv[middle:inner])
    assert {"--nodes=2", "--ntasks=2", "--nodelist=gn[002-003]", "--overlap", "--no-kill"} <= set(argv[inner:])
    assert argv[-1] == "lookout"
