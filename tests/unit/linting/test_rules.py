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
        SIGNAL + "trap 'touch STOP' USR1\npython train.py\n",
        6,
        SIGNAL + "trap '' USR1\npython train.py\n",
    ),
    (
        "signal-waits-for-foreground",
        SIGNAL + "trap 'touch STOP' USR1\npython prepare.py\n",
        6,
        SIGNAL + "trap 'touch STOP' USR1\npython prepare.py\npython train.py &\npid=$!\n" + LOOP,
    ),
    ("signal-not-trapped", SIGNAL + TRAIN, 4, SIGNAL + "exec python -m supervisor\n"),
    ("signal-not-trapped", SIGNAL + TRAIN, 4, SIGNAL + ". setup.sh\non_signal my_function USR1\n" + TRAIN),
    ("signal-not-trapped", SIGNAL + TRAIN, 4, SIGNAL + ". everything.sh\n"),
    ("signal-not-trapped", SIGNAL + "python train.py\n", 4, SIGNAL.replace("B:", "") + TRAIN),
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
        JOB + "srun -K1 torchrun --rdzv_endpoint=127.0.0.1:29500 train.py\n",
        4,
        JOB.replace("nodes=2", "nodes=1") + "torchrun --rdzv_endpoint=127.0.0.1:29500 train.py\n",
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
]

QUEUES = (
    "queues=[{name: main, partition: acc, qos: acc_ehpc, purpose: production, max_nodes: 100, max_walltime: 72h},"
    "{name: debug, partition: acc, qos: acc_debug, purpose: debug, max_nodes: 8, max_walltime: 2h},"
    "{name: big, partition: acc, qos: acc_big, purpose: production, min_nodes: 65, max_nodes: unknown, "
    "max_walltime: unknown},"
    "{name: other, partition: other, qos: other_debug, purpose: debug, max_nodes: 8, max_walltime: 2h}]"
)
SITE_JOB = (
    "#!/bin/bash\n#SBATCH --nodes=8 -p acc\n#SBATCH --time=2:00:00\n#SBATCH --account=a1\n#SBATCH --qos=acc_debug\n"
)

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
    ("memory-not-here", SITE_JOB + "#SBATCH --mem=0\n" + TRAIN, 6, SITE_JOB + TRAIN),
    (
        "too-large-for-a-node",
        SITE_JOB + "#SBATCH --gres=gpu:5\n" + TRAIN,
        6,
        SITE_JOB + "#SBATCH --gres=gpu:4\n" + TRAIN,
    ),
    (
        "too-large-for-a-node",
        SITE_JOB + "#SBATCH --ntasks-per-node=4 --cpus-per-task=21\nsrun -K1 -c 21 python train.py\n",
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
]


@pytest.fixture(scope="module")
def site():
    return catalog.load_profile(
        "sandbox",
        [
            QUEUES,
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
    assert site.provenance.source in found.reason


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


def test_a_profile_whose_nodes_are_one_machine_allows_localhost():
    script = JOB + "#SBATCH -p production --exclusive\nexport MASTER_ADDR=localhost NCCL_SOCKET_IFNAME=lo\n" + TRAIN
    assert check(script, catalog.load_profile("sandbox", ["node.cpus=80"])) == ()
