"""The look back: how did the last attempt, or restart, end, and may the run go on?"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from pretrainctl.errors import PretrainctlError, SlurmError
from pretrainctl.metrics.series import Series, read_series
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import End, Failure, Request
from pretrainctl.records.job import Job, JobClass
from pretrainctl.records.progress import Hang
from pretrainctl.records.run import Decision, Diagnosis, Event, RefusedTag
from pretrainctl.recovery.decision import AttemptSummary, RestartSummary, decide_after_attempt
from pretrainctl.recovery.diagnosis import Evidence, diagnose
from pretrainctl.recovery.log_reading import LogReading
from pretrainctl.recovery.placement import Placement
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.going_back import WentBack, went_back
from pretrainctl.runs.state import AttemptState, fold
from pretrainctl.slurm.client import Slurm
from pretrainctl.workflows.loading import judge_load, refused_tags, resume_tag_of
from pretrainctl.workflows.read_logs import read_logs
from pretrainctl.workflows.spread import spread_in

__all__ = ["Past", "evidence_of", "expected_checkpoint", "look_back", "restart_summaries", "steps_of", "trained_before"]

_LOG_BYTES = 64 << 20
"""Of a longer log only the end is read before the next start: a third of a second; `doctor` reads all of it."""
_SETTLE_PATIENCE = 30.0
"""Seconds to wait for Slurm to say how a job that has just ended did end."""
_TAG = re.compile(r"global_step(\d+)")
_UNSETTLED = {JobClass.ENDING, JobClass.RUNNING, JobClass.UNKNOWN}


class ExpectedCheckpoint(TypedDict):
    """Whether there must be a checkpoint, the step of the newest recorded save, the tag that the newest end record
    claims, and the tags that could not be loaded: arguments of the gate."""

    expected: bool
    last_saved_step: int | None
    claimed: str | None
    refused: Mapping[str, RefusedTag]


@dataclass(frozen=True)
class Past:
    """How the newest attempt ended; `stop` is why the run must not go on, None where it may. `loading`: what
    `judge_load` tells of its last start, where the attempt could not say so itself."""

    attempt: int
    diagnosis: Diagnosis
    stop: Decision | None
    loading: Mapping[str, Any] = field(default_factory=dict)


def look_back(run: RunFolder, slurm: Slurm, *, before: int | None = None) -> Past | None:
    """Diagnose the newest attempt (older than `before`) since the last resume; None where there is none.

    Slurm's word on the job comes first where a person or the system took it away; what Slurm cannot say is
    unknown, which neither stops a run nor counts as success.
    """
    state = fold(ledger.read_events(run.path))
    owners = [
        attempt
        for attempt in state.attempts
        if not attempt.refused
        and attempt.attempt > state.resumed_after
        and (before is None or attempt.attempt < before)
    ]
    if not owners:
        return None
    newest = owners[-1]
    restarts = run.restarts(newest.attempt)
    # A job that we cancelled for its dead batch host is no job that a user cancelled.
    job_class = None if newest.lost_host else _job_class(run, newest, slurm)
    told = ledger.read_events(run.path, newest.attempt)
    nodes = _nodes_of(told)
    dead = _dead_nodes(told, nodes) | dict(newest.lost_host)
    launch = run.launch()
    evidence = (
        evidence_of(
            contract.restart_dir(run.path, newest.attempt, restarts[-1]),
            job_class=job_class,
            dead_nodes=dead,
            placement=Placement(nodes, launch.srun.tasks_per_node),
            trained=trained_before(run, newest.attempt, restarts[-1], told),
            target_steps=launch.target_steps,
        )
        if restarts
        else Evidence(job_class=job_class, dead_nodes=dead)
    )
    diagnosis = diagnose(evidence)
    loading: dict[str, Any] = {}
    if restarts and not any(one.kind == "restart_ended" and one.data.get("restart") == restarts[-1] for one in told):
        folder, tag = contract.restart_dir(run.path, newest.attempt, restarts[-1]), resume_tag_of(told, restarts[-1])
        diagnosis, loading = judge_load(run, folder, tag, diagnosis, stepped=evidence.last_step is not None)
    rule = launch.recovery
    recent = owners[-1 - rule.attempts_without_progress :]
    stop = decide_after_attempt(diagnosis, _attempt_summaries(run, recent), rule)
    return Past(newest.attempt, diagnosis, stop, loading)


def _dead_nodes(told: Sequence[Event], nodes: Sequence[str]) -> dict[str, str]:
    """Those of the nodes that the attempt noticed dead, and how: the log shows only what came of that."""
    dead = [event.data for event in told if event.kind == "node_dead" and event.data.get("node") in nodes]
    return {str(data["node"]): str(data.get("how", "")) for data in dead}


def _nodes_of(told: Sequence[Event]) -> tuple[str, ...]:
    """The nodes of the last restart in these events, in the order of its ranks; empty where they name none."""
    started = [event for event in told if event.kind == "restart_started"]
    return tuple(started[-1].data.get("nodes", ())) if started else ()


def trained_before(run: RunFolder, attempt: int, restart: int, told: Sequence[Event]) -> frozenset[str]:
    """Nodes on which earlier restarts of an attempt did steps, by its events."""
    nodes: set[str] = set()
    for event in told:
        earlier = event.data.get("restart", restart) if event.kind == "restart_started" else restart
        if earlier < restart and steps_of(contract.restart_dir(run.path, attempt, earlier))[1] is not None:
            nodes.update(event.data.get("nodes", ()))
    return frozenset(nodes)


def evidence_of(  # noqa: PLR0913 - what a caller may know besides
    folder: Path,
    *,
    job_class: JobClass | None = None,
    job_state: str = "",
    srun_status: int | None = None,
    dead_nodes: Mapping[str, str] | None = None,
    request: Request | None = None,
    signals: Sequence[str] = (),
    hang: Hang | None = None,
    placement: Placement | None = None,
    trained: frozenset[str] = frozenset(),
    other_logs: Sequence[Path] = (),
    log_bytes: int | None = _LOG_BYTES,
    target_steps: int = 0,
) -> Evidence:
    """What the folder of a restart tells, with what the caller knows besides; `log_bytes` None reads all of a log."""
    first, last = steps_of(folder)
    hang = hang or codec.read_if_whole(Hang, folder / "hang.json")
    log = folder / "training.log"
    reading = _read(log, other_logs, placement, stepped=last is not None, limit=log_bytes)
    return Evidence(
        srun_status=srun_status,
        end=codec.read_if_whole(End, folder / "end.json"),
        failure=codec.read_if_whole(Failure, folder / "failure.json"),
        left=codec.read_if_whole(Failure, folder / "left.json"),
        dead_nodes=dead_nodes or {},
        job_class=job_class,
        job_state=job_state,
        signals=tuple(signals),
        request=request,
        hang=hang.message if hang is not None else "",
        stuck=hang,
        start_step=first - 1 if first is not None else 0,
        last_step=last,
        log=reading,
        placement=placement or Placement(),
        trained=trained,
        target_steps=target_steps,
        spread=spread_in([log], reading, placement or Placement(), limit=log_bytes),
    )


def _read(
    log: Path, of_job: Sequence[Path], placement: Placement | None, *, stepped: bool, limit: int | None
) -> LogReading:
    """What the logs say, nothing where they cannot be read: what is not known decides nothing."""
    try:
        return read_logs([log], stepped=stepped, limit=limit, of_job=of_job, placement=placement)
    except (OSError, PretrainctlError):
        return LogReading(stepped=stepped)


def steps_of(folder: Path) -> tuple[int | None, int | None]:
    """The first and the last step that a restart did, None where it did none."""
    starts = _series(folder).starts
    return (starts[-1].first_step, starts[-1].last_step) if starts else (None, None)


def _saved_step(run: RunFolder, back: WentBack | None) -> tuple[int | None, str | None]:
    """The step of the newest completed save that the run recorded, None where it never completed one; and the tag that
    an end record says was saved then, None where none does. What a person went back from does not count."""
    for attempt, _, path in reversed(list(run.restart_dirs())):
        steps = [save.step for save in _series(path).saved[-1:]]
        end = codec.read_if_whole(End, path / "end.json")
        claimed = end.checkpoint if end is not None else None
        if end is not None and claimed is not None:
            tag = _TAG.fullmatch(claimed)
            steps.append(int(tag[1]) if tag else end.step)
        if steps and back is not None and attempt <= back.after_attempt and max(steps) > back.step:
            return back.step, None
        if steps:
            return max(steps), claimed
    return None, None


def expected_checkpoint(run: RunFolder) -> ExpectedCheckpoint:
    """What the run's own record says of its checkpoints, for the gate.

    A program without telemetry records no saves: there, that an earlier gate found one says that one must be there.
    """
    events = ledger.read_events(run.path)
    last_saved, claimed = _saved_step(run, went_back(events))
    found_before = any(event.kind == "checkpoint_gate" and event.data.get("resume_tag") for event in events)
    return {
        "expected": last_saved is not None or found_before,
        "last_saved_step": last_saved,
        "claimed": claimed,
        "refused": refused_tags(events),
    }


def restart_summaries(run: RunFolder, attempt: int) -> list[RestartSummary]:
    """The restarts of an attempt that are over, in order."""
    told = ledger.read_events(run.path, attempt)
    begun = {event.data.get("restart"): event.time for event in told if event.kind == "restart_started"}
    events = [event for event in told if event.kind == "restart_ended"]
    summaries = []
    newest = 0
    for event in events:
        restart = int(event.data["restart"])
        first, last = steps_of(contract.restart_dir(run.path, attempt, restart))
        newest = max(newest, _saved_in(run, attempt, restart))
        summaries.append(
            RestartSummary(
                attempt=attempt,
                restart=restart,
                failure_class=str(event.data["class"]),
                start_step=first - 1 if first is not None else 0,
                end_step=last,
                checkpoint_step=newest,
                nodes=tuple(event.data.get("nodes", ())),
                seconds=event.time - begun[restart] if restart in begun else None,
                refused=str((event.data.get("refused") or {}).get("tag", "")),
            )
        )
    return summaries


def _attempt_summaries(run: RunFolder, owners: Sequence[AttemptState]) -> list[AttemptSummary]:
    summaries = []
    for owner in owners:
        restarts = run.restarts(owner.attempt)
        ends = [steps_of(contract.restart_dir(run.path, owner.attempt, restart))[1] for restart in restarts]
        start = owner.resume_step or 0
        saved = [_saved_in(run, owner.attempt, restart) for restart in restarts]
        summaries.append(
            AttemptSummary(
                attempt=owner.attempt,
                start_step=start,
                end_step=max((end for end in ends if end is not None), default=None),
                checkpoint_step=max([start, *saved]),
                failure_class=owner.failure_class or "",
            )
        )
    return summaries


def _saved_in(run: RunFolder, attempt: int, restart: int) -> int:
    saved = _series(contract.restart_dir(run.path, attempt, restart)).saved
    return max((save.step for save in saved), default=0)


def _ask(slurm: Slurm, job_id: int) -> Job | None:
    try:
        job = slurm.jobs([job_id]).get(job_id)
        if job is not None and job.state.job_class is JobClass.ENDING:
            # A dead node keeps a job COMPLETING for minutes, and hides how it ended; accounting knows already.
            return next(reversed(slurm.history([job_id]).get(job_id, [])), job)
    except SlurmError:
        return None
    return job


def _series(folder: Path) -> Series:
    return read_series([folder / "metrics.jsonl"])


def _job_class(run: RunFolder, attempt: AttemptState, slurm: Slurm) -> JobClass | None:
    """Slurm's last word on the attempt's job, waited for in bounds; None where it cannot be had."""
    records = run.attempts()
    job_id = next((record.job_id for record in records if record.attempt == attempt.attempt), None)
    if job_id is None:
        return None
    if any(record.attempt > attempt.attempt and record.job_id == job_id for record in records):
        return JobClass.REQUEUED  # the same job began anew: Slurm tells only how that goes
    deadline = time.monotonic() + _SETTLE_PATIENCE
    pause = 0.25
    while True:
        job = _ask(slurm, job_id)
        if job is not None and job.state.job_class not in _UNSETTLED:
            # A job that ran to the end of its script says nothing about the training.
            return None if job.state.job_class in {JobClass.FINISHED, JobClass.FAILED} else job.state.job_class
        if time.monotonic() > deadline:
            return None
        time.sleep(pause)
        pause = min(2 * pause, 4.0)
