"""The drill: one fault after the other on a tiny run, each judged by the run's own records."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pretrainctl.errors import InputError, MissingError, PretrainctlError
from pretrainctl.runs.ledger import read_events
from pretrainctl.sandbox import Sandbox
from pretrainctl.sandbox.outages import can_mount
from pretrainctl.units import show_duration
from pretrainctl.workflows import sandbox as sandboxes
from pretrainctl.workflows.drill.fault import Fault
from pretrainctl.workflows.drill.faults import FAULTS
from pretrainctl.workflows.drill.place import EVERY, STEPS, Place, at_cluster, at_sandbox, find_site
from pretrainctl.workflows.drill.scene import Scene, SkippedError, UnmetError
from pretrainctl.workflows.drill.verdict import Record, Row, judge, measure, resumed, told_as
from pretrainctl.workflows.interrupted import uninterrupted

__all__ = ["Desk", "choose", "drill", "listed"]

_QUEUE_PATIENCE = 90.0
"""Seconds after a run's end until nothing of it is in the queue."""
_NODES, _MINUTES, _USUAL_MINUTES = 2, 15, 2
"""What a job on a user's cluster asks for, and what it mostly takes."""


@dataclass(frozen=True)
class Desk:
    """Where the drill speaks to people: `row` gets each row as it is finished, `say` all else, `confirm` asks."""

    row: Callable[[Row], None]
    say: Callable[[str], None]
    confirm: Callable[[str], bool]


def listed(cluster: str | None) -> list[Fault]:
    """The faults that are played there: all of them on a sandbox, those of the own job on a user's cluster."""
    return [fault for fault in FAULTS.values() if _is_sandbox(cluster) or fault.own]


def choose(only: Sequence[str], cluster: str | None) -> list[Fault]:
    """The faults that are named, all where none is; InputError for one that is not there, or not there on `cluster`."""
    there = {fault.name: fault for fault in listed(cluster)}
    for name in only:
        if name not in FAULTS:
            near = difflib.get_close_matches(name, FAULTS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise InputError(f"there is no fault {name!r}", hint=f"{hint}`pretrainctl drill --list` has them all")
        if name not in there:
            raise InputError(
                f"{name} touches more than an own job, so it is not played on {cluster}",
                hint="play it on the sandbox: leave --cluster out",
            )
    return [there[name] for name in dict.fromkeys(only)] if only else list(there.values())


def drill(faults: Sequence[Fault], folder: Path, *, cluster: str | None, desk: Desk, keep: bool = False) -> list[Row]:
    """Play the faults in `folder`, which is made, and judge each; every row that was done, in order.

    On a sandbox of its own, which is taken down at the end whatever happens (unless `keep`), or on the user's
    cluster, which is looked up first; then `confirm` is asked before any node-hour is spent, and nothing is done where
    it says no. On the way out, an interrupt too, no job of the drill is left. MissingError where the training
    environment is not there.
    """
    if (folder / "runs").exists():
        raise InputError(
            f"{folder} holds runs already", hint="name another folder for the drill, or leave --folder out"
        )
    if not _is_sandbox(cluster):
        return _on_cluster(faults, folder, str(cluster), desk)
    absent = [name for name in ("numpy", "torch", "deepspeed") if importlib.util.find_spec(name) is None]
    if absent:
        raise MissingError(
            f"the drill trains, and {', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not in this environment",
            hint="pip install -e '.[demo]'",
        )
    sandboxes.prepare(folder)
    sandbox = Sandbox(folder / "sandbox")
    try:
        desk.say("starting a real Slurm of 4 nodes on this machine")
        sandboxes.up(sandbox.root, nodes=4, gpus=4, say=desk.say, confirm=desk.confirm)
        return _play_all(faults, at_sandbox(folder, sandbox), desk)
    finally:
        if keep:
            desk.say(f"the sandbox stays up: PRETRAINCTL_SANDBOX={sandbox.root}")
        else:
            with uninterrupted():
                sandbox.down()


def _on_cluster(faults: Sequence[Fault], folder: Path, cluster: str, desk: Desk) -> list[Row]:
    site = find_site(cluster)
    count = len(faults)
    most, usual = (count * _NODES * minutes / 60 for minutes in (_MINUTES, _USUAL_MINUTES))
    desk.say(
        f"{count} fault{'s' * (count != 1)} on {cluster}, {'one after the other, each ' * (count != 1)}in a job of "
        f"its own of {_NODES} nodes: "
        f"about {usual:.1f} node-hours, at most {most:.1f}"
    )
    if not desk.confirm("Spend them?"):
        return []
    sandboxes.prepare(folder)
    return _play_all(faults, at_cluster(folder, site), desk)


def _is_sandbox(cluster: str | None) -> bool:
    return cluster in {None, "sandbox"}


def _play_all(faults: Sequence[Fault], place: Place, desk: Desk) -> list[Row]:
    undisturbed = _Undisturbed(place, desk)
    mounts = can_mount()
    rows = []
    for fault in faults:
        begun = time.monotonic()
        if fault.mounts and not mounts:
            row = Row(fault.name, "skipped", reason="it mounts a file system, which needs root")
        else:
            row = _play(fault, place, undisturbed)
        rows.append(replace(row, seconds=time.monotonic() - begun))
        desk.row(rows[-1])
        if place.sandbox is not None:
            place.sandbox.reset(timeout=90.0)
    return rows


def _play(fault: Fault, place: Place, undisturbed: _Undisturbed) -> Row:
    """Let the fault come, wait for the end, and judge."""
    scene = Scene(place, fault.name)
    problems: list[str] = []
    try:
        expected = undisturbed.weights(fault.zero_stage) if place.exact and fault.expected.weights else None
        fault.play(scene)
        _wait_for_end(scene, fault)
    except SkippedError as skipped:
        return Row(fault.name, "skipped", reason=str(skipped))
    except UnmetError as unmet:
        problems.append(str(unmet))
    except (PretrainctlError, OSError) as error:
        problems.append(f"{type(error).__name__}: {error}")
    except BaseException:
        with uninterrupted():
            scene.end()
        raise
    try:
        return _judged(scene, fault, problems, expected if not problems else None)
    finally:
        scene.end()


def _judged(scene: Scene, fault: Fault, problems: list[str], expected_weights: str | None) -> Row:
    if not scene.launched:
        return Row(fault.name, "fail", reason="; ".join(problems))
    record = Record(
        events=read_events(scene.path),
        series=scene.series(),
        struck=scene.struck,
        damaged=frozenset(scene.damaged),
        queued=scene.jobs(),
        target=STEPS,
        every=EVERY,
        weights=_weights(scene),
        expected_weights=expected_weights,
    )
    problems = problems or judge(record, fault.expected)
    noticed, again = measure(record)
    return Row(
        fault.name,
        "fail" if problems else "pass",
        noticed=noticed,
        again=again,
        twice=record.series.steps_repeated,
        resumed=resumed(record.series, record.events),
        failure_class=told_as(record.events),
        reason="; ".join(problems),
        path=str(scene.path),
    )


def _wait_for_end(scene: Scene, fault: Fault) -> None:
    """Until the run has finished or stopped, and has left the queue."""

    def over() -> bool:
        state = scene.state()
        return state.finished is not None or state.stopped is not None

    patience = fault.patience
    scene.wait(over, patience, f"its end within {show_duration(patience)}")
    with contextlib.suppress(UnmetError):  # what is left is in the record
        scene.wait(lambda: not scene.jobs(), _QUEUE_PATIENCE, "an empty queue")


def _weights(scene: Scene) -> str | None:
    """The digest of the last weights, as the training program wrote it."""
    for _, _, folder in scene.run.restart_dirs():
        file = folder / "weights.sha256"
        if file.exists():
            return file.read_text(encoding="ascii").strip()
    return None


class _Undisturbed:
    """The weights of runs to which nothing happens, one a ZeRO stage, trained when first asked for."""

    def __init__(self, place: Place, desk: Desk) -> None:
        self._place, self._desk = place, desk
        self._known: dict[int, str] = {}

    def weights(self, stage: int) -> str:
        """The digest; UnmetError where even this run does not end as it should."""
        if stage not in self._known:
            self._desk.say(f"a run to which nothing happens, with ZeRO {stage}: to compare the weights with")
            scene = Scene(self._place, f"undisturbed-zero-{stage}")
            scene.launch(f"training.zero_stage={stage}")
            try:
                scene.wait_for_step(STEPS)
                scene.wait_for("finished")
                scene.wait(lambda: not scene.jobs(), _QUEUE_PATIENCE, "an empty queue")
            finally:
                with uninterrupted():
                    scene.end()
            digest = _weights(scene)
            if digest is None:
                raise UnmetError("the run to which nothing happened left no digest of its weights")
            self._known[stage] = digest
        return self._known[stage]
