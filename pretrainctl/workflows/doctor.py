"""Doctor: why a run, or a program that left only logs, ended: the class, where, which lines say so, what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pretrainctl.errors import MissingError, RunError, SlurmError
from pretrainctl.records.run import Diagnosis
from pretrainctl.recovery.log_diagnosis import diagnose_log
from pretrainctl.recovery.policies import FailureClass
from pretrainctl.runs import folder
from pretrainctl.runs.log_tail import tail
from pretrainctl.slurm import nodes as node_names
from pretrainctl.workflows import last_word
from pretrainctl.workflows.case import GOOD, Case
from pretrainctl.workflows.finding import Finding, finding_of
from pretrainctl.workflows.lost_jobs import find_ended, known, stopped_by
from pretrainctl.workflows.reach import reach
from pretrainctl.workflows.read_logs import placement_in, read_logs
from pretrainctl.workflows.spread import spread_in
from pretrainctl.workflows.take_logs import take_logs

__all__ = ["Finding", "examine_logs", "examine_run"]

_MOST_EMPTY = 3
"""Of empty logs that are named beside others."""
_JOB_LINES = 5
"""Of what the batch script printed last."""


def examine_logs(
    paths: Sequence[Path],
    nodes: str = "",
    ranks_per_node: int | None = None,
    *,
    say: Callable[[str], None] = lambda _line: None,
) -> Finding:
    """Diagnose from logs alone, files or pipes, in the order given; nothing but these is looked at.

    `nodes`, as Slurm writes a list, and `ranks_per_node` say where ranks lay; else the logs are searched for it. `say`
    is told what is waited for. InputError for what is no log that can be read (see `take_logs`).
    """
    with take_logs(paths, say=say) as logs:
        files = list(logs)
        empty = [name for path, name in logs.items() if not path.stat().st_size]
        if len(empty) == len(files):
            return finding_of(_nothing_in(empty))
        placement = placement_in(files)
        if nodes:
            placement = replace(placement, nodes=node_names.expand(nodes), guessed=False)
        if ranks_per_node is not None:
            placement = replace(placement, ranks_per_node=ranks_per_node)
        reading = read_logs(files, names=logs)
        found = finding_of(diagnose_log(reading, placement, spread_in(files, reading, placement, names=logs)))
        return replace(found, notes=tuple(f"{name} is empty" for name in empty[:_MOST_EMPTY]))


def _nothing_in(names: Sequence[str]) -> Diagnosis:
    return Diagnosis(
        FailureClass.UNKNOWN.value,
        f"{names[0]} is empty" if len(names) == 1 else f"all {len(names)} logs are empty",
        confidence="low",
        hint="see whether the program began, and where its output goes: `scontrol show job JOB`, `sacct -j JOB`",
    )


def examine_run(name: str, attempt: int | None = None, restart: int | None = None) -> Finding:
    """Diagnose the newest failure of a run, or how a given attempt, or restart of it, ended.

    A program that runs and has long done no step is a failure, too. RunError where nothing of it has ended yet.
    Without Slurm its word on the job is missing, and a note says so.
    """
    case = Case(folder.find(name))
    stalled = case.stalled() if attempt is None else None
    if stalled is not None:
        return stalled
    lost = _lost_job(case) if attempt is None else None
    if lost is not None:
        return lost
    wish = case.wish(since_resume=True) if attempt is None else None
    if wish is not None:
        return wish
    good: Finding | None = None
    for owner, index in case.ends():
        if attempt not in {None, owner.attempt} or restart not in {None, index}:
            continue
        found = case.examine(owner, index, named=attempt is not None)
        if found is None:
            continue
        if attempt is not None or not (found.failure_class in GOOD or case.was_overcome(owner, found)):
            return found
        good = good or found
    if good is not None:
        return good
    wish = case.wish() if attempt is None else None
    if wish is not None:
        return wish
    wanted = "" if attempt is None else f" attempt {attempt}" + ("" if restart is None else f" restart {restart}")
    case.refuse_unknown(attempt, restart)
    raise RunError(
        f"nothing of the run {case.run.record.name!r}{wanted} has ended yet",
        hint=f"`pretrainctl status {case.run.record.name}` says where it stands",
    )


def _lost_job(case: Case) -> Finding | None:
    """How the newest job was lost that ended without an attempt; None where one has begun since, and where a person
    cancelled a later job, or stopped the run."""
    if last_word.wish_of_run(case.state, case.events) is not None:
        return None
    lost = [known(event) for job, event in case.state.lost_jobs.items() if job in case.state.unclaimed]
    notes = case.notes
    try:
        fresh, cancelled = find_ended(case.state, case.jobs, lambda: reach(case.run))
    except (SlurmError, MissingError) as error:
        fresh, cancelled = [], []
        notes += (f"Slurm could not be asked about nodes: {error}",)
    newest = max((*lost, *fresh), key=lambda one: case.state.unclaimed.index(one.job_id), default=None)
    if newest is None or stopped_by(case.state, fresh, cancelled) is not None:
        return None
    job, log = case.jobs.get(newest.job_id), case.run.job_log(newest.job_id)
    said: list[str] = []
    with contextlib.suppress(OSError):
        said = [f"{log.name}: {line}" for line in tail(log, _JOB_LINES) if line.strip()]
    evidence = (*([f"Slurm: {job.state.text}"] if job is not None else []), *said)
    hint = (
        "" if newest.confidence == "high" else f"look at {log}, and whether {case.launch.python} is there on the node"
    )
    diagnosis = Diagnosis(
        newest.failure_class, newest.message, newest.nodes, evidence=evidence, confidence=newest.confidence, hint=hint
    )
    return replace(finding_of(diagnosis, case.launch.recovery), run=case.run.record.name, notes=notes)
