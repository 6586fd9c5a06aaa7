"""Lost jobs: those of a run that ended, or can only be ended, without an attempt. Nobody of ours was there to say why.

`--no-kill` keeps a job of several nodes RUNNING when its batch host dies before the attempt has begun (seen on Slurm
22.05): no beat is missed, no witness looks. A prolog that fails on the batch host shows as a job that root, or the
user of the controller, cancelled; and where the file system of the Python is not mounted, a node ends each job within a
second, is idle again, and gets the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pretrainctl.errors import MissingError, SlurmError
from pretrainctl.records.job import Job, JobClass
from pretrainctl.records.run import AttemptRecord, Event
from pretrainctl.recovery.policies import FailureClass
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.pulse import HEARD_WITHIN, silence_of
from pretrainctl.runs.state import RunState
from pretrainctl.slurm.client import Slurm
from pretrainctl.slurm.sinfo import NodeCondition, NodeState
from pretrainctl.units import show_duration
from pretrainctl.workflows.reach import reach

__all__ = [
    "CANCELLED",
    "MOST_LOST",
    "LostJob",
    "count_in_a_row",
    "find_cancelled",
    "find_ended",
    "find_vanished",
    "gone_host",
    "is_heard",
    "judge_running",
    "known",
    "stopped_by",
    "tell_ended",
    "tell_gone_host",
    "tell_no_chained",
]

_BOOT_FAILURE, _NODE_FAILURE = FailureClass.BOOT_FAILURE.value, FailureClass.NODE_FAILURE.value
CANCELLED = {JobClass.USER_CANCEL, JobClass.ADMIN_CANCEL, JobClass.CANCELLED}
MOST_LOST = 3
"""Jobs in a row: what ends jobs on so many batch hosts, each avoided by the next, lies with the run or the site."""
_BEGINS_WITHIN = 900.0
"""Seconds from Slurm's start of a job to its attempt: as long as a job waits for its run folder. Modules and Python
from a loaded file system take minutes."""
_PROLOG_WITHIN = 300.0
"""Seconds that a prolog, which may test the node, has had to fail in."""
_OUT_OF_SERVICE = {NodeCondition.DRAINING, NodeCondition.DRAINED, NodeCondition.DOWN, NodeCondition.NOT_RESPONDING}
_NO_LOSS = {JobClass.PREEMPTED, JobClass.REQUEUED, JobClass.ELSEWHERE}
"""Ends that say nothing of the job's nodes."""


@dataclass(frozen=True)
class LostJob:
    """A job without an attempt: its class, the nodes on which that is laid, and what is said of it.

    `low` confidence: the nodes are suspects.
    """

    job_id: int
    failure_class: str
    nodes: tuple[str, ...]
    message: str
    confidence: Literal["high", "low"] = "low"


def gone_host(job: Job, attempt: AttemptRecord | None = None) -> str:
    """The batch host of a running job that Slurm has taken away from it; empty where it has not."""
    host = job.batch_host or (attempt.host if attempt is not None else "")
    return host if job.is_running and job.nodes and host not in job.nodes else ""


def is_heard(run: RunFolder, state: RunState, attempt: AttemptRecord) -> bool:
    """Whether an attempt that has not ended was heard lately."""
    ended = any(known.attempt == attempt.attempt and known.ended for known in state.attempts)
    silent = None if ended else silence_of(run.path, attempt.attempt)
    return silent is not None and silent < HEARD_WITHIN


def tell_gone_host(run: RunFolder, state: RunState, job: Job, attempt: AttemptRecord | None) -> str:
    """What is said of a running job that has lost its batch host, with its newest attempt; empty where it has not."""
    host, name = gone_host(job, attempt), run.record.name
    if not host:
        return ""
    if attempt is not None and is_heard(run, state, attempt):
        return (
            f"Slurm has taken its batch host {host} from job {job.job_id}, and attempt {attempt.attempt} is heard all "
            f"the same: it goes on, and `pretrainctl reconcile {name}` ends it where it is silent for "
            f"{show_duration(HEARD_WITHIN)}"
        )
    return f"job {job.job_id} has lost its batch host {host}: `pretrainctl reconcile {name}` lets the next go on"


def judge_running(run: RunFolder, state: RunState, job: Job) -> LostJob | None:
    """The loss of a running job in which no attempt can begin any more, or none has for too long; None where one may,
    or one has begun and not ended."""
    host = gone_host(job)
    late = job.state.text == "RUNNING" and (job.elapsed or 0.0) >= _BEGINS_WITHIN
    if not (host or late):
        return None
    ended = {attempt.attempt for attempt in state.attempts if attempt.ended or attempt.refused}
    claims = [record for record in run.attempts() if record.job_id == job.job_id]
    if any(record.attempt not in ended for record in claims):
        return None
    if host:
        began = f"attempt {claims[-1].attempt} had ended" if claims else "before an attempt began"
        said = f"job {job.job_id} has lost its batch host {host} ({began})"
        return LostJob(job.job_id, _NODE_FAILURE, (host,), said, "high")
    if claims:
        return None
    hosts = (job.batch_host,) if job.batch_host else job.nodes[:1]
    said = (
        f"job {job.job_id} has run for {show_duration(job.elapsed or 0.0)} on {', '.join(hosts)} and begun no attempt, "
        f"for which it has {show_duration(_BEGINS_WITHIN)}"
    )
    return LostJob(job.job_id, _BOOT_FAILURE, hosts, said)


def find_ended(state: RunState, jobs: Mapping[int, Job], slurm: Callable[[], Slurm]) -> tuple[list[LostJob], list[Job]]:
    """Those of `jobs` that ended without an attempt, and that nobody has written down yet, oldest first; and those that
    somebody cancelled. `slurm` is called only where a prolog may have failed, or a node cannot be cleared."""
    lost: list[LostJob] = []
    cancelled: list[Job] = []
    for number in state.unclaimed:
        job = jobs.get(number)
        if job is None or number in state.lost_jobs:
            continue
        if job.state.job_class is JobClass.ENDING:
            # A node that cannot be cleared hides for minutes how the job ended; accounting knows.
            starts = slurm().history([number]).get(number, [])
            job = replace(starts[-1], batch_host=job.batch_host) if starts else job
        if job.state.alive is not False or job.state.job_class in _NO_LOSS:
            continue
        found = _judge_ended(job, _broken_by_prolog(job, slurm))
        if found is None:
            cancelled.append(job)
        else:
            lost.append(found)
    return lost, cancelled


def find_vanished(state: RunState, asked: Collection[int], jobs: Mapping[int, Job]) -> list[LostJob]:
    """Those of the jobs without an attempt that Slurm was `asked` about and does not know any more."""
    return [_unknown(number) for number in state.unclaimed if number in asked and number not in jobs]


def _unknown(number: int) -> LostJob:
    said = f"job {number} ended before its attempt began, and Slurm does not know how"
    return LostJob(number, FailureClass.UNKNOWN.value, (), said)


def stopped_by(state: RunState, lost: Sequence[LostJob], cancelled: Sequence[Job]) -> Job | None:
    """The job by whose cancel a person stopped a run of which nothing is alive, whoever had queued it; None where the
    last job that ended without an attempt was lost. `lost` and `cancelled` are what `find_ended` finds."""
    order = state.unclaimed
    told = {*state.lost_jobs, *(one.job_id for one in lost)}
    newest = max((order.index(number) for number in told if number in order), default=-1)
    later = [job for job in cancelled if order.index(job.job_id) > newest]
    return later[-1] if later else None


def count_in_a_row(events: Sequence[Event], unclaimed: Collection[int]) -> int:
    """How many losses there are in a row among the jobs without an attempt: on so many batch hosts, or so many times
    one that was queued after the loss before it was known. What was queued ahead cannot keep off a node that ends each
    job at once."""
    lost = [event for event in events if event.kind == "job_lost" and event.data["job_id"] in unclaimed]
    queued_after: dict[int, int] = {}
    deepest = 0
    for event in events:
        if event.attempt == 0 and event.kind == "submitted":
            queued_after.setdefault(event.data["job_id"], deepest)
        elif event in lost:
            deepest = max(deepest, queued_after.get(event.data["job_id"], 0) + 1)
    hosts = {tuple(event.data["nodes"]) for event in lost if event.data["nodes"]}
    return max(len(hosts), deepest)


def _broken_by_prolog(job: Job, slurm: Callable[[], Slurm]) -> dict[str, NodeState]:
    """Nodes of a job that Slurm has taken out of service for a prolog, where the job may have ended by that."""
    if not job.nodes or job.start is None or (job.elapsed or 0.0) > _PROLOG_WITHIN:
        return {}
    states = slurm().node_states(job.nodes)
    return {
        name: node
        for name, node in states.items()
        if node.condition in _OUT_OF_SERVICE and "prolog" in node.reason.lower()
    }


def _judge_ended(job: Job, broken: Mapping[str, NodeState]) -> LostJob | None:
    """How a job was lost that ended without an attempt, None where somebody cancelled it."""
    if job.state.job_class is JobClass.UNKNOWN:
        return _unknown(job.job_id)
    said = f"job {job.job_id} ended before its attempt began"
    if broken:
        told = ", ".join(f"{name} (Slurm: {node.reason})" for name, node in broken.items())
        return LostJob(job.job_id, _BOOT_FAILURE, tuple(broken), f"{said}: the prolog failed on {told}", "high")
    if job.state.job_class in CANCELLED:
        return None
    if job.state.job_class not in {JobClass.FAILED, JobClass.TIME_LIMIT}:
        kind = _NODE_FAILURE if job.state.job_class is JobClass.NODE_FAILURE else _BOOT_FAILURE
        return LostJob(job.job_id, kind, (), f"{said}: {job.state.text}")
    hosts = (job.batch_host,) if job.batch_host else job.nodes[:1]
    how = f"signal {job.exit_signal}" if job.exit_signal else f"exit status {job.exit_code}"
    told = how if job.state.job_class is JobClass.FAILED else job.state.text
    where = f" on {', '.join(hosts)}" if hosts else ""
    return LostJob(job.job_id, _BOOT_FAILURE, hosts, f"{said}: {told}{where}")


def known(event: Event) -> LostJob:
    """A lost job as the ledger has it."""
    confidence: Literal["high", "low"] = "high" if event.data.get("confidence") == "high" else "low"
    kind = event.data["class"] if event.data["class"] in set(FailureClass) else _BOOT_FAILURE
    return LostJob(event.data["job_id"], kind, tuple(event.data["nodes"]), event.message, confidence)


def tell_ended(run: RunFolder, state: RunState, jobs: Mapping[int, Job]) -> tuple[tuple[str, ...], Job | None]:
    """Of a run of which nothing is alive: what is said of the last job where it ended without an attempt, and nobody
    cancelled it; and the job by whose cancel a person stopped the run."""
    ended = {number: jobs[number] for number in state.unclaimed if number in jobs}
    try:
        lost, cancelled = find_ended(state, ended, lambda: reach(run))
    except (SlurmError, MissingError):
        return (), None
    by = stopped_by(state, lost, cancelled)
    newest = lost[-1:] if by is None else []
    return tuple(
        one.message + (f"; see {run.job_log(one.job_id)}" if one.confidence == "low" else "") for one in newest
    ), by


def find_cancelled(state: RunState, jobs: Mapping[int, Job]) -> list[Job]:
    """The jobs that were to go on after the newest attempt, and that somebody cancelled in the queue."""
    mine = (jobs[number] for number in state.unclaimed if number in jobs and number not in state.lost_jobs)
    return [job for job in mine if job.state.job_class in CANCELLED and not job.nodes]


def tell_no_chained(name: str, running: int, cancelled: Sequence[Job]) -> str:
    """What is said of a run that lives and has nothing in the queue, because somebody cancelled that; else empty."""
    if not cancelled:
        return ""
    numbers = ", ".join(str(job.job_id) for job in cancelled)
    return (
        f"nothing goes on after job {running}: the chained job{'s' * (len(cancelled) > 1)} {numbers} "
        f"{'were' if len(cancelled) > 1 else 'was'} cancelled; `pretrainctl resume {name}` goes on when it has ended"
    )
