"""Status: where runs stand, from their folders and one Slurm query for all of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pretrainctl.errors import MissingError, RunError, SlurmError
from pretrainctl.records.job import Job
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.log_tail import tail
from pretrainctl.runs.state import RunState, fold
from pretrainctl.slurm.client import Slurm

__all__ = ["Phase", "RunStatus", "Survey", "survey"]

Phase = Literal["finished", "stopped", "running", "queued", "no_job", "unknown"]
"""`no_job`: not finished, not stopped, and nothing of it is queued or running: `reconcile` looks into it.
`unknown`: Slurm could not be asked."""


@dataclass(frozen=True)
class RunStatus:
    """One run; `step`, `tokens` and `loss` are those of the newest line of its metrics, None where there is none.

    `job_id` is the running job, or the first that is queued; `reason` why it waits; `expected_start` epoch s.
    """

    name: str
    path: str
    cluster: str
    user: str
    phase: Phase
    step: int | None
    target_steps: int
    tokens: int | None
    loss: float | None
    attempts: int
    restarts: int
    job_id: int | None
    job_state: str
    reason: str
    expected_start: float | None
    nodes: tuple[str, ...]
    queued_jobs: int
    last_event: str
    last_event_time: float | None
    last_sample_time: float | None


@dataclass(frozen=True)
class Survey:
    """Runs, and what could not be read on the way."""

    runs: tuple[RunStatus, ...]
    problems: tuple[str, ...]


def survey(name: str | None = None) -> Survey:
    """Where the named run stands, or all runs under the roots.

    An unreadable ledger of a named run is a LedgerError; in a survey of all it is a problem of that run alone.
    """
    problems: list[str] = []
    if name is not None:
        runs = [folder.find(name)]
        states = {runs[0].path: fold(ledger.read_events(runs[0].path))}
    else:
        runs, unreadable = folder.all_runs()
        problems += [str(error) for error in unreadable]
        states = {}
        for run in runs:
            try:
                states[run.path] = fold(ledger.read_events(run.path))
            except RunError as error:
                problems.append(str(error))
    jobs, trouble = _ask_slurm(states.values())
    if trouble:
        problems.append(trouble)
    found = []
    for run in runs:
        try:
            if run.path in states:
                found.append(_status(run, states[run.path], jobs))
        except (RunError, OSError) as error:
            if name is not None:
                raise
            problems.append(str(error))
    return Survey(tuple(found), tuple(problems))


def _ask_slurm(states: Collection[RunState]) -> tuple[Mapping[int, Job] | None, str]:
    wanted = [job for state in states if state.finished is None for job in state.jobs[-4:]]
    if not wanted:
        return {}, ""
    try:
        if not Slurm().is_here():
            return None, "there is no Slurm here, so the state of jobs is unknown"
        return Slurm().jobs(wanted), ""
    except (SlurmError, MissingError) as error:
        return None, f"Slurm could not be asked, so the state of jobs is unknown: {error}"


def _status(run: RunFolder, state: RunState, jobs: Mapping[int, Job] | None) -> RunStatus:
    sample = _newest_sample(run)
    mine = [jobs[job] for job in state.jobs if job in jobs] if jobs is not None else []
    running = [job for job in mine if job.is_running]
    queued = [job for job in mine if job.is_waiting]
    last = [job for job in mine if state.owner is not None and job.job_id == state.owner.job_id]
    current = next(iter(running or queued or last), None)
    launch = run.launch()
    return RunStatus(
        name=run.record.name,
        path=str(run.path),
        cluster=run.record.cluster,
        user=run.record.user,
        phase=_phase(state, bool(running), bool(queued), known=jobs is not None),
        step=sample.get("step"),
        target_steps=launch.target_steps,
        tokens=sample.get("tokens"),
        loss=sample.get("loss"),
        attempts=sum(not attempt.refused for attempt in state.attempts),
        restarts=sum(max(0, attempt.restarts - 1) for attempt in state.attempts),
        job_id=current.job_id if current else None,
        job_state=current.state.text if current else "",
        reason=current.reason if current and current in queued else "",
        expected_start=current.expected_start if current else None,
        nodes=current.nodes if current and current in running else (),
        queued_jobs=len(queued),
        last_event=state.last.message if state.last else "",
        last_event_time=state.last.time if state.last else None,
        last_sample_time=sample.get("time"),
    )


def _phase(state: RunState, running: bool, queued: bool, *, known: bool) -> Phase:
    if state.finished is not None:
        return "finished"
    if running:
        return "running"
    if state.stopped is not None:
        return "stopped"
    if not known:
        return "unknown"
    return "queued" if queued else "no_job"


def _newest_sample(run: RunFolder) -> Mapping[str, Any]:
    for _, _, path in reversed(list(run.restart_dirs())):
        for line in reversed(tail(path / "metrics.jsonl", 20)):
            try:
                data = json.loads(line)
            except ValueError:
                continue
            if isinstance(data, dict) and data.get("kind") == "step":
                return data
    return {}
