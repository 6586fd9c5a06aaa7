"""Each rule: a script that has the mistake, with its line, and the nearest one that has not, which is clean."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pretrainctl import catalog
from pretrainctl.linting import RULES, check

JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --time=1:00:00\n"
TRAIN = "srun -K1 python train.py\n"
SIGNAL = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --time=1:00:00\n#SBATCH --signal=B:USR1@300\n"
ALONE = SIGNAL.replace("nodes=2", "nodes=1")
LOOP = 'while kill -0 "$pid" 2>/dev/null; do wait "$pid" || status=$?; done\n'

GENERAL = [
    # rule, script with it, its line, script without it
    ("no-shebang", "#SBATCH --time=10\n#SBATCH --nodes=2\n" + TRAIN, 1, "#!/bin/sh\n#SBATCH --time=10\n" + TRAIN),
    ("dos-line-breaks", (JOB + TRAIN).replace("\n", "\r\n"), 1, JOB + TRAIN),
    (
        "late-directive",
        JOB + "module load cuda\n#SBATCH --gres=gpu:4\n" + TRAIN,
        5,
        JOB + "\n# why\n#SBATCH -G 4\n" + TRAIN,
    ),
    ("late-directive", JOB + "date\n#SBATCH -G 4\n" + TRAIN, 5, JOB + "cat <<X >n.sh\n#SBATCH -G 4\nX\n" + TRAIN),
    (
        "variable-in-directive",
        JOB + "#SBATCH --output=$HOME/log\n" + TRAIN,
        4,
        JOB + "#SBATCH --output=%x-%j.log\n" + TRAIN,
    ),
    ("variable-in-directive", JOB + "#SBATCH -J ${NAME}\n" + TRAIN, 4, JOB + "#SBATCH -J a # costs $5\n" + TRAIN),
    (
        "memory-options",
        JOB + "#SBATCH --mem=0\n#SBATCH --mem-per-cpu=2G\n" + TRAIN,
        5,
        JOB + "#SBATCH --mem=0\n" + TRAIN,
    ),
    ("missing-time", "#!/bin/bash\n#SBATCH --nodes=2\n" + TRAIN, 1, "#!/bin/bash\n#SBATCH -N2 -t 30\n" + TRAIN),
    ("unreadable-time", JOB + "#SBATCH --time=1:x\n" + TRAIN, 4, JOB + "#SBATCH --time={{ time }}\n" + TRAIN),
    ("unreadable-time", "#!/bin/bash\n#SBATCH --time=2h\n" + TRAIN, 2, "#!/bin/bash\n#SBATCH --time=0-2\n" + TRAIN),
    (
        "requeue-truncates-log",
        JOB + "#SBATCH --requeue\n" + TRAIN,
        4,
        JOB + "#SBATCH --requeue --open-mode=append\n" + TRAIN,
    ),
    (
        "requeue-truncates-log",
        JOB + TRAIN.rstrip() + " || scontrol requeue $SLURM_JOB_ID\n",
        4,
        JOB + "#SBATCH --open-mode append\n" + TRAIN.rstrip() + " || scontrol requeue $SLURM_JOB_ID\n",
    ),
    (
        "requeue-and-singleton",
        JOB + "#SBATCH --requeue\n#SBATCH --open-mode=append -d singleton\n" + TRAIN,
        4,
        JOB + "#SBATCH --no-requeue\n#SBATCH --open-mode=append -d singleton\n" + TRAIN,
    ),
    ("unread", JOB + "if true; then\n" + TRAIN, 5, JOB + "if true; then\n" + TRAIN + "fi\n"),
    (
        "srun-cpus-per-task",
        JOB + "#SBATCH --cpus-per-task=72\n" + TRAIN,
        5,
        JOB + "#SBATCH --cpus-per-task=72\nsrun -K1 --cpus-per-task=$SLURM_CPUS_PER_TASK python train.py\n",
    ),
    (
        "srun-cpus-per-task",
        JOB + "#SBATCH -c 8\nsrun --label -K1 \\\n  python train.py -c 8\n",
        5,
        JOB + "#SBATCH -c 8\nsrun --label -K1 \\\n  -c8 python train.py\n",
    ),
    (
        "srun-cpus-per-task",
        JOB + "#SBATCH -c 8\nARGS='-K1 --mpi=none'\nsrun $ARGS python train.py\n",
        6,
        JOB + "#SBATCH -c 8\nARGS='-K1 -c 8'\nsrun $ARGS python train.py\n",
    ),
    (
        "srun-cpus-per-task",
        JOB + "#SBATCH -c 8\n" + TRAIN,
        5,
        JOB + "#SBATCH -c 8\nexport SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun hostname\n" + TRAIN,
    ),
    (
        "cpus-per-task-conflict",
        JOB + "#SBATCH -c 8\nexport SLURM_TRES_PER_TASK=cpu=1\nsrun -K1 -c 8 python train.py\n",
        5,
        JOB + "#SBATCH -c 8\nexport SLURM_TRES_PER_TASK=cpu=8\nsrun -K1 -c 8 python train.py\n",
    ),
    (
        "double-launch",
        JOB + "#SBATCH --ntasks-per-node=4\nsrun -K1 torchrun --nproc_per_node=4 train.py\n",
        5,
        JOB + "#SBATCH --ntasks-per-node=1\nsrun -K1 torchrun --nproc_per_node=4 train.py\n",
    ),
    (
        "double-launch",
        JOB + "srun -K1 --ntasks=8 bash -c 'exec python -m torch.distributed.run --nproc-per-node 4 train.py'\n",
        4,
        JOB + "srun -K1 --ntasks=2 bash -c 'exec python -m torch.distributed.run --nproc-per-node 4 train.py'\n",
    ),
    (
        "double-launch",
        JOB + "#SBATCH --ntasks-per-node=4\nCMD='torchrun --nproc_per_node 4'\nsrun -K1 $CMD train.py\n",
        6,
        JOB
        + "#SBATCH --ntasks-per-node=4\nCMD='torchrun --nproc_per_node 4'\nsrun -K1 --ntasks-per-node=1 $CMD a.py\n",
    ),
    (
        "double-launch",
        JOB + "srun -K1 deepspeed train.py\n",
        4,
        JOB + "srun -K1 deepspeed --no_ssh --node_rank=0 train.py\n",
    ),
    ("double-launch", JOB + "srun -K1 mpirun -np 8 ./train\n", 4, JOB + "srun -K1 python train.py mpirun\n"),
    (
        "double-launch",
        JOB + "#SBATCH -n 8\nsrun -K1 singularity exec --nv image.sif torchrun --nproc_per_node=4 train.py\n",
        5,
        JOB + "#SBATCH -n 8\nsrun -K1 singularity exec --nv image.sif python train.py --launcher torchrun\n",
    ),
    (
        "deepspeed-ssh",
        JOB + "deepspeed --hostfile hosts train.py\n",
        4,
        JOB.replace("nodes=2", "nodes=1") + "deepspeed --hostfile hosts train.py\n",
    ),
    (
        "one-node-launch",
        JOB + "torchrun --nnodes=2 --nproc_per_node=4 train.py\n",
        4,
        JOB.replace("nodes=2", "nodes=1") + "torchrun --nproc_per_node=4 train.py\n",
    ),
    (
        "task-variable-on-batch-host",
        JOB + 'srun -K1 bash -c "torchrun --node_rank $SLURM_PROCID train.py"\n',
        4,
        JOB + 'srun -K1 bash -c "torchrun --node_rank \\$SLURM_PROCID train.py"\n',
    ),
    (
        "task-variable-on-batch-host",
        JOB + "srun -K1 torchrun --node_rank ${SLURM_NODEID} train.py\n",
        4,
        JOB + "srun -K1 bash -c 'torchrun --node_rank ${SLURM_NODEID} train.py'\n",
    ),
    (
        "task-variable-on-batch-host",
        JOB + "export RANK=$SLURM_PROCID\n" + TRAIN,
        4,
        JOB + "task() { export RANK=$SLURM_PROCID; python train.py; }\nexport -f task\nsrun -K1 bash -c task\n",
    ),
    (
        "task-variable-on-batch-host",
        JOB + "srun -K1 bash <<EOF\nLOCAL_RANK=$SLURM_LOCALID python train.py\nEOF\n",
        4,
        JOB + "srun -K1 bash <<'EOF'\nLOCAL_RANK=$SLURM_LOCALID python train.py\nEOF\n",
    ),
    (
        "task-variable-on-batch-host",
        JOB + "cat >task.sh <<EOF\nRANK=$SLURM_PROCID python train.py\nEOF\nsrun -K1 bash task.sh\n",
        5,
        JOB + "cat >task.sh <<'EOF'\nRANK=$SLURM_PROCID python train.py\nEOF\nsrun -K1 bash task.sh\n",
    ),
    (
        "task-variable-on-batch-host",
        JOB + 'ARGS=--node_rank=$SLURM_PROCID\nCMD="a.py $ARGS"\nsrun -K1 torchrun $CMD\n',
        4,
        JOB + "LIST=files.$SLURM_PROCID.txt\ndate >$LIST\nsrun -K1 torchrun a.py\n",
    ),
    (
        "unexported-variable",
        JOB + "DATA=/data\nsrun -K1 bash -c 'python train.py $DATA'\n",
        5,
        JOB + "export DATA=/data\nsrun -K1 bash -c 'python train.py $DATA'\n",
    ),
    (
        "unexported-variable",
        JOB + "DATA=/data\nsrun -K1 bash -c 'if [ -d \"$DATA\" ]; then python train.py; fi'\n",
        5,
        JOB + 'DATA=/data\nsrun -K1 bash -c "if [ -d $DATA ]; then python train.py; fi"\n',
    ),
    (
        "unexported-variable",
        JOB + "DATA=/data\nsrun -K1 bash -c 'python train.py $DATA'\n",
        5,
        JOB + "set -a\nDATA=/data\nset +a\nsrun -K1 bash -c 'python train.py $DATA'\n",
    ),
    ("survivors-wait", JOB + "srun python train.py\n", 4, JOB + "srun --kill-on-bad-exit python train.py\n"),
    (
        "survivors-wait",
        JOB + "srun bash -c 'nvidia-smi | grep MiB; python a.py'\n",
        4,
        JOB + "srun bash -c 'nvidia-smi | grep MiB'\n",
    ),
    (
        "double-launch",
        JOB + "#SBATCH --ntasks-per-node=4\nsrun -K1 torchrun a.py\n",
        5,
        JOB + "#SBATCH --ntasks-per-node=4\nsrun -K1 --ntasks=$SLURM_NNODES torchrun a.py\n",
    ),
    ("survivors-wait", JOB + "srun python a.py\n", 4, JOB + "export SLURM_KILL_BAD_EXIT=1\nsrun python a.py\n"),
    (
        "survivors-wait",
        JOB + "#SBATCH --ntasks-per-node=4\nfor i in 1 2; do srun -N1 python a.py & done\nwait\n",
        5,
        JOB + "#SBATCH --ntasks-per-node=4\nfor i in 1 2; do srun -N1 -n1 python a.py & done\nwait\n",
    ),
    (
        "ib-timeout-never",
        JOB + "export NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT:-${SITE_TIMEOUT:-120}}\n" + TRAIN,
        4,
        JOB + "export NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT:-${SITE_TIMEOUT:-22}}\n" + TRAIN,
    ),
    ("survivors-wait", JOB + "srun python a.py\n", 4, "#!/bin/bash\n#SBATCH -N1 -n1 -t 10\nsrun python a.py\n"),
    (
        "status-hidden-by-pipe",
        JOB + "srun -K1 python train.py 2>&1 | tee log\n",
        4,
        JOB + "set -o pipefail\nsrun -K1 python train.py 2>&1 | tee log\n",
    ),
    (
        "status-hidden-by-pipe",
        JOB + "set -eu\n{ srun -K1 python train.py; } |& tee log\n",
        5,
        JOB + "set -euo pipefail\n{ srun -K1 python train.py; } |& tee log\n",
    ),
    (
        "status-hidden-by-pipe",
        JOB + "srun -K1 python train.py | tee log\n",
        4,
        JOB + 'srun -K1 python train.py | tee log\nexit "${PIPESTATUS[0]}"\n',
    ),
    ("status-hidden-by-pipe", JOB + "srun -K1 python train.py | cat\n", 4, JOB + "yes | srun -K1 python train.py\n"),
    ("status-lost", JOB + TRAIN + "echo done\n", 4, JOB + "set -e\n" + TRAIN + "echo done\n"),
    ("status-lost", JOB + TRAIN + "date\nexit $?\n", 4, JOB + TRAIN + "status=$?\ndate\nexit $status\n"),
    (
        "status-lost",
        JOB + TRAIN + "date\n",
        4,
        JOB + "if srun -K1 python train.py; then touch DONE; else exit 1; fi\ndate\n",
    ),
    (
        "signal-waits-for-foreground",
        SIGNAL + "trap 'touch STOP' USR1\n" + TRAIN,
        6,
        SIGNAL + "trap 'touch STOP' USR1\nsrun -K1 python train.py &\npid=$!\n" + LOOP + "exit $status\n",
    ),
    (
        "signal-waits-for-foreground",
        ALONE + "trap 'touch STOP' USR1\npython train.py\n",
        6,
        ALONE + "trap '' USR1\npython train.py\n",
    ),
    (
        "signal-waits-for-foreground",
        ALONE + "trap 'touch STOP' USR1\npython prepare.py\n",
        6,
        ALONE + "trap 'touch STOP' USR1\npython prepare.py\npython train.py &\npid=$!\n" + LOOP,
    ),
    ("signal-not-trapped", SIGNAL + TRAIN, 4, SIGNAL + "exec python -m supervisor\n"),
    ("signal-not-trapped", SIGNAL + TRAIN, 4, SIGNAL + ". setup.sh\non_signal my_function USR1\n" + TRAIN),
    ("signal-not-trapped", SIGNAL + TRAIN, 4, SIGNAL + ". everything.sh\n"),
    ("signal-not-trapped", ALONE + "python train.py\n", 4, SIGNAL.replace("B:", "") + TRAIN),
    (
        "trap-never-called",
        SIGNAL.replace("B:", "") + "trap 'touch STOP' SIGUSR1\nsrun -K1 python a.py &\npid=$!\n" + LOOP,
        5,
        SIGNAL + "trap 'touch STOP' SIGUSR1\nsrun -K1 python a.py &\npid=$!\n" + LOOP,
    ),
    (
        "signal-kills-launcher",
        SIGNAL.replace("B:", "") + "srun -K1 torchrun train.py\n",
        5,
        SIGNAL.replace("B:USR1", "TERM") + "srun -K1 torchrun train.py\n",
    ),
    (
        "wait-ends-on-signal",
        SIGNAL + "trap 'touch STOP' USR1\nsrun -K1 python train.py &\nwait $!\n",
        7,
        SIGNAL + "trap 'touch STOP; wait' USR1\nsrun -K1 python train.py &\nwait $!\n",
    ),
    (
        "wait-ends-on-signal",
        SIGNAL + "set -e\ntrap 'touch STOP' USR1\nsrun -K1 python a.py &\npid=$!\nwait $pid\nwait $pid\n",
        9,
        SIGNAL + "trap 'touch STOP' USR1\nsrun -K1 python a.py &\npid=$!\nwait $pid\nwait $pid\n",
    ),
    (
        "master-is-local",
        JOB + "export MASTER_ADDR=localhost\n" + TRAIN,
        4,
        JOB + 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n' + TRAIN,
    ),
    (
        "master-is-local",
        JOB + "srun -K1 torchrun --rdzv_endpoint=127.0.0.1:$PORT train.py\n",
        4,
        JOB.replace("nodes=2", "nodes=1") + "torchrun --rdzv_endpoint=127.0.0.1:$PORT train.py\n",
    ),
    (
        "master-is-a-list",
        JOB + "export MASTER_ADDR=$SLURM_JOB_NODELIST\n" + TRAIN,
        4,
        JOB.replace("nodes=2", "nodes=1") + "export MASTER_ADDR=$SLURM_JOB_NODELIST\n" + TRAIN,
    ),
    (
        "master-per-task",
        JOB + "srun -K1 bash -c 'MASTER_ADDR=$(hostname) python train.py'\n",
        4,
        JOB + "export MASTER_ADDR=$(hostname)\nsrun -K1 bash -c 'python train.py'\n",
    ),
    (
        "fixed-port",
        JOB + "export MASTER_PORT=29500\n" + TRAIN,
        4,
        JOB + "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\n" + TRAIN,
    ),
    (
        "fixed-port",
        JOB + "export MASTER_PORT=29500\n" + TRAIN,
        4,
        JOB + "#SBATCH --exclusive\nexport MASTER_PORT=29500\n" + TRAIN,
    ),
    ("ib-timeout-never", JOB + "export NCCL_IB_TIMEOUT=70\n" + TRAIN, 4, JOB + "export NCCL_IB_TIMEOUT=31\n" + TRAIN),
    *(
        ("ib-timeout-never", JOB + bad, line, JOB + bad.replace("120", "22"))
        for line, bad in (
            (4, "#SBATCH --export=ALL,NCCL_IB_TIMEOUT=120\n" + TRAIN),
            (4, "srun -K1 --export=ALL,NCCL_IB_TIMEOUT=120 python a.py\n"),
            (4, "srun -K1 --export NCCL_DEBUG=INFO,NCCL_IB_TIMEOUT=120,ALL python a.py\n"),
            (4, "env NCCL_IB_TIMEOUT=120 srun -K1 python a.py\n"),
            (4, "srun -K1 env -u X NCCL_IB_TIMEOUT=120 python a.py\n"),
            (4, "export NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT:-120}\n" + TRAIN),
            (4, ': "${NCCL_IB_TIMEOUT:=120}"\nexport NCCL_IB_TIMEOUT\n' + TRAIN),
            (5, "TIMEOUT=120\nexport NCCL_IB_TIMEOUT=$TIMEOUT\n" + TRAIN),
            (4, "declare -x NCCL_IB_TIMEOUT=120\n" + TRAIN),
            (4, "export SINGULARITYENV_NCCL_IB_TIMEOUT=120\nsrun -K1 singularity exec a.sif python a.py\n"),
            (4, "srun -K1 singularity exec --env NCCL_DEBUG=INFO,NCCL_IB_TIMEOUT=120 a.sif python a.py\n"),
            (4, "srun -K1 bash -c 'export NCCL_IB_TIMEOUT=120; python a.py'\n"),
            (5, "srun -K1 bash -c '\nNCCL_IB_TIMEOUT=120 python a.py'\n"),
            (6, "srun -K1 bash <<'EOF'\ncd /w\nexport NCCL_IB_TIMEOUT=120\npython a.py\nEOF\n"),
            (5, "cat >task.sh <<'EOF'\nexport NCCL_IB_TIMEOUT=120\nEOF\nsrun -K1 bash task.sh\n"),
            (4, "mpirun -x NCCL_IB_TIMEOUT=120 ./train\n"),
        )
    ),
    ("ib-timeout-never", JOB + "NCCL_IB_TIMEOUT=120 " + TRAIN, 4, JOB + "echo NCCL_IB_TIMEOUT=120\n" + TRAIN),
    (
        "ib-timeout-never",
        JOB + "export NCCL_IB_TIMEOUT=120\n" + TRAIN,
        4,
        JOB + "export NCCL_IB_TIMEOUT=22\nexport NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT:-120}\n" + TRAIN,
    ),
    (
        "master-is-local",
        JOB + "srun -K1 --export=ALL,MASTER_ADDR=localhost python a.py\n",
        4,
        JOB + "srun -N1 -K1 --export=ALL,MASTER_ADDR=localhost python a.py\n",
    ),
    (
        "master-is-local",
        JOB + "export MASTER_ADDR=127.0.0.1\n" + TRAIN,
        4,
        JOB
        + "H=x\nif [ $SLURM_NNODES = 1 ]; then MASTER_ADDR=127.0.0.1; else MASTER_ADDR=$H; fi\nexport MASTER_ADDR\n"
        + TRAIN,
    ),
    (
        "master-is-local",
        JOB + "export MASTER_ADDR=localhost\n" + TRAIN,
        4,
        JOB + "[ $SLURM_NNODES = 1 ] && export MASTER_ADDR=localhost\n" + TRAIN,
    ),
    (
        "ib-timeout-never",
        JOB + "export NCCL_IB_TIMEOUT=120\n" + TRAIN,
        4,
        JOB + "A=${A:-${A:-1}}\nexport NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT:-${NCCL_IB_TIMEOUT:-22}}\n" + TRAIN,
    ),
    (
        "ib-timeout-never",
        JOB + "NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT:-$NCCL_IB_TIMEOUT}\nexport NCCL_IB_TIMEOUT=99\n" + TRAIN,
        5,
        JOB + "X=${X:-$X}\nexport NCCL_IB_TIMEOUT=$X\n" + TRAIN,
    ),
    (
        "master-is-local",
        JOB + "srun -K1 bash -c 'export MASTER_ADDR=127.0.0.1; python a.py'\n",
        4,
        JOB + "export MASTER_ADDR=${MASTER_ADDR:-localhost}\n" + TRAIN,
    ),
    (
        "master-is-local",
        JOB + "export MASTER_ADDR=localhost\nsrun -K1 python a.py\n",
        4,
        JOB + "export MASTER_ADDR=localhost\nfor i in 1 2; do srun -K1 -N 1 python a.py & done\nwait\n",
    ),
    *(
        ("not-a-directive", JOB + bad + TRAIN, 4, JOB + good + TRAIN)
        for bad, good in (
            ("# SBATCH --gres=gpu:4\n", "#SBATCH --gres=gpu:4\n"),
            (" #SBATCH --gres=gpu:4\n", "##SBATCH --gres=gpu:4\n"),
            ("# SBATCH --mem=0\n", "# SBATCH -o x.%j job.sh submits it with another log\n"),
            ("#SBatch -J x\n", "# sbatch --array=0-7\n"),
            ("#sbatch -p gpu -A me\n", "# SBATCH options are explained in the guide\n"),
            ("# SBATCH --partition=gpu\n", "# SBATCH --partition=debug\n#SBATCH -p gpu\n"),
            ("# SBATCH --gres=gpu:4\n", "date\n# SBATCH --gres=gpu:4\n"),
        )
    ),
    *(
        ("unreadable-count", JOB + f"#SBATCH {bad}\n" + TRAIN, 4, JOB + f"#SBATCH {good}\n" + TRAIN)
        for bad, good in (
            ("--nodes=two", "--nodes=2"),
            ("-N 4x", "-N {nodes}"),
            ("--cpus-per-task=all", "--cpus-per-task=<CPUS>"),
            ("--ntasks=4k", "--ntasks=4096"),
            ("--ntasks-per-node=2.5", "--ntasks-per-node=2"),
            ("--nodes=2-", "--nodes=2-4"),
            ("-N 1-k", "-N 1k"),
        )
    ),
    ("node-sizes", JOB + "#SBATCH --nodes=64,128\n" + TRAIN, 4, JOB + "#SBATCH --nodes=64-128\n" + TRAIN),
    ("node-sizes", JOB + "#SBATCH -N 1-15:4\n" + TRAIN, 4, JOB + "#SBATCH -N 1-15\n" + TRAIN),
    *(
        ("double-launch", JOB + bad, line, JOB + good)
        for line, bad, good in (
            (
                5,
                "#SBATCH --ntasks-per-gpu=1 --gpus-per-node=4\nsrun -K1 torchrun a.py\n",
                "#SBATCH --ntasks-per-gpu=1 --gpus-per-node=4\nsrun -K1 --ntasks-per-node=1 torchrun a.py\n",
            ),
            (
                5,
                "#SBATCH --gpus=8 --gpus-per-task=1\nsrun -K1 torchrun a.py\n",
                "#SBATCH --gpus=8 --gpus-per-task=4\nsrun -K1 torchrun a.py\n",
            ),
            (
                5,
                "#SBATCH --gres=gpu:a100:4\nsrun -K1 --ntasks-per-gpu=1 torchrun a.py\n",
                "#SBATCH --gres=gpu:a100:1\nsrun -K1 --ntasks-per-gpu=1 torchrun a.py\n",
            ),
        )
    ),
    *(
        ("status-lost", JOB + bad + TRAIN + "date\n", line, JOB + good + TRAIN + "date\n")
        for line, bad, good in (
            (5, "trap 'exit 0' ERR\n", "trap 'exit 1' ERR\n"),
            (5, "trap 'exit 1' EXIT\n", "trap 'echo failed; exit $?' ERR\n"),
            (6, "trap 'exit 1' ERR\ntrap - ERR\n", "trap - ERR\ntrap 'exit 1' ERR\n"),
            (5, "fail() { date; }; trap fail ERR\n", "fail() { end; }; end() { exit 3; }; trap fail ERR\n"),
            (5, "set -Euo pipefail\n", "set -Eeuo pipefail\n"),
            (5, "set +o errexit\n", "set -o errexit\n"),
        )
    ),
    ("status-lost", JOB + TRAIN + "wait\nexit\n", 4, JOB + TRAIN + "exit\n"),
    (
        "status-lost",
        JOB + "if true; then srun -K1 python a.py; fi\ndate\n",
        4,
        JOB + "if true; then srun -K1 python a.py; exit; fi\ndate\n",
    ),
    ("status-lost", JOB + TRAIN + "date\n", 4, JOB + "exec srun -K1 python train.py\ndate\n"),
    (
        "status-hidden-by-pipe",
        JOB + "run() { srun -K1 python a.py; }\nrun | tee log\n",
        4,
        JOB + "set -Eeuo pipefail\nrun() { srun -K1 python a.py; }\nrun | tee log\n",
    ),
    (
        "signal-waits-for-foreground",
        SIGNAL + "trap 'touch STOP' USR1\nrun() { srun -K1 python a.py; }\nrun\n",
        6,
        SIGNAL + "trap 'touch STOP' USR1\nrun() { srun -K1 python a.py; }\nrun & pid=$!\n" + LOOP,
    ),
    (
        "signal-waits-for-foreground",
        SIGNAL + "run() { srun -K1 python a.py; }\ntrap 'touch STOP' USR1\nrun\n",
        5,
        SIGNAL + "run() { srun -K1 python a.py; }\nall() { run; }\ntrap 'touch STOP' USR1\nall & pid=$!\n" + LOOP,
    ),
    ("ib-timeout-never", JOB + "NCCL_IB_TIMEOUT=0 " + TRAIN, 4, JOB + "NCCL_IB_TIMEOUT=22 " + TRAIN),
    ("ib-retry-range", JOB + "export NCCL_IB_RETRY_CNT=40\n" + TRAIN, 4, JOB + "export NCCL_IB_RETRY_CNT=7\n" + TRAIN),
    (
        "nccl-protection-off",
        JOB + "export TORCH_NCCL_ASYNC_ERROR_HANDLING=0\n" + TRAIN,
        4,
        JOB + "export TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n" + TRAIN,
    ),
    (
        "nccl-protection-off",
        JOB + "export TORCH_NCCL_ENABLE_MONITORING=0\n" + TRAIN,
        4,
        JOB + "export NCCL_ASYNC_ERROR_HANDLING=1 # the old name is still read\n" + TRAIN,
    ),
    (
        "longer-than-the-job",
        JOB + "export DEEPSPEED_TIMEOUT=60\n" + TRAIN,
        4,
        JOB + "export DEEPSPEED_TIMEOUT=30\n" + TRAIN,
    ),
    (
        "longer-than-the-job",
        JOB + "export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=99999\n" + TRAIN,
        4,
        JOB + "export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=600\n" + TRAIN,
    ),
    (
        "loopback-interface",
        JOB + "export NCCL_SOCKET_IFNAME=lo\n" + TRAIN,
        4,
        JOB + "export NCCL_SOCKET_IFNAME=^lo\n" + TRAIN,
    ),
    (
        "log-level-case",
        JOB + "export LOGLEVEL=info\nsrun -K1 torchrun train.py\n",
        4,
        JOB + "export LOGLEVEL=INFO\nsrun -K1 torchrun train.py\n",
    ),
    (
        "log-level-case",
        JOB + "export LOGLEVEL=info\nsrun -K1 torchrun a.py\n",
        4,
        JOB + "export LOGLEVEL=info\n" + TRAIN,
    ),
    *(
        ("deepspeed-ssh", JOB + bad, 4, JOB + good)
        for bad, good in (
            ("deepspeed train.py\n", "pip install --no-index --find-links=w deepspeed\n" + TRAIN),
            ("time deepspeed train.py\n", "pip show deepspeed\n" + TRAIN),
            ("/v/bin/deepspeed train.py\n", "conda activate deepspeed\n" + TRAIN),
            ("env -u X A=1 deepspeed train.py\n", "module load deepspeed\n" + TRAIN),
            ("timeout -k 30 23h deepspeed train.py\n", "command -v deepspeed || which deepspeed\n" + TRAIN),
            ("conda run -n deepspeed deepspeed train.py\n", "conda run -n deepspeed pip list\n" + TRAIN),
            ("singularity exec --nv -B /a a.sif deepspeed a.py\n", "singularity exec --nv a.sif pip show deepspeed\n"),
            ("$(which deepspeed) train.py\n", "ls deepspeed; deepspeed --version\n" + TRAIN),
            ("python -m deepspeed.launcher.runner train.py\n", "python -m pip install deepspeed\n" + TRAIN),
            ("numactl -N 0 deepspeed train.py\n", "srun -K1 pip install deepspeed\n" + TRAIN),
        )
    ),
    (
        "double-launch",
        JOB + "#SBATCH -n 8\nsrun -K1 env -u X torchrun --nproc_per_node=4 train.py\n",
        5,
        JOB + "#SBATCH -n 8\nsrun -K1 pip install torchrun\nsrun -K1 which torchrun\n" + TRAIN,
    ),
    (
        "log-level-case",
        JOB + "LOGLEVEL=info srun -K1 torchrun a.py\n",
        4,
        JOB + "which torchrun\nLOGLEVEL=info " + TRAIN,
    ),
    *(
        ("one-node-launch", JOB + bad, 4, JOB + good)
        for bad, good in (
            ("accelerate launch --num_machines 4 train.py\n", "srun -K1 accelerate launch --num_machines 2 train.py\n"),
            ("accelerate launch train.py\n", "accelerate config default\n"),
            ("nohup accelerate launch a.py\n", "accelerate launch --use_deepspeed --deepspeed_hostfile h a.py\n"),
            (
                "python -m accelerate.commands.launch a.py\n",
                "S=srun\n$S -K1 torchrun --nnodes=2 --rdzv_backend=c10d train.py\n",
            ),
            ("poetry run torchrun a.py\n", "pip install torchrun\n"),
        )
    ),
    *(
        ("one-node-training", JOB + bad, line, JOB + good)
        for line, bad, good in (
            (4, "python train.py\n", TRAIN),
            (4, "python -u train.py --lr 1\n", "python prepare.py\n" + TRAIN),
            (5, "python prepare.py\npython train.py\n", "python prepare.py\nmpirun python train.py\n"),
            (4, "singularity exec --nv a.sif python a.py\n", "singularity exec --nv a.sif python -c 'import torch'\n"),
            (
                4,
                "accelerate launch --config_file f.yaml a.py\n",
                "accelerate launch --config_file deepspeed.yaml a.py\n",
            ),
            (4, "exec python train.py\n", "exec python submit.py\n"),
            (4, "python train.py\n", "python train.py --launcher slurm\n"),
            (4, "python train.py\n", "bash start_workers.sh\npython train.py\n"),
            (4, "python train.py\n", "$RUNNER python train.py\n"),
            (4, "python train.py\n", "for host in $HOSTS; do ssh $host python train.py & done\nwait\n"),
            (4, "python train.py\n", "python -m supervisor train.py\n"),
            (4, "python train.py --master_host $(hostname) --launch-id 3\n", "python train.py --hostfile hosts\n"),
            (4, "python train.py --job $SLURM_JOB_ID\n", "python train.py -m hydra/launcher=submitit_slurm\n"),
            (4, "python train.py --backend nccl --driver_version 5\n", "python train.py --executor ray\n"),
            (4, "python train.py --data /slurm/launch/driver\n", "python host_driver.py\n"),
        )
    ),
    *(
        ("same-node-rank", JOB + "srun -K1 " + bad, 4, JOB + "srun -K1 " + good)
        for bad, good in (
            (
                "torchrun --nnodes=2 --nproc_per_node=4 --rdzv_endpoint=$(hostname):$PORT train.py\n",
                "torchrun --nnodes=2 --nproc_per_node=4 --rdzv-backend c10d --rdzv_endpoint=$(hostname):$PORT a.py\n",
            ),
            (
                "torchrun --nnodes $SLURM_NNODES --rdzv-backend static --node-rank 0 --master-addr $A a.py\n",
                "bash -c 'torchrun --nnodes $SLURM_NNODES --rdzv-backend static --node-rank $SLURM_NODEID a.py'\n",
            ),
            ("torchrun --nnodes=2 a.py\n", "torchrun --nnodes=1 --standalone a.py\n"),
            ("torchrun --nnodes=2 -m a.b --rank 3\n", "torchrun --nproc_per_node=4 a.py --nnodes=2\n"),
            (
                "bash -c 'torchrun --nnodes=2 a.py'\n",
                "bash -c 'PET_NODE_RANK=$SLURM_NODEID torchrun --nnodes=2 a.py'\n",
            ),
            ("python -m torch.distributed.launch --nnodes=2 a.py\n", "torchrun --nnodes=2 $RENDEZVOUS a.py\n"),
            ("--nodes=2 torchrun --nnodes=2 a.py\n", "--nodes=1 -w n1 torchrun --nnodes=2 --node_rank=0 a.py\n"),
        )
    ),
    (
        "same-node-rank",
        JOB + "ARGS='--nnodes=2 --nproc_per_node=4'\nsrun -K1 torchrun $ARGS train.py\n",
        5,
        JOB + "ARGS='--nnodes=2 --rdzv_backend=c10d'\nsrun -K1 torchrun $ARGS train.py\n",
    ),
    (
        "task-variable-on-batch-host",
        JOB + "RANK=$SLURM_PROCID srun -K1 python train.py\n",
        4,
        JOB + "srun -K1 env -u X bash -c 'RANK=$SLURM_PROCID python train.py'\n",
    ),
    (
        "task-variable-on-batch-host",
        JOB.replace("nodes=2", "nodes=1") + "#SBATCH --ntasks-per-node=4\npython train.py --rank $SLURM_PROCID\n",
        5,
        JOB.replace("nodes=2", "nodes=1") + "python train.py --rank $SLURM_PROCID\n",
    ),
    (
        "one-node-training",
        JOB + "python prepare.py\n",
        4,
        JOB.replace("nodes=2", "nodes=1") + "python prepare.py\npython train.py\n",
    ),
    *(
        ("status-lost", JOB + "srun -K1 python train.py " + bad, 4, JOB + "srun -K1 python train.py " + good)
        for bad, good in (
            ("|| true\n", "|| exit 1\n"),
            ("|| :\n", "|| status=$?\nexit $status\n"),
            ("|| echo failed\n", "|| { echo failed; exit 1; }\n"),
            ("|| echo failed >&2\n", "|| false\n"),
            ("|| true\necho done\n", "|| true\npython check.py\n"),
            ("|| true\nexit 0\n", "|| true\n[ -f DONE ]\n"),
            ("|| echo failed\nexit $?\n", '|| status=$?\necho end\nexit "$status"\n'),
            ("&& echo ok || echo failed\n", "&& echo ok\n"),
            ("> log 2>&1 || true\n", "> log 2>&1 || true\ngrep -q finished log\n"),
            ("|| { echo failed; }\n", "|| { echo failed; scancel $SLURM_JOB_ID; }\n"),
            ("|| true\n", "|| touch FAILED\n"),
            ("|| true\n", "|| true\nsbatch evaluate.sbatch\n"),
        )
    ),
    (
        "status-lost",
        JOB + "set -o pipefail\nsrun -K1 python a.py | tee log || true\n",
        5,
        JOB + "set -o pipefail\nsrun -K1 python a.py | tee log || exit 1\n",
    ),
    (
        "status-lost",
        JOB + "if srun -K1 python a.py; then echo ok; else echo failed; fi\n",
        4,
        JOB + "if srun -K1 python a.py; then echo ok; else echo failed; exit 1; fi\n",
    ),
    (
        "status-lost",
        JOB + "set -e\nif ! srun -K1 python a.py; then echo failed; fi\necho end\n",
        5,
        JOB + "set -e\n" + TRAIN + "srun -K1 ./clean || true\n",
    ),
    (
        "status-lost",
        JOB + "srun -K1 python a.py || true\n",
        4,
        JOB + "for i in 1 2 3; do srun -K1 python a.py && exit 0 || true; done\nexit 1\n",
    ),
    (
        "status-lost",
        JOB + "srun -K1 python a.py || true\n",
        4,
        JOB + "trap '[ -f DONE ] || exit 1' EXIT\nsrun -K1 python a.py || true\n",
    ),
    *(
        ("refused-option", JOB + f"#SBATCH {bad}\n" + TRAIN, 4, JOB + f"#SBATCH {good}\n" + TRAIN)
        for bad, good in (
            ("\u2013mem=0", "--mem=0"),
            ("\u2014exclusive", "--exclusive"),
            ("mem=0", "--part=x --tasks-per-node=1"),
            ("--memm=0", "--mem 0"),
            ("--gpu-per-node=4", "--gpus-per-node=4"),
            ("--gpus-per=4", "--gpus-per-n=4"),
            ("--cpus_per_task=1", "--cpus-per-task=1"),
            ("--mem=64 GB", "--mem=64GB"),
            ("--comment = x", "--comment x"),
            ("--exclusive user", "--exclusive=user"),
            ("-J a b", "-J a # b"),
            ("--nodelist", "--contiguous"),
            ("-mem=0", "-m block"),
            ("-partition=x", "-p artition=x"),
            ("-l nodes=2", "--licenses=l"),
            ("-K", "--no-kill"),
            ("--label", "--container-image=a.sqsh"),
            ("--workdir=/scratch", "--chdir=/scratch"),
            ("--share", "-s --segment=4 --stepmgr --tres-per-task=cpu:1"),
            ("-o a.log b.log", "{{ more options }}"),
        )
    ),
    ("unknown-option", JOB + "#SBATCH --ear=on\n" + TRAIN, 4, JOB + "#SBATCH --{name}=on\n" + TRAIN),
    *(
        ("refused-value", JOB + f"#SBATCH {bad}\n" + TRAIN, 4, JOB + f"#SBATCH {good}\n" + TRAIN)
        for bad, good in (
            ("--mem=64GiB", "--mem=64Gb"),
            ("--mem=1.5G", "--mem=1536M"),
            ("--mem-per-cpu=64B", "--mem-per-cpu=64"),
            ("--gres=gpu=4", "--gres=gpu"),
            ("--gres=gpu:a100=4", "--gres=gpu:a100:4,tmpfs:10G"),
            ("--gres=gpu:4:a100", "--gres=gpu:3g.20gb:1"),
            ("--gres=4", "--gres=none"),
            ("--gres=gpu-4", "--gres=gpu:4(S:0-1)"),
            ("--signal=TERM:300", "--signal=TERM@300"),
            ("--signal=TERM@5m", "--signal=15"),
            ("--open-mode=overwrite", "--open-mode=app"),
            ("--kill-on-invalid-dep=true", "--kill-on-invalid-dep=yes"),
        )
    ),
    *(
        ("variable-in-directive", JOB + f"#SBATCH {bad}\n" + TRAIN, 4, JOB + f"#SBATCH {good}\n" + TRAIN)
        for bad, good in (
            ("--output=~/x.out", "--output=/home/me/x.out"),
            ("-D ~me/run", "-D run~"),
            ("-e ~/logs/%j.err", "-e logs/%j.err"),
        )
    ),
    *(
        ("blank-after-backslash", JOB + "set -e\n" + bad, line, JOB + "set -e\n" + good)
        for line, bad, good in (
            (5, "srun -K1 \\ \n  python train.py\n", "srun -K1 \\\n  python train.py\n"),
            (5, "export A=1 B=2 \\\t\n  C=3\n" + TRAIN, "export A=1 B=2 \\\n  C=3\n" + TRAIN),
            (6, 'ARGS=(\n--lr 1 \\ \n --seed 2)\nsrun -K1 python a.py "${ARGS[@]}"\n', "A=a # \\ \n" + TRAIN),
            (
                6,
                'CMD="python a.py \\\n --lr 1 \\  \n --seed 2"\nsrun -K1 $CMD\n',
                'CMD="python a.py \\\n --lr 1"\nsrun -K1 $CMD\n',
            ),
            (5, "true && \\ \n" + TRAIN, "cat <<EOF\na \\ \nEOF\n" + TRAIN),
            (5, "date; srun -K1 python \\ \na.py\n", "date | tr -d \\ \n" + TRAIN),
        )
    ),
    *(
        ("blanks-around-equals", JOB + bad + TRAIN, 4, JOB + good + TRAIN)
        for bad, good in (
            ("export PORT = 29500\n", "export PORT=29500\n"),
            ("export PORT= 29500\n", "export PORT= NAME\n"),
            ("export PORT =29500\n", 'export PORT $MORE -n "$EVEN=1"\n'),
            ("declare -x PORT = 1\n", "declare -A map=([a]=1)\n"),
            ("PORT = 29500\n", "[ $PORT = 29500 ] || [[ PORT == x ]]\n"),
            ("PATHS += :/opt\n", "test PORT = 1; PORT= date; expr a = b\n"),
            ("readonly NODES = 2\n", "readonly NODES=2\nlocal_dir=/x\n"),
        )
    ),
    *(
        ("typeset-sign", JOB + bad, 4, JOB + good)
        for bad, good in (
            ("srun -K1 \u2013\u2013label python a.py\n", "srun -K1 --label python a.py # \u2013\u2013label\n"),
            ("srun -K1 python a.py \u2014lr 1\n", "srun -K1 python a.py --name 'a \u2014lr 1'\n"),
            ("export A=\u201cx\u201d\n" + TRAIN, 'export A="\u201cx\u201d"\n' + TRAIN),
            ("mkdir \u2212p x\n" + TRAIN, "echo \u2212p\n" + TRAIN + "exit\n"),
        )
    ),
    *(
        ("node-count-differs", JOB + "srun -K1 " + bad, 4, JOB + "srun -K1 " + good)
        for bad, good in (
            ("torchrun --nnodes=4 --rdzv_backend=c10d a.py\n", "torchrun --nnodes=2 --rdzv_backend=c10d a.py\n"),
            ("torchrun --nnodes 3:4 --rdzv_backend c10d a.py\n", "torchrun --nnodes 1:4 --rdzv_backend c10d a.py\n"),
            (
                "-N 2 bash -c 'torchrun --nnodes=4 --rdzv-backend=c10d a.py'\n",
                "bash -c 'torchrun --nnodes=$SLURM_NNODES --rdzv-backend=c10d a.py'\n",
            ),
            (
                "python -m torch.distributed.run --nnodes 4 --rdzv_backend=c10d a.py\n",
                "-w n1 torchrun --nnodes=4 --rdzv_backend=c10d a.py\n",
            ),
            ("accelerate launch --num_machines 4 a.py\n", "accelerate launch --num_machines 2 a.py\n"),
            (
                "-N1 torchrun --nnodes=2 --rdzv_backend=c10d a.py\n",
                "torchrun --standalone --nnodes=1 a.py --nnodes=4\n",
            ),
        )
    ),
    *(
        ("more-ranks-than-gpus", JOB + bad, line, JOB + good)
        for line, bad, good in (
            (
                5,
                "#SBATCH --gres=gpu:4\nsrun -K1 torchrun --nproc_per_node=8 a.py\n",
                "#SBATCH --gres=gpu:4\nsrun -K1 torchrun --nproc_per_node=4 a.py\n",
            ),
            (
                5,
                "#SBATCH --gpus-per-node=4 --ntasks-per-node=8\n" + TRAIN,
                "#SBATCH --gpus-per-node=4 --ntasks-per-node=4\n" + TRAIN,
            ),
            (
                5,
                "#SBATCH -G 8\nsrun -K1 --ntasks 16 python a.py\n",
                "#SBATCH -G 8\nsrun -K1 --ntasks 16 python preprocess.py\n",
            ),
            (
                4,
                "srun -K1 --gpus-per-node 2 --ntasks-per-node 4 python a.py\n",
                "srun -K1 --gpus-per-task 1 --ntasks-per-node 4 python a.py\n",
            ),
            (
                5,
                "#SBATCH --gres=gpu:4\nsrun -K1 accelerate launch --num_machines 2 --num_processes 16 a.py\n",
                "#SBATCH --gres=gpu:4\nsrun -K1 accelerate launch --num_machines 2 --num_processes 8 a.py\n",
            ),
        )
    ),
    *(
        ("world-size-differs", JOB + "#SBATCH --ntasks-per-node=4\n" + bad, 5, JOB + good)
        for bad, good in (
            ("export WORLD_SIZE=4\n" + TRAIN, "#SBATCH --ntasks-per-node=4\nexport WORLD_SIZE=8\n" + TRAIN),
            ("export WORLD_SIZE=16\n" + TRAIN, "export WORLD_SIZE=16 # the program starts 8 on each node\n" + TRAIN),
            ("WORLD_SIZE=2 " + TRAIN, "#SBATCH -n 8\nWORLD_SIZE=8 " + TRAIN),
            ("srun -K1 --export=ALL,WORLD_SIZE=4 python a.py\n", "export WORLD_SIZE=$SLURM_NTASKS\n" + TRAIN),
            ("srun -K1 bash -c 'WORLD_SIZE=2 python a.py'\n", "export WORLD_SIZE=1\nsrun -K1 torchrun a.py\n"),
        )
    ),
    *(
        ("too-few-visible", JOB + "#SBATCH --ntasks-per-node=4\n" + bad, 5, JOB + good)
        for bad, good in (
            ("export CUDA_VISIBLE_DEVICES=0\n" + TRAIN, "export CUDA_VISIBLE_DEVICES=0\n" + TRAIN),
            (
                "export CUDA_VISIBLE_DEVICES=0,1\n" + TRAIN,
                "#SBATCH -n 8\nexport CUDA_VISIBLE_DEVICES=0,1,2,3\n" + TRAIN,
            ),
            ("HIP_VISIBLE_DEVICES=0 " + TRAIN, "#SBATCH -n 8\nHIP_VISIBLE_DEVICES=0 srun -N1 -n1 -K1 python a.py\n"),
            (
                "export CUDA_VISIBLE_DEVICES=0\n" + TRAIN,
                "#SBATCH -n 8\nsrun -K1 bash -c 'CUDA_VISIBLE_DEVICES=$SLURM_LOCALID python a.py'\n",
            ),
            (
                "CUDA_VISIBLE_DEVICES=0 srun -n 2 -K1 torchrun --nproc_per_node=4 a.py\n",
                "CUDA_VISIBLE_DEVICES=0,1 srun -n 2 -K1 torchrun --nproc_per_node=2 a.py\n",
            ),
        )
    ),
    *(
        ("fixed-port", JOB + bad, line, JOB + good)
        for line, bad, good in (
            (
                4,
                "srun -K1 torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 a.py\n",
                "srun -K1 torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:0 a.py\n",
            ),
            (
                4,
                "srun -K1 torchrun --nnodes=2 --rdzv-backend c10d --rdzv-endpoint $HEAD:1234 a.py\n",
                "srun -K1 torchrun --nnodes=2 --rdzv-backend c10d --rdzv-endpoint $HEAD:$PORT a.py\n",
            ),
            (
                5,
                'PORT=29500\nsrun -K1 bash -c "torchrun --nnodes=2 --rdzv_backend=c10d --master_port $PORT a.py"\n',
                'srun -K1 bash -c "torchrun --nnodes=2 --rdzv_backend=c10d --master_port $PORT a.py"\n',
            ),
            (
                4,
                "srun -K1 accelerate launch --num_machines 2 --main_process_port 29500 a.py\n",
                "srun -K1 accelerate launch --num_machines 2 --main_process_port $PORT a.py\n",
            ),
        )
    ),
    *(
        ("training-left-behind", JOB + bad, line, JOB + good)
        for line, bad, good in (
            (4, "srun -K1 python train.py &\n", "srun -K1 python train.py &\nwait $!\n"),
            (4, "nohup srun -K1 python a.py > log 2>&1 &\necho started\n", "srun -K1 python a.py & wait $!\n"),
            (4, "srun -K1 python a.py & disown\nsleep 5\n", "srun -K1 python a.py &\nsleep 12h\n"),
            (4, "{ srun -K1 python a.py; } &\n", "{ srun -K1 python a.py; } &\ntail --pid=$! -f /dev/null\n"),
            (
                4,
                "for i in 1 2; do srun -K1 -N1 python a.py $i & done\n",
                "for i in 1 2; do srun -K1 -N1 python a.py $i & done\nwait\n",
            ),
            (4, "run() { srun -K1 python a.py; }\nrun &\n", "run() { srun -K1 python a.py; }\nrun &\nwait -n\n"),
            (4, "mpirun python a.py &\n", "mpirun python a.py &\nwhile pgrep mpirun; do sleep 10; done\n"),
            (4, "tmux new-session -d 'srun -K1 python a.py'\n", "tmux new-session 'srun -K1 python a.py'\n"),
            (4, "screen -dmS t ./train.sh\nexec 2>&1\n", "screen -ls\n./train.sh\n"),
            (4, "bash start_workers.sh &\n", "bash start_workers.sh\n"),
            (4, "eval 'srun -K1 python a.py' &\n", "trap 'wait; touch END' EXIT\nsrun -K1 python a.py &\n"),
            (4, "srun -K1 bash -c 'python a.py &'\n", "srun -K1 bash -c 'python a.py & wait $!'\n"),
            (4, "(srun -K1 python a.py &)\n", "(srun -K1 python a.py & wait $!)\n"),
        )
    ),
    *(
        ("tries-lost", JOB + bad, 4, JOB + good)
        for bad, good in (
            (
                "run() { srun -K1 python a.py; }; for i in 1 2; do run && break; sleep 9; done; date\n",
                "run() { srun -K1 python a.py || exit; }; for i in 1 2; do run && break; sleep 9; done; date\n",
            ),
            (
                "for i in 1 2 3; do srun -K1 python a.py $i; done\ndate\n",
                "for i in 1 2 3; do srun -K1 python a.py $i || failed=1; done\ndate; exit $failed\n",
            ),
            (
                "for i in 1 2 3; do srun -K1 python a.py && break; sleep 10; done; echo finished\n",
                "for i in 1 2 3; do srun -K1 python a.py && exit 0; sleep 10; done; exit 1\n",
            ),
            (
                "for i in 1 2 3; do srun -K1 python a.py && break; sleep 10; done\n",
                "for i in 1 2 3; do sleep 10; srun -K1 python a.py && break; done\n",
            ),
            (
                "for i in 1 2; do if srun -K1 python a.py; then break; fi; echo again; done\n",
                'for i in 1 2; do if srun -K1 python a.py; then done=1; break; fi; done\n[ -n "$done" ]\n',
            ),
            (
                "for ((i = 0; i < 3; i++)); do srun -K1 python a.py && break; date; done\n",
                "for ((i = 0; i < 3; i++)); do srun -K1 python a.py && break; rc=$?; done\nexit $rc\n",
            ),
            (
                "until srun -K1 python a.py; do n=$((n + 1)); [ $n -ge 3 ] && break; sleep 9; done\necho end\n",
                "until srun -K1 python a.py; do n=$((n + 1)); [ $n -ge 3 ] && exit 1; sleep 9; done\necho end\n",
            ),
            (
                "while ! srun -K1 python a.py; do ((n++ > 3)) && break; sleep 9; done\n",
                "while ! srun -K1 python a.py; do sleep 9; done\necho end\n",
            ),
        )
    ),
    *(
        ("chain-not-reached", JOB + bad, line, JOB + good)
        for line, bad, good in (
            (5, "set -e\nsrun -K1 python a.py; sbatch chain.sh\n", "set -e\nsrun -K1 python a.py && sbatch chain.sh\n"),
            (
                6,
                "set -e\n" + TRAIN + "ssh login 'cd x && sbatch loop.sh'\n",
                "set -e\n" + TRAIN + "ssh login '[ -f DONE ] || sbatch loop.sh'\n",
            ),
            (6, "set -e\n" + TRAIN + "sbatch $0\n", "set -e\n" + TRAIN + "sbatch evaluate.sh\n"),
            (6, "set -e\n" + TRAIN + "sbatch -d singleton train.sbatch\n", "set -e\n" + TRAIN + "sbatch --wrap date\n"),
            (
                6,
                "set -e\n" + TRAIN + "sbatch --dependency afterany:$SLURM_JOB_ID loop.sh\n",
                "set -e\ntimeout 55m srun -K1 python a.py\nsbatch --dependency afterany:$SLURM_JOB_ID loop.sh\n",
            ),
            (
                7,
                "set -e\nagain() { date; }\n" + TRAIN + "eval sbatch resubmit.sh\n",
                "set -e\nagain() { sbatch resubmit.sh; }\ntrap again USR1\n" + TRAIN,
            ),
            (
                6,
                "set -e\n" + TRAIN + "sbatch next.sh\n",
                "set -e\nsrun -K1 python a.py --exit-duration-in-mins 50\nsbatch next.sh\n",
            ),
        )
    ),
    *(
        ("endless-chain", JOB + bad + TRAIN, line, JOB + good + TRAIN)
        for line, bad, good in (
            (
                4,
                "sbatch --dependency=afterany:$SLURM_JOB_ID loop.sh\n",
                "[ -f DONE ] && exit\nsbatch --dependency=afterany:$SLURM_JOB_ID loop.sh\n",
            ),
            (
                4,
                "sbatch -d afterany:$SLURM_JOB_ID $0\n",
                "if [ ! -f DONE ]; then sbatch -d afterany:$SLURM_JOB_ID $0; fi\n",
            ),
            (4, "sbatch -d singleton train.sbatch\n", "[ $N -lt 9 ] && sbatch -d singleton train.sbatch\n"),
            (
                4,
                "NEXT=$(sbatch --parsable --dependency afterany:$SLURM_JOB_ID chain.sh)\n",
                "NEXT=$(sbatch --parsable -d afterany:$SLURM_JOB_ID chain.sh)\ntrap 'scancel $NEXT' ERR\n",
            ),
            (
                4,
                "sbatch -d afterany:$SLURM_JOB_ID $0\n" + TRAIN + "if [ $? -ne 0 ]; then exit 1; fi\n",
                "if [ -f DONE ]; then exit 0; fi\nsbatch -d afterany:$SLURM_JOB_ID $0\n"
                + TRAIN
                + "if [ $? -ne 0 ]; then exit 1; fi\n",
            ),
            (
                4,
                "sbatch -d afterany:$SLURM_JOB_ID $0; [ -f DONE ] && exit 0\n",
                "[ -f DONE ] && exit 0; sbatch -d afterany:$SLURM_JOB_ID $0\n",
            ),
            (
                5,
                "done_yet() { [ -f DONE ] && exit 0; }\nsbatch -d afterany:$SLURM_JOB_ID $0\ndone_yet\n",
                "done_yet() { [ -f DONE ] && exit 0; }\ndone_yet\nsbatch -d afterany:$SLURM_JOB_ID $0\n",
            ),
            (
                6,
                "leave() { [ -f DONE ] && exit 0; }\ntrap leave TERM\nsbatch -d afterany:$SLURM_JOB_ID $0\n",
                "leave() { [ -f DONE ] && exit 0; }\nif date; then leave; fi\nsbatch -d afterany:$SLURM_JOB_ID $0\n",
            ),
            (
                4,
                "sbatch -d afterany:$SLURM_JOB_ID $0\n" + TRAIN + "[ -f DONE ] || exit 1\n",
                "sbatch -d afterany:$SLURM_JOB_ID $0\n" + TRAIN + "[ -f DONE ] || scancel $NEXT\n",
            ),
            (
                5,
                "next() { sbatch --dependency=afterany:$SLURM_JOBID $0; }\nnext\n".replace("next() {", "next() {\n", 1),
                "sbatch --dependency=afterok:$SLURM_JOB_ID loop.sh\n",
            ),
        )
    ),
    *(
        ("bare-wait", JOB + bad, line, JOB + good)
        for line, bad, good in (
            (5, "srun -K1 --wait=60 python a.py &\nwait\n", "srun -K1 --wait=60 python a.py &\nwait $!\n"),
            (
                6,
                "srun -K1 -N1 python a.py &\nsrun -K1 -N1 python b.py &\nwait\n",
                "srun -K1 -N1 python a.py &\nsrun -K1 -N1 python b.py &\nwait -n && wait -n\n",
            ),
            (
                5,
                "srun -K1 python a.py &\nwait\nrc=$?\nexit $rc\n",
                "srun -K1 python a.py &\npid=$!\ndate\nwait $pid\nrc=$?\nwait\nexit $rc\n",
            ),
            (6, "set -e\nsrun -K1 python a.py &\nwait\ndate\n", "set -e\nsrun -K1 python a.py &\nwait\n[ -f DONE ]\n"),
            (
                6,
                "run() { srun -K1 python a.py; }\nrun &\nwait\ncp -r out /archive\n",
                "run() { srun -K1 python a.py || touch FAILED; }\nrun &\nwait\n[ ! -f FAILED ]\n",
            ),
            (
                4,
                "srun -K1 python a.py & wait; exit $?\n",
                "(srun -K1 python a.py; echo $? > rc) & wait; exit $(cat rc)\n",
            ),
            (
                5,
                "{ srun -K1 python a.py; } &\nwait\nif [ $? -eq 0 ]; then sbatch next.sh; fi\n",
                "trap 'wait $pid; exit $?' EXIT\n{ srun -K1 python a.py; } &\npid=$!\nwait\n",
            ),
            (
                5,
                "srun -K1 python a.py &\nwait\n",
                "srun -K1 -n1 ray start --block &\npython driver.py; rc=$?\nwait\nexit $rc\n",
            ),
            (
                4,
                "srun -K1 bash -c './dcgm.sh & python a.py & wait'\n",
                "srun -K1 bash -c './dcgm.sh & python a.py & wait $!'\n",
            ),
            (
                4,
                'srun -K1 bash -c "torchrun --nnodes=2 --rdzv_backend=c10d a.py & wait"\n',
                'srun -K1 bash -c "./dcgm.sh & torchrun --nnodes=2 --rdzv_backend=c10d a.py"\n',
            ),
        )
    ),
    *(
        ("status-only-read", JOB + TRAIN + bad, 4, JOB + TRAIN + good)
        for bad, good in (
            ("if [ $? -eq 0 ]; then sbatch next.sh; fi\n", "if [ $? -ne 0 ]; then exit 1; fi\n"),
            ("if [[ $? -eq 0 ]]; then date; else echo failed; fi\n", "if [[ $? -eq 0 ]]; then date; else false; fi\n"),
            (
                "rc=$?; if [ $rc -ne 0 ]; then sbatch again.sh; fi\n",
                "rc=$?; if [ $rc -ne 0 ]; then sbatch again.sh; fi; exit $rc\n",
            ),
            (
                "rc=$?\nif (( rc )); then sbatch again.sh; fi\nexit 0\n",
                "rc=$?\nif (( rc )); then date; fi\n(exit $rc)\n",
            ),
            ("rc=$?\necho ended with $rc\n", "rc=$?\necho ended with $rc\n[ $rc -eq 0 ]\n"),
            ("echo status $? >&2\n", "echo $? > status\n"),
            ("if test $? -eq 0; then touch DONE; fi\n", "exit $?\n"),
            ("if [ $? -eq 0 ]; then date; fi; exit $?\n", "if [ $? -eq 0 ]; then date; else exit; fi\n"),
            ("rc=$?\n", "rc=$?\nif [ $rc -ne 0 ]; then fail; fi\n"),
            (
                "if [ $? -eq 0 ]; then srun -K1 python eval.py; fi\n",
                "if [ $? -ne 0 ]; then srun -K1 python again.py; fi\n",
            ),
            (
                'rc=$?\nif [[ "$rc" == 0 ]]; then\n  srun -K1 python eval.py\nfi\n',
                'rc=$?\nif [[ "$rc" == 0 ]]; then\n  srun -K1 python eval.py\nelse exit 1; fi\n',
            ),
        )
    ),
    *(
        ("unexported-rendezvous", JOB + bad, 4, JOB + good)
        for bad, good in (
            ("MASTER_ADDR=$(hostname)\n" + TRAIN, "MASTER_ADDR=$(hostname)\nexport MASTER_ADDR\n" + TRAIN),
            ("WORLD_SIZE=8\n" + TRAIN, "set -a\nWORLD_SIZE=8\n" + TRAIN),
            ("MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\n" + TRAIN, "WORLD_SIZE=8 " + TRAIN),
            (
                "MASTER_ADDR=$(hostname)\necho $MASTER_ADDR\nsrun -K1 singularity exec a.sif python -m train\n",
                "MASTER_ADDR=$(hostname)\nsrun -K1 python a.py --head $MASTER_ADDR\n",
            ),
            (
                "MASTER_ADDR=$(hostname)\nsrun -K1 bash -c 'python a.py'\n",
                'MASTER_ADDR=$(hostname)\nsrun -K1 bash -c "MASTER_ADDR=$MASTER_ADDR python a.py"\n',
            ),
            (
                "MASTER_ADDR=$(hostname)\nsource venv/bin/activate\n" + TRAIN,
                "source env.sh\nMASTER_ADDR=$(hostname)\n" + TRAIN,
            ),
            ("MASTER_ADDR=$(hostname)\n" + TRAIN, "MASTER_ADDR=$(hostname)\nsrun -K1 -N1 -n1 python a.py\n"),
            (
                "WORLD_SIZE=8\nsrun -K1 --export=ALL,MASTER_PORT python a.py\n",
                "WORLD_SIZE=8\nsrun -K1 --export=ALL,WORLD_SIZE=$WORLD_SIZE python a.py\n",
            ),
            ("WORLD_SIZE=8\n" + TRAIN, "MASTER_ADDR=${MASTER_ADDR:-$(hostname)}\n" + TRAIN),
        )
    ),
    *(
        ("typeset-sign", JOB + bad, line, JOB + good)
        for line, bad, good in (
            (4, "srun -K1 python a.py \u2013-resume\n", "srun -K1 python a.py --title 'a \u2013-b'\n"),
            (4, "srun -K1 python a.py -\u2013resume\n", "srun -K1 python a.py --pages 1\u20135 -\u2013-\n"),
            (4, "srun -K1 bash -c 'python a.py \u2013-x'\n", "srun -K1 bash -c 'python a.py --t \"\u2014b\"'\n"),
            (
                5,
                "A=(--x 1\n\u2013-y)\nsrun -K1 python a.py ${A[@]}\n",
                "A=(--x 1 # \u2013-y\n)\nsrun -K1 python a.py ${A[@]}\n",
            ),
            (4, 'A="-x \u2013-y"\nsrun -K1 python a.py $A\n', 'A="-x \u2013-y"\nsrun -K1 python a.py --title "$A"\n'),
        )
    ),
    *(
        ("not-a-directive", JOB + bad + TRAIN, 4, JOB + good + TRAIN)
        for bad, good in (
            ("#SBACTH --mem=0\n", "##SBACTH --mem=0\n"),
            ("#SBATH --gres=gpu:4\n", "#SBATH wants a T\n"),
            ("#SABTCH -G 4\n", "#BASH -x\n"),
            ("# SBATCG --mem=0\n", "# BATCH - its size\n"),
            ("#sbacth --mem=0\n", "#watch -n 1 nvidia-smi\n"),
            ("#Sbacth --mem=0\n", "# scratch -p x\n# patch -p 1\n"),
            ("#SBTCH --mem=0\n", "#SRUN -N 2\n# CATCH --all\n"),
        )
    ),
    *(
        ("rendezvous-per-task", JOB + bad, 4, JOB + good)
        for bad, good in (
            (
                'srun -K1 bash -c "torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_id=\\$RANDOM a.py"\n',
                'srun -K1 bash -c "torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_id=$RANDOM a.py"\n',
            ),
            (
                "srun -K1 bash -c 'torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_id=\"a-$(date +%s)\" a.py'\n",
                "srun -K1 bash -c 'torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_id=$SLURM_JOB_ID a.py -s $RANDOM'\n",
            ),
            (
                "srun -K1 bash -c 'I=$RANDOM; torchrun --nnodes=2 --rdzv_backend=c10d --rdzv-id $I a.py'\n",
                "export I=$RANDOM; srun -K1 bash -c 'torchrun --nnodes=2 --rdzv_backend=c10d --rdzv-id $I a.py'\n",
            ),
            (
                "srun -K1 bash -c 'export MASTER_PORT=$((20000 + RANDOM % 100)); python a.py'\n",
                "srun -K1 -N1 bash -c 'export MASTER_PORT=$((20000 + RANDOM % 100)); python a.py'\n",
            ),
            (
                "srun -K1 bash <<EOF\ntorchrun --nnodes=2 --rdzv_backend=c10d --rdzv_id=\\$RANDOM a.py\nEOF\n",
                "srun -K1 bash <<EOF\ntorchrun --nnodes=2 --rdzv_backend=c10d --rdzv_id=$RANDOM a.py\nEOF\n",
            ),
        )
    ),
    *(
        ("fixed-port", JOB + "#SBATCH --gres=gpu:4\n" + start, line, JOB + "#SBATCH --gres=gpu:8\n" + start)
        for line, start in (
            (
                6,
                (
                    "H=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
                    "srun -K1 torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint $H:29500 a.py\n"
                ),
            ),
            (5, "srun -K1 bash -c 'torchrun --nnodes=2 --node_rank=$SLURM_NODEID --master_port=29500 a.py'\n"),
            (5, "export MASTER_PORT=29500\n" + TRAIN),
        )
    ),
]

QUEUES = (
    "queues=[{name: main, partition: acc, qos: acc_ehpc, purpose: production, max_nodes: 100, max_walltime: 72h},"
    "{name: debug, partition: acc, qos: acc_debug, purpose: debug, max_nodes: 8, max_walltime: 2h},"
    "{name: big, partition: acc, qos: acc_big, purpose: production, min_nodes: 65, max_nodes: unknown, "
    "max_walltime: unknown},"
    "{name: theirs, partition: acc, qos: acc_theirs, family: theirs, purpose: production, max_nodes: 8, "
    "max_walltime: 2h},"
    "{name: ours, partition: acc, qos: acc_ours, family: ours, purpose: production, max_nodes: 8, max_walltime: 2h},"
    "{name: other, partition: other, qos: other_debug, purpose: debug, max_nodes: 8, max_walltime: 2h}]"
)
SITE_JOB = (
    "#!/bin/bash\n#SBATCH --nodes=8 -p acc\n#SBATCH --time=2:00:00\n#SBATCH --account=a1\n#SBATCH --qos=acc_debug\n"
)


def with_cpus(options):
    return SITE_JOB + f"#SBATCH {options}\nexport SRUN_CPUS_PER_TASK=20\n" + TRAIN


SITE = [
    (
        "missing-account",
        SITE_JOB.replace("--account=a1", "-J a1") + TRAIN,
        5,
        SITE_JOB.replace("--account=", "-A ") + TRAIN,
    ),
    ("missing-qos", SITE_JOB.replace("#SBATCH --qos=acc_debug", "# none") + TRAIN, 4, SITE_JOB + TRAIN),
    ("unknown-queue", SITE_JOB + "#SBATCH -p acc_debug\n" + TRAIN, 6, SITE_JOB + "#SBATCH -p acc\n" + TRAIN),
    ("unknown-queue", SITE_JOB.replace("acc_debug", "debug") + TRAIN, 5, SITE_JOB + TRAIN),
    ("unknown-queue", SITE_JOB + "#SBATCH -p other\n" + TRAIN, 5, SITE_JOB + "#SBATCH -p other,acc\n" + TRAIN),
    ("over-limit", SITE_JOB.replace("nodes=8", "nodes=9") + TRAIN, 2, SITE_JOB + TRAIN),
    ("over-limit", SITE_JOB.replace("2:00:00", "2:00:01") + TRAIN, 3, SITE_JOB + TRAIN),
    (
        "over-limit",
        SITE_JOB.replace("acc_debug", "acc_big") + TRAIN,
        2,
        SITE_JOB.replace("acc_debug", "acc_big").replace("nodes=8", "nodes=65").replace("2:00", "90:00") + TRAIN,
    ),
    *(
        ("over-limit", SITE_JOB.replace("--nodes=8", bad) + TRAIN, 2, SITE_JOB.replace("--nodes=8", good) + TRAIN)
        for bad, good in (
            ("-n 33 --ntasks-per-node=4", "-n 32 --ntasks-per-node=4"),
            ("-N 1k", "-N 1"),
            ("-N 9-12", "-N 8-12"),
            ("--gpus=33 --cpus-per-gpu=20", "--gpus=32 --cpus-per-gpu=20"),
            ("-n 33 --gpus-per-task=1 --exclusive", "-n 32 --gpus-per-task=1 --exclusive"),
        )
    ),
    (
        "over-limit",
        SITE_JOB.replace("--nodes=8", "-n 65 -c 20 --export=SRUN_CPUS_PER_TASK=20") + TRAIN,
        2,
        SITE_JOB.replace("--nodes=8", "-n 64 -c 20 --export=SRUN_CPUS_PER_TASK=20") + TRAIN,
    ),
    *(
        ("over-limit", SITE_JOB.replace("2:00:00", bad) + TRAIN, 3, SITE_JOB.replace("2:00:00", "120") + TRAIN)
        for bad in ("UNLIMITED", "infinite", "0", "-1", "0:00")
    ),
    (
        "over-limit",
        SITE_JOB.replace("acc_debug", "acc_big").replace("nodes=8", "nodes=8-64") + TRAIN,
        2,
        SITE_JOB.replace("acc_debug", "acc_big").replace("nodes=8", "nodes=8-65").replace("2:00:00", "0") + TRAIN,
    ),
    ("queue-of-others", SITE_JOB.replace("acc_debug", "acc_theirs") + TRAIN, 5, SITE_JOB + TRAIN),
    (
        "queue-of-others",
        SITE_JOB.replace("acc_debug", "acc_theirs") + TRAIN,
        5,
        SITE_JOB.replace("debug", "ours") + TRAIN,
    ),
    ("memory-not-here", SITE_JOB + "#SBATCH --mem=0\n" + TRAIN, 6, SITE_JOB + TRAIN),
    (
        "too-large-for-a-node",
        SITE_JOB + "#SBATCH --gres=gpu:5\n" + TRAIN,
        6,
        SITE_JOB + "#SBATCH --exclusive --gres=tmpfs:100,gpu:4\n" + TRAIN,
    ),
    (
        "too-large-for-a-node",
        SITE_JOB + "#SBATCH --ntasks-per-node=4 --cpus-per-task=41\nsrun -K1 -c 41 python train.py\n",
        6,
        SITE_JOB + "#SBATCH --ntasks-per-node=4 --cpus-per-task=20\nsrun -K1 -c 20 python train.py\n",
    ),
    ("missing-partition", SITE_JOB.replace(" -p acc", "") + TRAIN, 5, SITE_JOB + TRAIN),
    (
        "missing-partition",
        SITE_JOB.replace(" -p acc", " -J p") + TRAIN,
        5,
        SITE_JOB.replace("-p ", "--partition=") + TRAIN,
    ),
    *(
        (
            "partition-without-gpus",
            SITE_JOB.replace("-p acc", f"-p {bad}") + TRAIN,
            2,
            SITE_JOB.replace("-p acc", good) + TRAIN,
        )
        for bad, good in (("serial --gres=gpu:4 --exclusive", "-p acc --gres=gpu:4 --exclusive"),)
    ),
    ("unknown-queue", SITE_JOB.replace("-p acc", "-p serial --gres=tmpfs:9") + TRAIN, 2, SITE_JOB + TRAIN),
    ("launcher-not-here", SITE_JOB + "mpirun -np 8 ./train\n", 6, SITE_JOB + "echo mpirun\n" + TRAIN),
    ("launcher-not-here", SITE_JOB + "exec /opt/mpi/bin/mpiexec ./train\n", 6, SITE_JOB + "which mpiexec\n" + TRAIN),
    *(
        ("no-internet", SITE_JOB + bad + TRAIN, 6, SITE_JOB + good + TRAIN)
        for bad, good in (
            ("export WANDB_MODE=online\n", "export WANDB_MODE=offline WANDB_PROJECT=x\n"),
            ("export WANDB_PROJECT=x\n", "export WANDB_PROJECT=x WANDB_DISABLED=true\n"),
            ("export WANDB_API_KEY=x\n", "source env.sh\nexport WANDB_API_KEY=x\n"),
            ("wandb login\n", "wandb offline\n"),
            ("pip install flash-attn\n", "pip install --no-index --find-links wheels flash-attn\n"),
            ("python3 -m pip install -r r.txt\n", "python3 -m pip list\n"),
            ("pip install -e .\n", "pip install --no-build-isolation -e .\n"),
            ("pip install x\n", "pip install /projects/a1/x-1.0-py3-none-any.whl\n"),
            ("curl -s https://example.org\n", "curl -s http://10.1.2.3:9090 http://metrics.jupiter.internal/x\n"),
            ("uv pip install torch || true\n", "uv pip list\n"),
            ("conda create -n x python\n", "conda activate x\n"),
            ("git clone https://github.com/NVIDIA/Megatron-LM\n", "git clone /projects/a1/Megatron-LM\n"),
            ("git clone git@github.com:a/b.git\n", "git log -1\n"),
            ("git pull\n", "git pull /projects/a1/b\n"),
            ("git push\n", "git push /projects/a1/b.git main\n"),
            ("git -C run push origin main\n", "git -C run commit -am x\n"),
            ("git submodule update --init\n", "git submodule status\n"),
            ("git lfs pull\n", "git lfs ls-files\n"),
            ("git ls-remote\n", "git push --help\n"),
            ("export WANDB_PROJECT=x\n", "pip install --no-index --find-links=w wandb\n"),
            ("python a.py --report_to wandb\n", "which wandb; python -m pip install --no-index wandb\n"),
            ("python a.py --logger=wandb\n", "mkdir -p wandb; ls wandb; python a.py --dir wandb\n"),
            ("bash run.sh --use-wandb\n", "grep -r --wandb-project x; conda activate wandb\n"),
            ("wget -q https://example.org/x.tar\n", "wget -q http://localhost:8080/x\n"),
            ("curl -sL http://example.org/x | tar x\n", "curl -s http://$MASTER_ADDR:8080/x\n"),
            ("huggingface-cli download a/b\n", "huggingface-cli scan-cache\n"),
            ("srun -K1 bash -c 'hf download a/b'\n", "srun -K1 bash -c 'hf cache scan'\n"),
            ("singularity pull docker://a/b\n", "singularity exec b.sif nvidia-smi\n"),
            ("pip install x\n", "export https_proxy=socks5://jpbl01:1080\npip install x\n"),
        )
    ),
    (
        "no-internet",
        SITE_JOB + "srun -K1 python train.py --wandb-project x\n",
        6,
        SITE_JOB + "srun -K1 --export=ALL,WANDB_MODE=offline python train.py --wandb-project x\n",
    ),
    (
        "cpus-per-gpu",
        SITE_JOB + "#SBATCH --gres=gpu:4 --ntasks-per-node=4 --cpus-per-task=10\nsrun -K1 -c 10 python train.py\n",
        6,
        SITE_JOB + "#SBATCH --gres=gpu:4 --ntasks-per-node=4 --cpus-per-task=20\nsrun -K1 -c 20 python train.py\n",
    ),
    *(
        ("cpus-per-gpu", with_cpus(bad), 6, with_cpus(good))
        for bad, good in (
            ("--ntasks-per-node=4 --gres=gpu:4", "--ntasks-per-node=4 --gres=gpu:4 --exclusive"),
            ("--cpus-per-gpu=10 --gres=gpu:4", "--cpus-per-gpu=20 --gres=gpu:4"),
            ("-c 10 -n 32 --gpus-per-task=1", "-c 20 -n 32 --gpus-per-task=1"),
            ("-c 10 --ntasks-per-gpu=1 --gpus-per-node=4", "-c 20 --ntasks-per-gpu=1 --gpus-per-node=4"),
            ("-c 10 -n 32 --gpus=32", "-c 20 -n 32 --gpus=32"),
            ("-c 20 -n 31 --gres=gpu:4", "-c 20 -n 32 --gres=gpu:4"),
            ("-c 10 -n 8 --gres=gpu:1", "-c 20 -n 32 --gres=gpu:h100:4,tmpfs:100G"),
            ("-c 20 --gres=gpu:h100:4", "-c 20 --gres=gpu"),
            ("-c 1 -n 32 --gres=gpu:4", "-c 1 -n 32 --gres=gpu:4 --exclusive"),
            ("-c 40 --ntasks-per-node=2 --gres=gpu:4 --ntasks-per-node=3 --exclusive", "-c 20 --gres=gpu:1"),
            ("-c 10 --ntasks-per-node=4 --gres=gpu:4", "-c 10 -O --ntasks-per-node=4 --gres=gpu:4"),
        )
    ),
    *(
        ("cores-or-threads", with_cpus(bad), 6, with_cpus(good))
        for bad, good in (
            ("-c 160 --gres=gpu:4", "-c 160 --gres=gpu:4 --ntasks-per-node=1 --threads-per-core=2"),
            ("--cpus-per-gpu=40 --gres=gpu:4", "--cpus-per-gpu=40 --gres=gpu:4 --hint=multithread"),
            ("-c 40 --ntasks-per-node=4", "-c 20 --ntasks-per-node=4"),
        )
    ),
]


@pytest.fixture(scope="module")
def site():
    return catalog.load_profile(
        "sandbox",
        [
            QUEUES,
            "families=[ours]",
            "node.threads=160",
            "account.required=true",
            "account.provenance={source: account guide, as_of: 2026-01, confidence: official}",
            "request={gpus: gres, exclusive: true, memory: omit, cpus_per_gpu: 20}",
            "request.provenance={source: request guide, as_of: 2026-02, confidence: official}",
            "node.provenance={source: node page, as_of: 2026-03, confidence: official}",
            "default_partition=serial",
            "tasks.mpiexec=no",
            "internet={compute: no, provenance: {source: network page, as_of: 2026-04, confidence: official}}",
        ],
    )


def ids(rows):
    return [f"{row[0]}-{number}" for number, row in enumerate(rows)]


@pytest.mark.parametrize(("rule", "bad", "line", "good"), GENERAL, ids=ids(GENERAL))
def test_a_mistake_is_found_in_its_line_and_nothing_in_the_nearest_script_without_it(rule, bad, line, good):
    assert [(found.line, found.rule) for found in check(bad)] == [(line, rule)]
    assert check(good) == ()


@pytest.mark.parametrize(("rule", "bad", "line", "good"), SITE, ids=ids(SITE))
def test_what_a_site_refuses_is_found_with_its_profile_only(site, rule, bad, line, good):
    assert [(found.line, found.rule) for found in check(bad, site)] == [(line, rule)]
    assert check(good, site) == ()
    assert check(bad) == ()


def test_every_rule_has_its_pair_and_its_source():
    assert {row[0] for row in GENERAL + SITE} == {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
        assert "Source: " in rule.find.__doc__


def test_the_readme_names_every_rule():
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert [rule.name for rule in RULES if f"`{rule.name}`" not in readme] == []


def test_a_limit_names_the_number_the_limit_and_its_source(site):
    (found,) = check(SITE_JOB.replace("nodes=8", "nodes=9") + TRAIN, site)
    assert "at most 8 nodes, not 9" in found.reason
    assert "(profile sandbox: --set cluster.queues)" in found.reason


@pytest.mark.parametrize(
    ("script", "source"),
    [
        (SITE_JOB.replace("--account=a1", "-J a1"), "account guide, 2026-01"),
        (SITE_JOB + "#SBATCH --mem=0\n", "request guide, 2026-02"),
        (SITE_JOB + "#SBATCH --gres=gpu:4 -c 10\nexport SRUN_CPUS_PER_TASK=10\n", "request guide, 2026-02"),
        (SITE_JOB + "#SBATCH --gres=gpu:5\n", "node page, 2026-03"),
        (SITE_JOB + "git pull\n", "network page, 2026-04"),
    ],
)
def test_a_rule_cites_the_source_of_the_section_that_it_reads(site, script, source):
    (found,) = check(script + TRAIN, site)
    assert source in found.reason


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--mem=514000M", None),
        ("--mem=494000MB", None),
        ("--mem=0", None),
        ("--mem=514001", "--mem=514001 is 502GiB a node, more than the 502GiB"),
        ("--mem=1T", "--mem=1T is 1TiB a node, more than the 502GiB"),
        ("--ntasks-per-node=4 --cpus-per-task=8 --mem-per-cpu=16G", "--mem-per-cpu=16G is 512GiB a node"),
        ("--gres=gpu:4 --mem-per-gpu=126G", "--mem-per-gpu=126G is 504GiB a node"),
        ("--gres=gpu:4 --mem-per-gpu=125G", None),
    ],
)
def test_no_job_gets_more_memory_than_slurm_counts_on_a_node(options, found):
    leonardo = catalog.load_profile("leonardo")
    script = JOB.replace("--nodes=2", f"--nodes=2 -A a -p boost_usr_prod {options}")
    said = check(script + "export SRUN_CPUS_PER_TASK=8\n" + TRAIN, leonardo)
    assert [each.rule for each in said] == ([] if found is None else ["too-large-for-a-node"])
    for each in said:
        assert found in each.reason
        assert "sinfo of a user team (2026)" in each.reason
        assert each.fix == "#SBATCH --mem=0"


def test_where_slurm_counts_no_memory_none_is_too_much():
    script = JOB.replace("nodes=2", "nodes=2 -A a --qos=acc_ehpc --mem=500G") + TRAIN
    assert [each.rule for each in check(script, catalog.load_profile("marenostrum5"))] == ["memory-not-here"]


def test_what_the_shipped_profiles_know_of_partitions_launchers_and_networks():
    rules = {}
    for name, queue in (("leonardo", ""), ("jupiter", ""), ("marenostrum5", "#SBATCH --qos=acc_ehpc\n")):
        script = JOB + "#SBATCH -A a\n" + queue + "pip install x\nmpiexec ./train\n"
        found = check(script, catalog.load_profile(name))
        rules[name] = [each.rule for each in found]
    assert rules == {
        "leonardo": ["missing-partition", "no-internet"],
        "jupiter": ["no-internet", "launcher-not-here"],
        "marenostrum5": ["no-internet"],
    }


def test_where_compute_nodes_have_internet_or_may_have_it_nothing_is_said():
    for known in ("yes", "unknown"):
        profile = catalog.load_profile("sandbox", [f"internet.compute={known}"])
        assert check(JOB.replace("nodes=2", "nodes=2 -p production") + "pip install x\n" + TRAIN, profile) == ()


@pytest.mark.parametrize(("option", "found"), [("--gres=gpu:4", 0), ("--gpus-per-node=h100:4", 0), ("--gres=gpu:2", 1)])
def test_a_port_is_one_job_s_where_it_has_the_whole_node(option, found):
    profile = catalog.load_profile("sandbox", ["node.gpus=4"])
    script = JOB + f"#SBATCH -p production {option}\nexport MASTER_PORT=29500\n" + TRAIN
    assert [each.rule for each in check(script, profile)] == ["fixed-port"] * found


def test_each_typeset_sign_of_a_command_is_said():
    found = check(JOB + "srun -K1 torchrun \u2013-nnodes=2 \u2013-rdzv_backend=c10d \u2013\u2013x a.py\n")
    assert [(each.rule, each.reason.split()[0]) for each in found] == [
        ("typeset-sign", word) for word in ("\u2013-nnodes=2", "\u2013-rdzv_backend=c10d", "\u2013\u2013x")
    ]


def test_ranks_that_may_not_meet_for_a_missing_export_are_a_warning():
    (found,) = check(JOB + "MASTER_ADDR=$(hostname)\n" + TRAIN)
    assert (found.severity, found.fix) == ("warning", "export MASTER_ADDR")


def test_a_profile_whose_nodes_are_one_machine_allows_localhost():
    script = JOB + "#SBATCH -p production --exclusive\nexport MASTER_ADDR=localhost NCCL_SOCKET_IFNAME=lo\n" + TRAIN
    assert check(script, catalog.load_profile("sandbox", ["node.cpus=80"])) == ()


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ("-n 4 -c 20 --gres=gpu:4", []),  # 80 CPUs beside 4 GPUs where it is one node
        ("-n 80 -c 2 --gres=gpu:4", []),  # BSC's own example: two nodes of 80, or one of 160
        ("-n 8 -c 20 --gres=gpu:4", []),
        ("-n 2 -c 20 --gres=gpu:4", ["cpus-per-gpu"]),  # too few on any number of nodes
        ("-n 1 -c 20 --gres=gpu:4", ["cpus-per-gpu"]),
        ("-n 1 -c 20 --gres=gpu:1", []),
        ("-N 2 --ntasks-per-node=1 -c 160 --gres=gpu:4 --threads-per-core=2", []),
        ("-N 2 --ntasks-per-node=1 -c 80 --gres=gpu:4 --threads-per-core=1", []),
        ("-N 1 -n 80 -c 2 --gres=gpu:4", ["cores-or-threads", "more-ranks-than-gpus"]),
        ("-N 2 -n 8 -c 20 --gres=tmpfs:100,gpu:4", []),
        ("-N 2 -n 8 -c 20 --gres=gpu:hopper:4,tmpfs:100", []),
        ("-N 2 -c 80 --gres=shard:8", []),
        ("-N 2 -n 8 -c 20 --gres=gpu:5", ["too-large-for-a-node"]),
        ("-n 8 -c 20 --gpus-per-task=5", ["too-large-for-a-node"]),
        ("-N 2 -G 10 --cpus-per-gpu=20", ["too-large-for-a-node"]),
    ],
)
def test_a_ratio_is_refused_only_where_every_spread_over_nodes_breaks_it(options, rules):
    script = "#!/bin/bash\n#SBATCH -t 60 -A a -q acc_ehpc\n#SBATCH {}\nexport SRUN_CPUS_PER_TASK=20\n" + TRAIN
    found = check(script.format(options), catalog.load_profile("marenostrum5"))
    assert [each.rule for each in found] == rules


def test_a_queue_is_another_s_only_where_the_profile_says_which_are_yours():
    script = "#!/bin/bash\n#SBATCH -t 60 -A a -N 2 -q acc_xehpc\n" + TRAIN
    for families, rules in (("[]", []), ("[xehpc]", []), ("[ehpc]", ["queue-of-others"])):
        profile = catalog.load_profile("marenostrum5", [f"families={families}"])
        assert [each.rule for each in check(script, profile)] == rules


@pytest.mark.parametrize(
    ("known", "said"), [("yes", None), ("no", "0 on sandbox (profile sandbox: "), ("unknown", "0 unless")]
)
def test_tasks_are_ended_where_the_site_s_slurm_ends_them(known, said):
    profile = catalog.load_profile("sandbox", [f"tasks.kill_on_bad_exit={known}"])
    found = check(JOB + "srun python train.py\n", profile)
    assert [each.rule for each in found] == ([] if said is None else ["survivors-wait"])
    assert all(said in each.reason for each in found)


def test_the_default_qos_may_be_named():
    script = "#!/bin/bash\n#SBATCH -A a -p boost_usr_prod -t 60 -N {} --qos={}\nsrun python train.py\n"
    leonardo = catalog.load_profile("leonardo")
    asked = [("64", "normal"), ("65", "normal"), ("2", "other")]
    found = [[each.rule for each in check(script.format(*each), leonardo)] for each in asked]
    assert found == [[], ["over-limit"], ["unknown-queue"]]
    on_jupiter = script.format("2", "normal").replace("boost_usr_prod", "booster").replace("srun", "srun -K")
    assert check(on_jupiter, catalog.load_profile("jupiter")) == ()


def test_leonardo_ends_the_other_tasks_itself():
    script = JOB + "#SBATCH -A a -p boost_usr_prod\nsrun python train.py\n"
    assert check(script, catalog.load_profile("leonardo")) == ()


def test_the_second_half_of_a_heterogeneous_job_is_not_taken_for_the_first():
    script = JOB + "#SBATCH hetjob\n#SBATCH --nodes=500 --time=9-0 -x a\n" + TRAIN
    assert [(each.rule, each.line) for each in check(script.replace("hetjob", "-A a"))] == []
    jupiter = catalog.load_profile("jupiter", ["account.required=false"])
    assert check(script, jupiter) == ()
    assert [each.rule for each in check(script.replace("hetjob", "-A a"), jupiter)] == ["over-limit"]


@pytest.mark.parametrize("digits", [13, 400, 5000])
def test_numbers_of_any_length_are_read_or_said_to_be_unreadable(digits):
    options = "-N {0} -n {0} -c {0} --gres=gpu:{0} --gpus-per-task={0} --mem=0".format("9" * digits)
    script = JOB + f"#SBATCH {options}\nexport MASTER_PORT={'9' * digits}\nsrun -K -c 2 python a.py\n"
    found = {each.rule for each in check(script, catalog.load_profile("marenostrum5"))}
    assert {"unreadable-count", "missing-account"} <= found


def test_functions_that_call_functions_without_end_are_followed_for_a_while_only():
    calls = "".join(f"f{level}() {{ f{level + 1}; f{level + 1}; }}\n" for level in range(60))
    script = SIGNAL + calls + "f60() { srun -K1 python a.py; }\ntrap 'touch STOP' USR1\nf0\n"
    assert {each.rule for each in check(script)} == {"signal-waits-for-foreground"}
