"""The same work under what Slurm and PyTorch bring with them, for the recovery bench: no pretrainctl in charge.

Each is a plain batch script as people write it: it resumes from `latest`, and does nothing else about faults.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pretrainctl.sandbox import Sandbox
from tests.bench.figures import Figure, Start, await_recovery, newest_start, now
from tests.sandbox.training_runs import Site, TrainingRun, rank_process, wait_until

__all__ = ["Peers"]

_TRAINER = f"{sys.executable} -m pretrainctl.trainer bundle/training.json"
_HEAD = """\
export PRETRAINCTL_RUN_DIR={folder} LOCAL_WORLD_SIZE=1 OMP_NUM_THREADS=1 DS_ACCELERATOR=cpu MASTER_ADDR=localhost
begin() {{
  export PRETRAINCTL_ATTEMPT=$1 PRETRAINCTL_RESTART=$2 MASTER_PORT=$((40000 + (SLURM_JOB_ID * 10 + $1 + $2) % 9000))
  export PRETRAINCTL_RESUME_TAG=$(cat checkpoints/latest 2>/dev/null)
}}
train() {{
  srun --cpus-per-task=1 --kill-on-bad-exit=1 \
    bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec {trainer}'
}}
"""
_REQUEUE = "begin 1 ${SLURM_RESTART_COUNT:-0}\ntrain\n"
_CHAIN = """\
n=$(($(ls attempts | wc -l) + 1))
[ $n -gt 4 ] || sbatch --dependency=singleton --job-name=$SLURM_JOB_NAME plain.sbatch
begin $n 0
train
"""
_LOOP = "n=0\nuntil begin 1 $n; train; do n=$((n + 1)); done\n"
# TORCHELASTIC_RESTART_COUNT may differ between the agents, and come twice on rank 0 (seen): the clock does not.
_TORCHRUN = """\
begin 1 0
srun --cpus-per-task=1 {python} -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --max-restarts=3 \
  --rdzv-backend=c10d --rdzv-endpoint=localhost:$MASTER_PORT --rdzv-id=$SLURM_JOB_ID --no-python bash -c '
    export PRETRAINCTL_RESTART=$(date +%s)
    export PRETRAINCTL_RESUME_TAG=$(cat checkpoints/latest 2>/dev/null)
    exec {trainer}'
"""


class Peers:
    """Runs of the tiny model by plain scripts. `every` and `fault_at` are steps: of a checkpoint, and of the fault."""

    def __init__(self, site: Site, sandbox: Sandbox, *, steps: int, every: int, fault_at: int) -> None:
        self._site = site
        self._sandbox = sandbox
        self._fault_at = fault_at
        self._sets = [f"checkpoint.every_steps={every}"]
        self._steps = steps
        self._model: TrainingRun | None = None

    def requeue(self, case: str, number: int) -> Figure:
        """Slurm's own --requeue; a node that does not carry the script is killed."""
        return self._lose_node(case, number, _REQUEUE, ["--requeue"], host=False)

    def chain(self, case: str, number: int, *, host: bool) -> Figure:
        """A job that queues its successor of the same name first; a node, or the one with the script, is killed."""
        return self._lose_node(case, number, _CHAIN, ["--no-requeue", "--job-name=plain-chain"], host=host)

    def loop(self, case: str, number: int) -> Figure:
        """A loop around srun inside the job; a rank is killed."""
        return self._lose_rank(case, number, _LOOP, ["--no-requeue"])

    def torchrun(self, case: str, number: int) -> Figure:
        """Two agents of torchrun with three restarts; a rank is killed."""
        body = _TORCHRUN.format(python=sys.executable, trainer=_TRAINER)
        return self._lose_rank(case, number, body, ["--no-requeue"])

    def _lose_node(self, case: str, number: int, body: str, options: Sequence[str], *, host: bool) -> Figure:
        run, job = self._submit(f"{case}-{number}", body, options)
        nodes, batch_host = self._site.slurm("squeue", "-h", "-j", job, "-o", "%N %B").split()
        expanded = self._site.slurm("scontrol", "show", "hostnames", nodes).split()
        old, fault = newest_start(run), now()
        self._sandbox.kill_node(next(node for node in expanded if (node == batch_host) == host))
        return _recover(case, run, fault, old)

    def _lose_rank(self, case: str, number: int, body: str, options: Sequence[str]) -> Figure:
        run, _ = self._submit(f"{case}-{number}", body, options)
        victim = rank_process(run, 1)
        old, fault = newest_start(run), now()
        os.kill(victim, signal.SIGKILL)
        return _recover(case, run, fault, old, timeout=90)

    def _submit(self, name: str, body: str, options: Sequence[str]) -> tuple[TrainingRun, str]:
        """The run in a folder of its own, and its job, once it has reached the step of the fault."""
        model = self._settings()
        run = replace(model, name=name, folder=model.folder.with_name(name))
        _copy(model.folder, run.folder)
        script = run.folder / "plain.sbatch"
        script.write_text(
            "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --open-mode=append --output=plain.out\n"
            + "".join(f"#SBATCH {option}\n" for option in options)
            + _HEAD.format(folder=run.folder, trainer=_TRAINER)
            + body
        )
        job = self._site.slurm("sbatch", "--parsable", f"--chdir={run.folder}", str(script)).strip()
        try:
            wait_until(lambda: run.step() >= self._fault_at, 60, f"step {self._fault_at}")
        except AssertionError as error:
            raise AssertionError(f"{error}; {_said(run)}") from error
        return run, job

    def _settings(self) -> TrainingRun:
        """A run of ours that trains nothing: what it was launched with is the work."""
        if self._model is None:
            self._model = self._site.launch("plain", steps=self._steps, sets=self._sets)
            self._site.command("cancel", self._model.name)
            wait_until(lambda: not self._model or not self._model.jobs(), 60, "the jobs to end")
        return self._model


def _recover(case: str, run: TrainingRun, fault: float, old: Start, timeout: float = 300) -> Figure:
    try:
        return await_recovery(case, run, fault, old, timeout=timeout)
    except AssertionError as error:
        raise AssertionError(f"{error}; {_said(run)}") from error


def _copy(model: Path, folder: Path) -> None:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "attempts").mkdir()
    shutil.copytree(model / "bundle", folder / "bundle")
    shutil.copy(model / "run.json", folder)
    for path in (folder / "bundle").glob("*.json"):
        path.write_text(path.read_text().replace(str(model), str(folder)))


def _said(run: TrainingRun) -> str:
    log = run.folder / "plain.out"
    return log.read_text(errors="replace")[-2000:] if log.exists() else "nothing was said"
