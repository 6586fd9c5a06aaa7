"""Scripts as people wrote them, with what became of them; and the scripts that pretrainctl itself renders."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl import catalog
from pretrainctl.linting import check

GOLDEN = Path(__file__).parents[2] / "golden"
HEAD = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --time=1:00:00\n"


def rules(text, profile=None):
    return {found.rule: found.line for found in check(text, profile)}


def test_a_task_gets_one_core_where_srun_does_not_inherit_the_cores():
    script = (
        "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=72\n"
        "#SBATCH --gres=gpu:4\n"
        "srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4 --rdzv_backend=c10d "
        "--rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT train.py\n"
    )
    (found,) = (found for found in check(script) if found.rule == "srun-cpus-per-task")
    assert (found.line, found.severity) == (6, "warning")
    assert "72" in found.reason
    assert "one core" in found.reason
    assert rules(script) == {"srun-cpus-per-task": 6, "survivors-wait": 6, "missing-time": 1}
    second_try = script.replace("srun ", "export SLURM_TRES_PER_TASK=cpu=1\nsrun ")
    assert rules(second_try)["cpus-per-task-conflict"] == 6


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            'srun --kill-on-bad-exit=1 bash -c "python -m torch.distributed.run --nnodes $SLURM_NNODES '
            "--node_rank $SLURM_PROCID --master_addr $MASTER_ADDR --master_port $MASTER_PORT train.py "
            "--run-name 'my run'\"\n",
            {"task-variable-on-batch-host": 4},
            id="every node has rank 0",
        ),
        pytest.param(
            "ORCH_RANK=3\n"
            'srun -K bash -c \'if [ "$SLURM_PROCID" -eq "$ORCH_RANK" ]; then ./aux_server & fi; '
            "exec python train.py'\n",
            {"unexported-variable": 5},
            id="the variable is empty in the tasks",
        ),
        pytest.param(
            'LAUNCHER="torchrun --node_rank \\$SLURM_PROCID"\nCMD="train.py --prompt \'a \\"b\\" $c\'"\n'
            'srun -K bash -c "$LAUNCHER $CMD"\n',
            {},
            id="escaped as it must be",
        ),
    ],
)
def test_variables_are_put_in_where_they_are_known(body, expected):
    assert rules(HEAD + body) == expected


TRAP = "trap 'echo got USR1; touch $RUN/STOP; scontrol requeue $SLURM_JOB_ID' USR1\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            "#SBATCH --signal=B:USR1@300\n" + TRAP + 'srun --kill-on-bad-exit=1 bash -c "$BODY"\n',
            {"signal-waits-for-foreground": 6, "requeue-truncates-log": 5},
            id="the trap waits for srun",
        ),
        pytest.param(
            "#SBATCH --signal=B:USR1@300\ntrap 'touch $RUN/STOP' USR1\n"
            'srun --kill-on-bad-exit=1 bash -c "$BODY" &\nwait $!\n',
            {"wait-ends-on-signal": 7},
            id="wait returns on the signal",
        ),
        pytest.param(
            '#SBATCH --signal=USR1@300\nsrun -K1 bash -c "python train.py"\n', {}, id="python has its own handler"
        ),
        pytest.param(
            "#SBATCH --signal=B:USR1@300\npython train.py\n",
            {"signal-not-trapped": 4, "one-node-training": 5},
            id="python hears nothing",
        ),
    ],
)
def test_who_hears_of_the_time_limit(body, expected):
    assert rules(HEAD + body) == expected
    assert all(found.severity == "warning" for found in check(HEAD + body))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            'srun $SRUN_ARGS bash -c "$BODY" 2>&1 | tee -a main_log.txt\necho "END TIME: $(date)"\n',
            {"status-hidden-by-pipe": 4, "status-lost": 4},
            id="tee's status",
        ),
        pytest.param(
            'set -o pipefail\nsrun $SRUN_ARGS bash -c "$BODY" 2>&1 | tee -a main_log.txt\n'
            'echo "======================"\necho "EXIT=$?"\n',
            {"status-lost": 5},
            id="echo's status",
        ),
        pytest.param(
            'set -euo pipefail\nsrun $SRUN_ARGS bash -c "$BODY" 2>&1 | tee -a main_log.txt\npost_step.sh\n',
            {},
            id="srun's status",
        ),
    ],
)
def test_a_failed_training_ends_as_a_failed_job(body, expected):
    assert rules(HEAD + body) == expected


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/*.sbatch")), ids=lambda path: path.parent.name)
def test_what_pretrainctl_renders_is_clean(path):
    text = path.read_text(encoding="utf-8")
    cluster = path.parent.name.rsplit("-on-", 1)[1]
    assert check(text) == ()
    assert check(text, catalog.load_profile(cluster)) == ()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python train.py", {"one-node-training"}),
        ("python train.py --rank $SLURM_PROCID", {"one-node-training", "task-variable-on-batch-host"}),
        ("python train.py --nodes $SLURM_NNODES --host $(hostname)", {"one-node-training"}),
        ("mpirun python train.py --rank $SLURM_PROCID", set()),
    ],
)
def test_what_the_program_is_told_does_not_hide_that_it_runs_on_one_node(line, expected):
    assert set(rules(HEAD + line + "\n")) == expected


def test_without_a_qos_the_limits_are_those_of_the_queue_that_has_none():
    script = (
        "#!/bin/bash\n#SBATCH --nodes={}\n#SBATCH --time=1-00:00:00\n#SBATCH --account=a\n#SBATCH -p boost_usr_prod\n"
    )
    leonardo = catalog.load_profile("leonardo")
    found = [[one.rule for one in check(script.format(nodes) + "srun hostname\n", leonardo)] for nodes in (64, 100)]
    assert found == [[], ["over-limit"]]


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        (
            "-N 32 -t 1-0 -p boost_usr_prod -q boost_qos_bprod",
            "ask for 65 nodes or more; or take queue normal, which takes it as it is: no --qos",
        ),
        (
            "-N 80 -t 1-0 -p boost_usr_prod",
            "ask for 64 nodes at most; or take queue boost_qos_bprod, which takes it as it is: --qos=boost_qos_bprod",
        ),
        (
            "-N 2 -t 3-0 -p boost_usr_prod",
            "ask for 1-00:00:00 at most; or take queue boost_qos_lprod, which takes it as it is: --qos=boost_qos_lprod",
        ),
        ("-N 80 -t 3-0 -p boost_usr_prod", "ask for 64 nodes at most and 1-00:00:00 at most"),
        (
            "-N 2 -t 40 -p boost_usr_prod -q boost_qos_dbg",
            "ask for 0-00:30:00 at most; or take queue normal, which takes it as it is: no --qos",
        ),
    ],
)
def test_a_refused_size_names_what_the_queue_takes_and_the_queue_that_takes_it(options, fix):
    script = f"#!/bin/bash\n#SBATCH -A a {options}\nsrun hostname\n"
    (found,) = check(script, catalog.load_profile("leonardo"))
    assert (found.rule, found.fix) == ("over-limit", fix)


def test_gpus_from_the_default_partition_are_an_error_whether_it_is_named_or_not():
    script = "#!/bin/bash\n#SBATCH -A a -N 4 -t 10 --gres={}\n{}srun hostname\n"
    serial, leonardo = "#SBATCH -p lrd_all_serial\n", catalog.load_profile("leonardo")
    found = [check(script.format(*each), leonardo) for each in (("gpu:4", serial), ("gpu:4", ""), ("tmpfs:9G", serial))]
    said = [[(one.rule, one.severity) for one in each if one.rule != "cpus-per-gpu"] for each in found]
    assert said == [
        [("partition-without-gpus", "error")],
        [("missing-partition", "error")],
        [("unknown-queue", "warning")],
    ]
    assert found[0][-1].fix == "#SBATCH --partition=boost_usr_prod"
