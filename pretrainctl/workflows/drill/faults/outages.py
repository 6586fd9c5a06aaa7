"""Slurm itself is away for a while, or takes a job and does not say so."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from pretrainctl.sandbox import Sandbox
from pretrainctl.sandbox.outages import daemon_away
from pretrainctl.workflows.drill.fault import Fault
from pretrainctl.workflows.drill.faults.nodes import kill, other_node
from pretrainctl.workflows.drill.place import STEPS
from pretrainctl.workflows.drill.scene import Scene, SkippedError, UnmetError
from pretrainctl.workflows.drill.verdict import Expectation

__all__ = ["FAULTS"]

_AWAY = 60.0
_UNDISTURBED = Expectation(twice=0, starts=1)


def _sandbox(scene: Scene) -> Sandbox:
    if scene.place.sandbox is None:
        raise SkippedError("only a sandbox's Slurm may be taken away")
    return scene.place.sandbox


def _controller_away(scene: Scene) -> None:
    scene.launch(pace=1.5)
    scene.wait_for_step(5)
    scene.strike()
    with daemon_away(_sandbox(scene), "slurmctld"):
        time.sleep(_AWAY)
    if scene.step() == STEPS:
        raise UnmetError("it had ended before the controller was back")


def _controller_away_at_end(scene: Scene) -> None:
    scene.launch(pace=0.3)
    scene.wait_for_step(STEPS // 2)
    scene.strike()
    with daemon_away(_sandbox(scene), "slurmctld"):
        scene.wait_for("finished", seconds=_AWAY)
        time.sleep(max(0.0, (scene.struck or 0.0) + _AWAY - time.time()))


def _database_away(scene: Scene) -> None:
    scene.launch()
    scene.wait_for_step()
    with daemon_away(_sandbox(scene), "slurmdbd"):
        kill(scene, other_node(scene))
        scene.wait_for("finished", seconds=150.0)


def _answer_lost(scene: Scene) -> None:
    """Each sbatch of the run, at the launch and in its jobs, submits and then fails as one whose answer got lost."""
    path = scene.place.environment.get("PATH", os.defpath)
    real = shutil.which("sbatch", path=path)
    if real is None:
        raise SkippedError("there is no sbatch")
    folder = scene.place.folder / "programs" / "forgetful"
    _write_forgetful(folder / "sbatch", real)
    scene.strike()
    scene.launch(variables={"PATH": f"{folder}{os.pathsep}{path}"})
    scene.wait_for("finished", seconds=150.0)
    name = scene.run.record.job_name
    there = scene.place.slurm("squeue", "-h", "--states=all", "-o", "%A", f"--name={name}").split()
    if len(there) != 2 or set(map(int, there)) != set(scene.state().jobs):
        raise UnmetError(f"Slurm has its jobs {', '.join(there)}, and the ledger {scene.state().jobs}: 2 were needed")


def _write_forgetful(script: Path, real: str) -> None:
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(
        "#!/bin/bash\n"
        f'{real} "$@" >/dev/null || exit\n'
        'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2\n'
        "exit 1\n",
        encoding="utf-8",
    )
    script.chmod(0o755)


FAULTS = (
    Fault("controller-away", "slurmctld is away for 60 s", _controller_away, _UNDISTURBED),
    Fault("controller-away-at-end", "slurmctld is away when the run ends", _controller_away_at_end, _UNDISTURBED),
    Fault(
        "database-away",
        "slurmdbd is away while a node dies",
        _database_away,
        Expectation(classes=frozenset({"node_failure"})),
    ),
    Fault("sbatch-answer-lost", "sbatch submits, and its answer is lost", _answer_lost, _UNDISTURBED),
)
