"""Sound scripts that come close to a mistake, and one mistake behind every way to start a program."""

from __future__ import annotations

import pytest

from pretrainctl.linting import check
from pretrainctl.linting.options import read_options

JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --time=1:00:00\n"
SOUND = {
    "a chain that submits the next at its start and stops when done": """\
if [ -f "$RUN/DONE" ]; then exit 0; fi
NEXT=$(sbatch --parsable --dependency=afterany:"$SLURM_JOB_ID" train.sbatch)
start=$SECONDS
srun -K1 python train.py
rc=$?
if [ $rc -ne 0 ] && [ $((SECONDS - start)) -lt 300 ]; then scancel "$NEXT"; fi
exit $rc
""",
    "a chain of afternotok jobs": """\
sbatch --dependency=afternotok:$SLURM_JOB_ID "$0"
srun -K1 python train.py
""",
    "a training in the background that is waited for": """\
srun -K1 python train.py &
pid=$!
wait "$pid"
""",
    "two programs side by side, the first that ends decides": """\
srun -K1 -N1 -n1 python server.py &
srun -K1 -N1 -n1 python client.py &
wait -n
exit $?
""",
    "a monitor in the background beside the training": """\
nvidia-smi dmon > gpu.log &
python monitor.py --every 60 &
trap 'kill $(jobs -p)' EXIT
srun -K1 python train.py
""",
    "a handler that submits the next job": """\
again() { sbatch --dependency=afterany:$SLURM_JOB_ID train.sbatch; kill -TERM "$pid"; wait "$pid"; exit 0; }
trap again USR1
srun -K1 python train.py &
pid=$!
wait "$pid"
""",
    "tries that are counted and end as the last of them": """\
for try in 1 2 3; do
    srun -K1 python train.py && exit 0
    echo "try $try failed" >&2
    sleep 30
done
exit 1
""",
    "tries whose status is kept": """\
rc=1
for try in 1 2 3; do
    srun -K1 python train.py; rc=$?
    [ $rc -eq 0 ] && break
    sleep 30
done
echo "ended with $rc"
exit $rc
""",
    "a pipeline whose first status counts": """\
srun -K1 python train.py 2>&1 | tee train.log
exit "${PIPESTATUS[0]}"
""",
    "functions, arrays, case and a here-document": """\
set -euo pipefail
ARGS=(
    --lr 1e-4   # as in the paper
    --seed 1
)
case "${MODEL:-small}" in
    small) ARGS+=(--layers 12) ;;
    *) ARGS+=(--layers 48) ;;
esac
cat > config.yaml <<EOF2
path: ~/data
size = 3
world \\\x20
EOF2
launch() { srun -K1 "$@"; }
launch python train.py "${ARGS[@]}"
""",
    "ranks that torchrun starts, by numbers of the job": """\
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
srun -K1 --ntasks-per-node=1 torchrun --nnodes "$SLURM_NNODES" --nproc_per_node 4 --rdzv_backend c10d \\
    --rdzv_endpoint "$MASTER_ADDR:$MASTER_PORT" train.py
""",
    "single trainings with a GPU each": """\
for gpu in 0 1 2 3; do
    CUDA_VISIBLE_DEVICES=$gpu srun -K1 -N1 -n1 --overlap python train.py --seed $gpu &
done
wait
""",
    "a last stage that follows a training that succeeded": """\
srun -K1 python train.py && sbatch evaluate.sbatch
""",
    "a watcher that outlives nothing": """\
srun -K1 python train.py
rc=$?
rsync -a logs/ /archive/ &
wait
exit $rc
""",
    "a helper whose text only tells of srun": """\
set -e
bash -c 'echo "use srun python train.py to start"'
eval "$(python3 -m site_setup)"
srun -K1 python train.py
""",
}
SIGNALLED = {"a handler that submits the next job": "#SBATCH --signal=B:USR1@300\n"}


@pytest.mark.parametrize("what", SOUND)
def test_a_sound_script_is_clean(what):
    assert check(JOB + SIGNALLED.get(what, "") + SOUND[what]) == ()


@pytest.mark.parametrize(
    "start",
    [
        *(
            f"srun {options}"
            for options in (
                "--jobid $SLURM_JOB_ID",
                "--jobid=$SLURM_JOBID",
                "--wait $WAIT --mpi pmix --export ALL -N 2",
                "-n4 -N $SLURM_NNODES -w $HOSTS",
                "--cpu-bind $BIND --nodelist $HOSTS --het-group 0",
                "--whole --exact --label -l -u",
                "--distribution block:cyclic -J $NAME",
                "--container-image $IMAGE --container-mounts $MOUNTS --container-entrypoint",
                "--unbuf --outp $LOG",
            )
        ),
        *(
            f"{prefix} srun"
            for prefix in (
                "time -p",
                "env X=1",
                "X=1 Y=$Z",
                "numactl --cpunodebind 0 --membind 0",
                "exec",
                "stdbuf -oL -e L",
                "timeout -k 30 1h",
                "nohup nice -n 5",
                "unbuffer",
                "flock lock",
                "eval",
                "command",
                "/usr/bin/env -u A /opt/slurm/bin/",
            )
        ),
        "${SRUN:-srun}",
        "L=srun; $L",
        "C=(srun --label); ${C[@]}",
        'C=(srun --label); "${C[@]}"',
    ],
)
def test_an_srun_is_seen_whatever_stands_in_front_and_however_its_options_are_written(start):
    job = JOB + "#SBATCH --cpus-per-task=8\n"
    found = check(job + start.replace("/ srun", "/srun") + " python train.py\n")
    assert {each.rule for each in found} == {"srun-cpus-per-task", "survivors-wait"}
    assert {each.line for each in found} == {5}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("bash -c 'srun python a.py'", 5),
        ('bash -lc "cd x\nsrun python a.py"', 6),
        ("CMD='srun python a.py'\neval $CMD", 6),
        ('CMD="srun python a.py"\neval "$CMD"', 6),
        ("CMD='srun python a.py'\nbash -c \"$CMD\"", 6),
        ("time sh -c 'exec srun python a.py'", 5),
        ("bash <<'EOF'\nsrun python a.py\nEOF", 6),
    ],
)
def test_an_srun_is_seen_in_the_text_that_another_shell_reads(text, line):
    found = check(JOB + "#SBATCH --cpus-per-task=8\n" + text + "\n")
    assert {(each.rule, each.line) for each in found} == {("srun-cpus-per-task", line), ("survivors-wait", line)}


@pytest.mark.parametrize(
    ("words", "command", "options", "rest"),
    [
        ("--part x --cpus-per-t 4 prog", "srun", {"partition": "x", "cpus-per-task": "4"}, "prog"),
        ("--gpus-per 4", "sbatch", {"gpus-per": "4"}, ""),
        ("--tasks-per-node=4", "sbatch", {"ntasks-per-node": "4"}, ""),
        ("--pty --x11 --bcast prog", "srun", {"pty": "", "x11": "", "bcast": ""}, "prog"),
        ("-E -F hosts prog", "srun", {"preserve-env": "", "nodefile": "hosts"}, "prog"),
    ],
)
def test_an_option_may_be_cut_short_where_it_is_the_only_one(words, command, options, rest):
    found, first = read_options(words.split(), command=command)
    assert found == options
    assert words.split()[first:] == rest.split()
