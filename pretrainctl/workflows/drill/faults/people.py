"""What people do to a run: by command, by Slurm's own commands, by hand."""

from __future__ import annotations

import json

from pretrainctl.workflows.drill.fault import Fault
from pretrainctl.workflows.drill.scene import Scene, UnmetError
from pretrainctl.workflows.drill.verdict import Expectation

__all__ = ["FAULTS"]

_PACE = 0.3
"""Seconds that a step takes longer where a command, which takes about one, must come before the last step is done."""
_LARGER = ("model.layers=4", "model.hidden=256", "model.heads=4", "model.kv_heads=2", "model.ffn=1024")
"""The same for the reference trainer, which has no pace: a step takes some 0.2 s."""


def _user_scancel(scene: Scene) -> None:
    scene.launch()
    scene.wait_for_step()
    scene.strike()
    scene.place.slurm("scancel", str(scene.job()))


def _stop_save(scene: Scene) -> None:
    scene.launch(pace=_PACE)
    scene.wait_for_step()
    scene.strike()
    scene.place.pretrainctl("stop", "--save", str(scene.path))
    scene.wait_for("attempt_ended")
    saved = max(save.step for save in scene.series().saved)
    if saved != scene.step():
        raise UnmetError(f"its last step is {scene.step()}, and its last save that of step {saved}")


def _two_jobs(scene: Scene) -> None:
    scene.launch(pace=_PACE)
    scene.wait_for_step(3)
    scene.strike()
    script = str(scene.run.script)
    second = scene.place.slurm("sbatch", "--parsable", "--job-name=drill-by-hand", script).strip()
    scene.wait_for("refused", seconds=60.0)
    scene.wait(lambda: not scene.place.slurm("squeue", "-h", "--name=drill-by-hand"), 60.0, f"job {second} to leave")
    if not scene.run.attempts() or {start.attempt for start in scene.series().starts} != {1}:
        raise UnmetError("more than the first attempt trained")


def _admin_requeue(scene: Scene) -> None:
    scene.launch()
    scene.wait_for_step()
    job = scene.job()
    scene.place.slurm("scontrol", "update", f"JobId={job}", "Requeue=1")
    scene.strike()
    scene.place.slurm("scontrol", "requeue", str(job))


def _chained_cancelled(scene: Scene) -> None:
    scene.launch(pace=_PACE)
    chained = int(scene.wait_for("chained")[0].data["job_id"])
    scene.wait_for_step()
    scene.strike()
    scene.place.slurm("scancel", str(chained))
    scene.wait_for("finished")
    if len(scene.events("chained")) != 1:
        raise UnmetError("a person cancelled the chained job, and another one was queued")


def _recipe_changed(scene: Scene) -> None:
    """The learning rate is another one when the run is resumed: only `--accept` lets that pass."""
    scene.launch(*_LARGER)
    scene.wait_for_step()
    scene.place.pretrainctl("stop", "--save", str(scene.path))
    scene.wait(lambda: not scene.jobs(), 60.0, "its jobs to end")
    file = scene.settings_file()
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings["optimizer"]["lr"] *= 2
    file.write_text(json.dumps(settings), encoding="utf-8")
    scene.strike()
    done = scene.place.pretrainctl("resume", str(scene.path), check=False)
    if done.status == 0 or scene.jobs():
        raise UnmetError("`resume` went on with another learning rate, and asked nobody")
    # Of settings that a program of one's own reads, only the file is known.
    if ("lr" if file.parent == scene.run.bundle else file.name) not in done.stderr:
        raise UnmetError(f"`resume` does not show what has changed: {done.stderr.strip()}")
    scene.place.pretrainctl("resume", "--accept", str(scene.path))


FAULTS = (
    Fault(
        "user-scancel",
        "the user cancels the job with scancel",
        _user_scancel,
        Expectation("stopped", stop=frozenset({"user_cancel"}), starts=1),
        own=True,
    ),
    Fault(
        "stop-save",
        "the user says `stop --save`",
        _stop_save,
        Expectation("stopped", classes=frozenset({"stopped"}), starts=1),
        own=True,
    ),
    Fault(
        "chained-job-cancelled",
        "the user cancels the chained job",
        _chained_cancelled,
        Expectation(twice=0, starts=1),
    ),
    Fault(
        "two-jobs",
        "a second job of the run is started by hand",
        _two_jobs,
        Expectation(twice=0, starts=1),
    ),
    Fault(
        "recipe-changed",
        "the learning rate is changed between a stop and a resume",
        _recipe_changed,
        Expectation(twice=0, starts=2, weights=False),
        own=True,
    ),
    Fault("admin-requeue", "an administrator requeues the job", _admin_requeue, patience=300.0),
)
