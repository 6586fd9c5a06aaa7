"""Reconcile: one idempotent look that repairs the ledger and tops up the queue. No process of ours stays."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pretrainctl.errors import PretrainctlError, RunError, SlurmError
from pretrainctl.records.job import Job
from pretrainctl.records.launch import Launch
from pretrainctl.records.run import Action, AttemptRecord, EventKind
from pretrainctl.recovery.policies import FailureClass
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.pulse import HEARD_WITHIN, tell_silence
from pretrainctl.runs.requests import ask_again
from pretrainctl.runs.state import RunState, fold
from pretrainctl.slurm.client import Slurm
from pretrainctl.units import show_duration
from pretrainctl.workflows.attempt.witness import end_headless_job, take_back
from pretrainctl.workflows.control import Outcome
from pretrainctl.workflows.exclusions import add_found, found_now, list_of, push, release
from pretrainctl.workflows.launch import queue_jobs
from pretrainctl.workflows.look_back import look_back
from pretrainctl.workflows.lost_jobs import (
    MOST_LOST,
    LostJob,
    count_in_a_row,
    find_cancelled,
    find_ended,
    find_vanished,
    gone_host,
    is_heard,
    judge_running,
    known,
    stopped_by,
    tell_gone_host,
    tell_no_chained,
)
from pretrainctl.workflows.reach import reach_own
from pretrainctl.workflows.turn import give_turn, take_turn

__all__ = ["Look", "reconcile"]

_HELD_FOR_NODES = "BadConstraints"
"""Slurm's reason for a job that fits no nodes: one of ours avoided too many."""
_UNSURE_FOR = 2 * 3600.0
"""Seconds that other jobs keep off a node which is only suspected: the run's own Python may be what is missing."""


@dataclass(frozen=True)
class Look:
    """What a look at runs did. `outcomes` are those of runs that go on, or where something was done; `over` counts
    the others, finished or stopped; `problems` say of each other one why nothing was done: Slurm, or the run folder,
    could not be read or written, which `unknown` counts, or it is a copy of another run's folder."""

    outcomes: tuple[Outcome, ...]
    over: int
    unknown: int
    problems: tuple[str, ...] = ()


def reconcile(name: str | None = None) -> Look:
    """Look once at a run, or at every run of this user under the roots, with one question to each Slurm.

    What Slurm cannot say is unknown: then nothing is decided. With several runs, trouble with one is its outcome.
    """
    if name is not None:
        run = folder.find(name)
        outcome, _ = _reconcile_one(run, reach_own(run), None)
        return Look((outcome,), 0, 0)
    runs, unreadable = folder.all_runs(own=True)
    outcomes: list[Outcome] = []
    problems = [str(error) for error in unreadable]
    copies: list[str] = []
    over = 0
    queues = _Queues()
    for run in runs:
        try:
            run.refuse_foreign()
        except RunError as error:
            copies.append(f"{run.record.name}: nothing done: {error}")
            continue
        try:
            outcome, changed = _reconcile_one(run, *queues.of(run))
        except (PretrainctlError, OSError) as error:
            problems.append(f"{run.record.name}: nothing done: {error}")
            continue
        if changed:
            outcomes.append(outcome)
        else:
            over += 1
    return Look(tuple(outcomes), over, len(problems), (*problems, *copies))


class _Queues:
    """What is queued on each Slurm that runs were submitted to, asked once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Slurm, dict[str, list[Job]]] | PretrainctlError] = {}

    def of(self, run: RunFolder) -> tuple[Slurm, list[Job]]:
        """The run's Slurm, and the run's jobs there; its error again where it could not be asked."""
        place = (run.record.slurm_conf, run.record.slurm_cluster)
        if place not in self._known:
            try:
                slurm = reach_own(run)
                self._known[place] = (slurm, slurm.all_queued())
            except PretrainctlError as error:
                self._known[place] = error
        known = self._known[place]
        if isinstance(known, PretrainctlError):
            raise known
        slurm, queued = known
        return slurm, queued.get(run.record.job_name, [])


def _reconcile_one(run: RunFolder, slurm: Slurm, jobs: Sequence[Job] | None) -> tuple[Outcome, bool]:
    """What was done to one run, and False where it was over before and nothing had to be done.

    `jobs` are its jobs in the queue, None where nobody has asked yet.
    """
    state = fold(ledger.read_events(run.path))
    if jobs is None:
        jobs = slurm.queued(run.record.job_name)
    headless = _headless(run, state, jobs)
    if headless is not None and end_headless_job(run, headless, slurm, "left by Slurm"):
        message = f"cancelled job {headless.job_id}: its batch host {headless.host} is gone"
        return Outcome(run.record.name, message, (headless.job_id,)), True
    for job_id in sorted({job.job_id for job in jobs if job.is_waiting or job.is_running} - set(state.jobs)):
        ledger.append(run.path, "submitted", f"found job {job_id} by its name", data={"job_id": job_id, "found": True})
    lost = [found for job in jobs if job.is_running and (found := judge_running(run, state, job)) is not None]
    for one in lost:
        _write_down(run, slurm, one, alive=True)
    jobs = [job for job in jobs if job.job_id not in {one.job_id for one in lost}]
    state = fold(ledger.read_events(run.path))
    if state.finished is not None or state.stopped is not None:
        outcome, changed = _settle(run, state, slurm, jobs)
    else:
        outcome, changed = _carry_on(run, state, slurm, jobs), True
    said = [f"cancelled job {one.job_id}: {one.message}" for one in lost]
    ids = (*(one.job_id for one in lost), *outcome.job_ids)
    return Outcome(outcome.run, "; ".join([*said, outcome.message]), ids), changed or bool(lost)


def _headless(run: RunFolder, state: RunState, jobs: Sequence[Job]) -> AttemptRecord | None:
    """The attempt whose running job has lost its batch host, which Slurm takes from a job of several nodes. It may not
    have come to write an event, or may have ended on a host that could not tell Slurm. One that is heard lives: there,
    Slurm's daemon is what died."""
    refused = {attempt.attempt for attempt in state.attempts if attempt.refused}
    for job in jobs:
        if job.is_running and job.nodes and (not job.batch_host or gone_host(job)):
            of_job = [
                record for record in run.attempts() if record.job_id == job.job_id and record.attempt not in refused
            ]
            if of_job and gone_host(job, of_job[-1]) and not is_heard(run, state, of_job[-1]):
                return of_job[-1]
    return None


def _settle(run: RunFolder, state: RunState, slurm: Slurm, jobs: Sequence[Job]) -> tuple[Outcome, bool]:
    """Take away what a finished or stopped run still has in the queue. What runs of it is given its time to save,
    except where it was cancelled."""
    queued = [job.job_id for job in jobs if job.is_waiting]
    running = [job.job_id for job in jobs if job.is_running]
    gone = [*queued, *(running if state.cancelled else ())]
    slurm.cancel(gone)
    if running and not state.cancelled and state.open_attempt is not None:
        # The wish may never have reached the ranks: where it did, they have obeyed it, or will. Where the request
        # cannot be written, the attempt finds the stop in the ledger.
        with contextlib.suppress(OSError):
            ask_again(run.path, "save_and_exit", state.open_attempt.attempt, "stop")
    word = "finished" if state.finished is not None else "stopped"
    message = f"{word}: {state.finished or state.stopped}"
    if gone:
        message += f"; cancelled {', '.join(map(str, gone))}"
    elif running:
        message += f"; job {running[0]} still ends"
    return Outcome(run.record.name, message, tuple(gone)), bool(gone or running)


def _carry_on(run: RunFolder, state: RunState, slurm: Slurm, jobs: Sequence[Job]) -> Outcome:
    """See that a run that is neither finished nor stopped has a job that can start, unless its last end says that it
    stops. No later job begins on the nodes to which the run has lost one, if others are there."""
    launch = run.launch()
    ended, cancelled, alive = _without_attempt(state, slurm, {job.job_id for job in jobs if _goes_on(job)})
    for one in ended:
        _write_down(run, slurm, one)
    jobs = [*jobs, *alive]
    if any(_goes_on(job) for job in jobs):
        return _keep_going(run, state, slurm, jobs, ended)
    past = look_back(run, slurm)
    if past is not None and past.stop is not None:
        kind: EventKind = "finished" if past.stop.action is Action.FINISH else "stopped"
        ledger.append(
            run.path, kind, past.stop.reason, data={"class": past.diagnosis.failure_class, "of": past.attempt}
        )
        return Outcome(run.record.name, f"{kind}: {past.stop.reason}")
    by = stopped_by(state, ended, cancelled)
    if by is not None:
        said = f"job {by.job_id} was cancelled before it began: nothing goes on until `resume`"
        ledger.append(run.path, "stopped", said, data={"class": FailureClass.USER_CANCEL.value})
        return Outcome(run.record.name, f"stopped: {said}")
    events = ledger.read_events(run.path)
    in_a_row = [known(event) for job, event in fold(events).lost_jobs.items() if job in state.unclaimed]
    if count_in_a_row(events, state.unclaimed) >= MOST_LOST:
        return _give_up(run, launch, in_a_row)
    try:
        submitted, why = _queue(run, launch, slurm)
    except SlurmError as error:
        return Outcome(run.record.name, f"nothing queued: {error}")
    if submitted:
        why = past.diagnosis.message if past is not None else "no attempt yet"
        why = in_a_row[-1].message if in_a_row else why
        return Outcome(run.record.name, f"queued job {submitted[0]} ({why})", submitted)
    return Outcome(run.record.name, why)


def _goes_on(job: Job) -> bool:
    return job.is_waiting or job.is_running


def _keep_going(
    run: RunFolder, state: RunState, slurm: Slurm, jobs: Sequence[Job], ended: Sequence[LostJob]
) -> Outcome:
    """Look after a run that has a job: free what Slurm holds for its nodes, keep what waits off those that are listed,
    and queue what is missing of a chain that is queued from outside, except where a person cancelled all that waited.
    """
    name, launch = run.record.name, run.launch()
    queued = [job.job_id for job in jobs if job.is_waiting]
    running = [job for job in jobs if job.is_running]
    freed = _free_held(run, slurm, jobs)
    push(run, slurm, [job.job_id for job in jobs if job.is_waiting and job.reason != _HELD_FOR_NODES])
    submitted: tuple[int, ...] = ()
    cancelled = [] if queued else find_cancelled(state, slurm.jobs(state.unclaimed))
    problem = ""
    if launch.chain == "prequeued" and not cancelled and len(queued) + len(running) < 1 + launch.chained_jobs:
        submitted, problem = _queue(run, launch, slurm)
    told = [f"running job {running[0].job_id}" if running else f"job {queued[0]} is queued already"]
    told += [*([freed] if freed else []), *(one.message for one in ended)]
    owner = state.open_attempt
    for record in run.attempts() if owner is not None else ():
        job = next((job for job in running if job.job_id == record.job_id), None)
        if owner is not None and record.attempt == owner.attempt and job is not None:
            said = tell_gone_host(run, state, job, record) or tell_silence(run.path, record.attempt, record.host, job)
            told += [said] if said else []
            if owner.lost_host and is_heard(run, state, record):
                take_back(run, record, slurm, after=HEARD_WITHIN)
    if running and not queued and not submitted:
        said = tell_no_chained(name, running[0].job_id, cancelled)
        told += [said] if said else []
    told += [f"queued {len(submitted)} more"] if submitted else []
    return Outcome(name, "; ".join([*told, *([problem] if problem else [])]), submitted)


def _queue(run: RunFolder, launch: Launch, slurm: Slurm) -> tuple[tuple[int, ...], str]:
    """Queue what a run lacks, and say why nothing was: somebody else is at it, or was since the queue was asked."""
    other = take_turn(run.path, "a look queues what goes on")
    if other is not None:
        return (), f"nothing queued: {other.message}, on {other.host}, {show_duration(time.time() - other.time)} ago"
    submitted: tuple[int, ...] = ()
    ended = "the look has ended"
    try:
        there = [job.job_id for job in slurm.queued(run.record.job_name) if _goes_on(job)]
        submitted, _ = queue_jobs(run, launch, slurm, already=len(there))
        ended = f"nothing queued: job {there[0]} is there" if there else ended
    except PretrainctlError as error:
        ended = f"nothing queued: {error}"
        raise
    finally:
        if not submitted:
            give_turn(run.path, ended)
    return submitted, "" if submitted else ended


def _without_attempt(
    state: RunState, slurm: Slurm, in_queue: Collection[int]
) -> tuple[list[LostJob], list[Job], list[Job]]:
    """Of the jobs without an attempt that were not in the queue: those that were lost and are not in the ledger as such
    yet, those that somebody cancelled, and those that are there after all, submitted since the queue was asked."""
    gone = [job for job in state.unclaimed if job not in in_queue and job not in state.lost_jobs]
    if not gone:
        return [], [], []
    jobs = slurm.jobs(gone)
    lost, cancelled = find_ended(state, jobs, lambda: slurm)
    return [*lost, *find_vanished(state, gone, jobs)], cancelled, [job for job in jobs.values() if _goes_on(job)]


def _write_down(run: RunFolder, slurm: Slurm, lost: LostJob, *, alive: bool = False) -> None:
    """Say so in the ledger, first and once, cancel the job where it is `alive`, and list its nodes.

    The event tells our own cancel from that of a person.
    """
    data = {
        "job_id": lost.job_id,
        "class": lost.failure_class,
        "nodes": list(lost.nodes),
        "confidence": lost.confidence,
    }
    told = any(e.kind == "job_lost" and e.data["job_id"] == lost.job_id for e in ledger.read_events(run.path, 0))
    if not told:
        ledger.append(run.path, "job_lost", lost.message, data=data)
    if alive:
        slurm.cancel([lost.job_id])
    expires = time.time() + _UNSURE_FOR if lost.confidence == "low" else 0.0
    of_job = {"run": run.record.name, "job_id": lost.job_id, "confidence": lost.confidence, "expires": expires}
    for node in () if told else lost.nodes:
        # Where it cannot be listed, the next job matters more.
        with contextlib.suppress(OSError, PretrainctlError, ValueError):
            nodes = list_of(run)
            add_found(nodes, found_now(nodes, node, lost.failure_class, lost.message, **of_job))


def _give_up(run: RunFolder, launch: Launch, lost: Sequence[LostJob]) -> Outcome:
    """Stop a run whose jobs end one after the other before their attempt begins: the next would, too."""
    told = "; ".join(one.message for one in lost[-MOST_LOST:])
    said = (
        f"{len(lost)} jobs in a row were lost before their attempt began: {told}; look at "
        f"{run.job_log(lost[-1].job_id).parent}/slurm-*.out, and whether {launch.python} is there on these nodes; "
        "nothing goes on until `resume`"
    )
    ledger.append(run.path, "stopped", said, data={"class": lost[-1].failure_class})
    return Outcome(run.record.name, f"stopped: {said}")


def _free_held(run: RunFolder, slurm: Slurm, jobs: Sequence[Job]) -> str:
    """Let queued jobs go to more nodes where too few were left to them; what was done, empty for nothing.

    Slurm holds them for ever, also when the nodes that they avoid are well again.
    """
    held = [job.job_id for job in jobs if job.is_waiting and job.reason == _HELD_FOR_NODES]
    for job_id in held:
        release(run, slurm, job_id)
    if not held:
        return ""
    done = f"job {', '.join(map(str, held))} was held ({_HELD_FOR_NODES}): it avoids no more than it can do without now"
    ledger.append(run.path, "note", done, data={"job_ids": held})
    return done
