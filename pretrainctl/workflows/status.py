"""Status: where runs stand, from their folders and one Slurm query for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pretrainctl.errors import MissingError, RunError, SlurmError
from pretrainctl.records.job import Job
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.pulse import tell_silence
from pretrainctl.runs.state import RunState, fold
from pretrainctl.workflows.lost_jobs import (
    CANCELLED,
    find_cancelled,
    judge_running,
    tell_ended,
    tell_gone_host,
    tell_no_chained,
)
from pretrainctl.workflows.reach import reach
from pretrainctl.workflows.signs_of_life import Starting, find_start, newest_sample
from pretrainctl.workflows.waiting import tell_too_few

__all__ = ["Phase", "RunStatus", "Survey", "survey"]

Phase = Literal["finished", "stopped", "failed", "stopping", "starting", "running", "queued", "no_job", "unknown"]
"""`starting`: its job has begun, and its program has done no step of this start yet. `running`: its program does steps,
or has ended and its job decides how it goes on.
`stopped`: by a person, with a command of ours or with scancel. `failed`: by itself, as its last event says.
`stopping`: stopped, and a job of it has not ended yet. `no_job`: not finished, not stopped, and nothing of it is queued
or running: `reconcile` looks into it. `unknown`: Slurm could not be asked."""

_NEWEST_JOBS = 4
"""Jobs of a run that Slurm is asked about besides that of its newest attempt and those after it."""
_MOST_UNCLAIMED = 100
"""Of the jobs in which no attempt has begun: a chain is shorter."""


@dataclass(frozen=True)
class RunStatus:
    """One run; `step`, `tokens` and `loss` are those of the newest line of its metrics, None where there is none.

    `job_id` is the running job, or the first that is queued; `reason` why it waits; `expected_start` epoch s.
    `nodes` are those of the running job, less `dead_nodes`, which it has lost. `started` is when the program of a run
    that is `starting` was started, None where it was not yet, `sign` its last sign of life and `sign_time` when that
    was; epoch s. `hung_after`: seconds without a sign after which it is hung, at the earliest; None where it gave
    none yet. `went_back`: that a person had it go on from an older checkpoint, the last time, empty for never.
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
    dead_nodes: tuple[str, ...]
    queued_jobs: int
    last_event: str
    last_event_time: float | None
    warnings: tuple[str, ...]
    last_sample_time: float | None
    started: float | None = None
    sign: str = ""
    sign_time: float | None = None
    hung_after: float | None = None
    went_back: str = ""


@dataclass(frozen=True)
class Survey:
    """Runs, and what could not be read on the way."""

    runs: tuple[RunStatus, ...]
    problems: tuple[str, ...]


def survey(name: str | None = None) -> Survey:
    """Where the named run stands, or all runs under the roots.

    An unreadable ledger of a named run is a LedgerError; in a survey of all it is a problem of that run alone.
    """
    problems = [f"{root}, named by {folder.RUNS_VARIABLE}, does not exist" for root in folder.missing_roots()]
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
            except (RunError, OSError) as error:
                problems.append(str(error))
    jobs, trouble = _ask_slurms([(run, states[run.path]) for run in runs if run.path in states])
    problems += trouble
    found = []
    for run in runs:
        try:
            if run.path in states:
                found.append(_status(run, states[run.path], jobs.get(run.path), alone=name is not None))
        except (RunError, OSError) as error:
            if name is not None:
                raise
            problems.append(str(error))
    return Survey(tuple(found), tuple(problems))


def _ask_slurms(runs: Sequence[tuple[RunFolder, RunState]]) -> tuple[dict[Path, Mapping[int, Job]], list[str]]:
    """The jobs of each run that is not finished, with one question to each Slurm; a run whose Slurm could not be
    asked is absent, and the reason is among the problems."""
    found: dict[Path, Mapping[int, Job]] = {}
    groups: dict[str, list[tuple[RunFolder, RunState]]] = {}
    for run, state in runs:
        if state.finished is not None or not state.jobs:
            found[run.path] = {}
        else:
            groups.setdefault(run.record.slurm_conf, []).append((run, state))
    problems = []
    for group in groups.values():
        try:
            jobs = reach(group[0][0]).jobs([job for _, state in group for job in _asked(state)])
        except (SlurmError, MissingError) as error:
            problems.append(f"Slurm could not be asked, so the state of jobs is unknown: {error}")
            continue
        # Job ids count from 1 on each cluster: the name, which is unique to the run, says whose job it is.
        found |= {
            run.path: {number: job for number, job in jobs.items() if job.name == run.record.job_name}
            for run, _ in group
        }
    return found, problems


def _asked(state: RunState) -> list[int]:
    """The jobs that may be alive, and the last that ended, oldest first."""
    owner = {state.owner.job_id} if state.owner is not None else set()
    chosen = {*state.jobs[-_NEWEST_JOBS:], *owner, *state.unclaimed[-_MOST_UNCLAIMED:]}
    return [job for job in state.jobs if job in chosen]


def _status(run: RunFolder, state: RunState, jobs: Mapping[int, Job] | None, *, alone: bool) -> RunStatus:
    """`jobs` None: Slurm could not be asked. Of a run `alone` it is asked about nodes, too, where its job waits."""
    sample = newest_sample(run)
    mine = [jobs[job] for job in state.jobs if job in jobs] if jobs is not None else []
    running = [job for job in mine if job.is_running]
    queued = [job for job in mine if job.is_waiting]
    last = [job for job in mine if state.owner is not None and job.job_id == state.owner.job_id]
    begun = state.owner is not None and state.owner.attempt > state.resumed_after
    claimed = {attempt.job_id for attempt in state.attempts}
    known = {job.job_id: job for job in mine}
    phase = _phase(state, bool(running), bool(queued), known=jobs is not None)
    lost, by = tell_ended(run, state, known) if phase == "no_job" else ((), None)
    # The job of the newest attempt, or one that was to go on after it.
    gone = [job for job in last if begun and not lost and job.job_id not in state.lost_jobs]
    cancelled = [by] if by is not None else [job for job in gone if job.state.job_class in CANCELLED]
    current = next(iter(running or queued or cancelled or last), None)
    held = current.nodes if current and current in running else ()
    dead = state.open_attempt.dead_nodes if state.open_attempt is not None else ()
    launch = run.launch()
    fresh = all(job.job_id not in claimed for job in running)
    start = (Starting() if fresh else find_start(run, state)) if phase == "running" else None
    phase = "starting" if start is not None else phase
    warnings = _warnings(run, state, current if current in running else None)
    warnings += lost
    if phase == "no_job" and cancelled:
        phase, warning = _cancelled_or_unwritten(run)
        warnings += (warning,)
    if phase in {"starting", "running"} and not queued and current in running:
        said = tell_no_chained(run.record.name, current.job_id, find_cancelled(state, known))
        warnings += (said,) if said else ()
    if phase == "queued" and current is not None and alone:
        said = tell_too_few(run.record.name, launch, current, lambda: reach(run))
        warnings += (said,) if said else ()
    return RunStatus(
        name=run.record.name,
        path=str(run.path),
        cluster=run.record.cluster,
        user=run.record.user,
        phase=phase,
        step=sample.step,
        target_steps=launch.target_steps,
        tokens=sample.tokens,
        loss=sample.loss,
        attempts=sum(not attempt.refused for attempt in state.attempts),
        restarts=sum(max(0, attempt.restarts - 1) for attempt in state.attempts),
        job_id=current.job_id if current else None,
        job_state=current.state.text if current else "",
        reason=current.reason if current and current in queued else "",
        expected_start=current.expected_start if current else None,
        nodes=tuple(node for node in held if node not in dead),
        dead_nodes=tuple(node for node in held if node in dead),
        queued_jobs=len(queued),
        last_event=_last_word(state),
        last_event_time=state.last.time if state.last else None,
        warnings=warnings,
        last_sample_time=sample.time,
        started=start.since if start is not None else None,
        sign=start.sign if start is not None else "",
        sign_time=start.sign_time if start is not None else None,
        hung_after=launch.hang.start_on(launch.srun.nodes) if start is not None and start.sign else None,
        went_back=str(state.went_back or ""),
    )


def _last_word(state: RunState) -> str:
    """The last event; of a stopped run with why it is stopped, which an attempt that ends says nothing of."""
    last = state.last.message if state.last else ""
    return f"{state.stopped}; {last}" if state.stopped and state.stopped not in last else last


def _cancelled_or_unwritten(run: RunFolder) -> tuple[Phase, str]:
    """The phase of a run whose known jobs were cancelled with scancel, and what is said of it: one that was submitted
    later, and could not be written down, is found by its name."""
    name = run.record.name
    try:
        alive = [job for job in reach(run).queued(run.record.job_name) if job.is_running or job.is_waiting]
    except (SlurmError, MissingError) as error:
        return "unknown", f"its jobs were cancelled with scancel; whether another was submitted is unknown: {error}"
    if alive:
        phase: Phase = "running" if any(job.is_running for job in alive) else "queued"
        job = alive[0].job_id
        return phase, f"job {job} is not in the ledger: `pretrainctl reconcile {name}` writes it down"
    # As the next look from anywhere will find, and write into the ledger.
    return "stopped", f"its jobs were cancelled with scancel: nothing goes on until `pretrainctl resume {name}`"


def _warnings(run: RunFolder, state: RunState, job: Job | None) -> tuple[str, ...]:
    found = list(state.owner.warnings) if state.owner is not None else []
    if job is None:
        return tuple(found)
    owner, repair = None, f"`pretrainctl reconcile {run.record.name}`"
    if state.open_attempt is not None and job.job_id == state.open_attempt.job_id:
        owner = next(record for record in run.attempts() if record.attempt == state.open_attempt.attempt)
    if (lost := judge_running(run, state, job)) is not None:
        found.append(f"{lost.message}: {repair} ends it, and lets the next go on")
    elif said := tell_gone_host(run, state, job, owner):
        found.append(said)
    elif owner is not None and (silence := tell_silence(run.path, owner.attempt, owner.host, job)):
        found.append(silence)
    return tuple(found)


def _phase(state: RunState, running: bool, queued: bool, *, known: bool) -> Phase:
    if state.finished is not None:
        return "finished"
    if running:
        return "running" if state.stopped is None else "stopping"
    if state.stopped is not None:
        return "failed" if state.failed else "stopped"
    if not known:
        return "unknown"
    return "queued" if queued else "no_job"
