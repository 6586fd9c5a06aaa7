"""Doctor: why a run, or a program that left only logs, ended: the class, where, which lines say so, what to do."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pretrainctl.errors import MissingError, RunError, SlurmError
from pretrainctl.metrics.continuity import check_learning_rate
from pretrainctl.metrics.series import read_series
from pretrainctl.records import contract
from pretrainctl.records.contract import Request
from pretrainctl.records.job import Job, JobClass
from pretrainctl.records.launch import RecoveryRule
from pretrainctl.records.run import AttemptRecord, Diagnosis, Event
from pretrainctl.recovery.decision import course_of, hint_of
from pretrainctl.recovery.diagnosis import FailureClass, diagnose, diagnose_log
from pretrainctl.recovery.placement import Placement
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold
from pretrainctl.runs.story import events_of, what_was_done
from pretrainctl.slurm import nodes as node_names
from pretrainctl.slurm.states import ending_signal
from pretrainctl.units import show_duration
from pretrainctl.workflows.look_back import evidence_of
from pretrainctl.workflows.reach import reach
from pretrainctl.workflows.read_logs import placement_in, read_logs
from pretrainctl.workflows.take_logs import take_logs

__all__ = ["Finding", "examine_logs", "examine_run"]

_GOOD = {FailureClass.FINISHED.value, FailureClass.CHECKPOINTED.value}
_VAGUE = {FailureClass.UNKNOWN.value, FailureClass.APPLICATION_ERROR.value, FailureClass.HANG.value}
_CANCELLED_LOOKS_LIKE = {FailureClass.CHECKPOINTED.value, FailureClass.UNKNOWN.value}
"""How an attempt ends that `pretrainctl cancel` took the job of, as far as it could see itself."""
_STALLED_AFTER = 1800.0
"""Seconds without a step that may be a checkpoint, an evaluation or a start."""
_STALLED_STEPS = 50
"""Nor is it a stall before so many steps could have been done."""
_STEPS_COMPARED = 100
"""Steps on each side of a resume over which the learning rate is compared."""
_SAYS_NOTHING = {JobClass.FINISHED, JobClass.FAILED}
"""A job that ran to the end of its script says nothing about the training."""


@dataclass(frozen=True)
class Finding:
    """What doctor says. `action` is the course of its class (`recovery.policies`), `hint` what a person can do.

    `attempt`, `restart` and `done`, what pretrainctl did about it, are those of a run; `restart` is None where the
    program was never started. `notes` say what could not be looked at, and what else is wrong.
    """

    failure_class: str
    message: str
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    evidence: tuple[str, ...]
    confidence: str
    action: str
    hint: str
    run: str = ""
    attempt: int | None = None
    restart: int | None = None
    done: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


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
        placement = placement_in(list(logs))
        if nodes:
            placement = replace(placement, nodes=node_names.expand(nodes), guessed=False)
        if ranks_per_node is not None:
            placement = replace(placement, ranks_per_node=ranks_per_node)
        return _finding(diagnose_log(read_logs(list(logs), names=logs), placement))


def examine_run(name: str, attempt: int | None = None, restart: int | None = None) -> Finding:
    """Diagnose the newest failure of a run, or how a given attempt, or restart of it, ended.

    A program that runs and has long done no step is a failure, too. RunError where nothing of it has ended yet.
    Without Slurm its word on the job is missing, and a note says so.
    """
    case = _Case(folder.find(name))
    stalled = case.stalled() if attempt is None else None
    if stalled is not None:
        return stalled
    good: Finding | None = None
    for owner, index in case.ends():
        if attempt not in {None, owner.attempt} or restart not in {None, index}:
            continue
        found = case.examine(owner, index)
        if found is None:
            continue
        if attempt is not None or found.failure_class not in _GOOD:
            return found
        good = good or found
    if good is not None:
        return good
    wanted = "" if attempt is None else f" attempt {attempt}" + ("" if restart is None else f" restart {restart}")
    case.refuse_unknown(attempt, restart)
    raise RunError(
        f"nothing of the run {case.run.record.name!r}{wanted} has ended yet",
        hint=f"`pretrainctl status {case.run.record.name}` says where it stands",
    )


class _Case:
    """A run, its ledger, and what Slurm says of its jobs."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.events = ledger.read_events(run.path)
        self.state = fold(self.events)
        self.lost = {known.attempt: known.lost_host for known in self.state.attempts if known.lost_host}
        self.launch = run.launch()
        self.notes: tuple[str, ...] = ()
        self.jobs: dict[int, Job] = {}
        try:
            found = reach(run).jobs(self.state.jobs) if self.state.jobs else {}
            # Job ids count from 1 on each cluster: the name, which is unique to the run, says whose job it is.
            self.jobs = {number: job for number, job in found.items() if job.name == run.record.job_name}
        except (SlurmError, MissingError) as error:
            self.notes = (f"Slurm could not be asked, so its word on the jobs is missing: {error}",)

    def ends(self) -> Iterator[tuple[AttemptRecord, int | None]]:
        """Each start of the program that is over, newest first; None for an attempt that never started it."""
        for owner in reversed(self.run.attempts()):
            told = self._of(owner.attempt)
            if any(event.kind == "refused" for event in told):
                continue
            restarts: list[int | None] = list(reversed(self.run.restarts(owner.attempt)))
            over = {event.data.get("restart") for event in told if event.kind == "restart_ended"}
            ended = owner.attempt in self.lost or any(event.kind == "attempt_ended" for event in told)
            alive = not ended and self._alive(owner.job_id)
            for index in restarts or [None]:
                if index in over or not alive or index != (restarts or [None])[0]:
                    yield owner, index

    def examine(self, owner: AttemptRecord, restart: int | None) -> Finding | None:
        """How it ended; None for an attempt that only saw that there was nothing to do."""
        told = self._of(owner.attempt)
        if restart is None:
            diagnosis = self._without_start(owner, told)
        else:
            diagnosis = self._as_recorded(self._fresh(owner, restart, told), restart, told)
        if diagnosis is None:
            return None
        if diagnosis.failure_class in _CANCELLED_LOOKS_LIKE and self.state.cancelled and self.state.owner is not None:
            last = self.state.owner.attempt == owner.attempt
            wish = f"{diagnosis.message}; {self.state.stopped}"
            diagnosis = (
                replace(diagnosis, failure_class=FailureClass.USER_CANCEL.value, message=wish) if last else diagnosis
            )
        return replace(
            _finding(diagnosis, self.launch.recovery),
            run=self.run.record.name,
            attempt=owner.attempt,
            restart=restart,
            done=what_was_done(told, restart),
            notes=(*self.notes, *self._breaks(owner.attempt, restart)),
        )

    def refuse_unknown(self, attempt: int | None, restart: int | None) -> None:
        """RunError for an attempt, or a restart of it, that never was."""
        name = self.run.record.name
        attempts = [owner.attempt for owner in self.run.attempts()]
        if attempt is not None and attempt not in attempts:
            raise RunError(f"the run {name!r} has no attempt {attempt}", hint=_which("attempts", attempts))
        if attempt is not None and restart is not None and restart not in self.run.restarts(attempt):
            raise RunError(
                f"attempt {attempt} of the run {name!r} has no restart {restart}",
                hint=_which("restarts", self.run.restarts(attempt)),
            )

    def stalled(self) -> Finding | None:
        """Why the program that runs now does no more steps, None where none runs or it may be only slow."""
        owner = self.run.attempts()[-1] if self.run.attempts() else None
        job = self.jobs.get(owner.job_id) if owner is not None else None
        restarts = self.run.restarts(owner.attempt) if owner is not None else []
        if owner is None or job is None or not job.is_running or not restarts:
            return None
        told = self._of(owner.attempt)
        if any(event.kind == "restart_ended" and event.data.get("restart") == restarts[-1] for event in told):
            return None
        series = read_series([contract.restart_dir(self.run.path, owner.attempt, restarts[-1]) / "metrics.jsonl"])
        last = series.starts[-1] if series.starts else None
        if last is None or last.last_time is None:
            return None
        silent, usual = time.time() - last.last_time, statistics.median(series.seconds)
        if silent < max(_STALLED_AFTER, _STALLED_STEPS * usual):
            return None
        hang = (
            f"job {job.job_id} runs, but step {last.last_step} was its last, {show_duration(silent)} ago; "
            f"a step takes {usual:.1f} s"
        )
        found = self._fresh(owner, restarts[-1], told, hang)
        return replace(
            _finding(found, self.launch.recovery),
            message=found.message if found.failure_class == FailureClass.HANG.value else f"{found.message}; {hang}",
            run=self.run.record.name,
            attempt=owner.attempt,
            restart=restarts[-1],
            notes=self.notes,
        )

    def _breaks(self, attempt: int, restart: int | None) -> list[str]:
        """Whether the learning rate went on over the resume with which this start of the program began."""
        starts = [path for number, index, path in self.run.restart_dirs() if (number, index) <= (attempt, restart or 0)]
        if restart is None or len(starts) < 2:
            return []
        before, after = (
            [(sample.step, sample.lr) for sample in read_series([path / "metrics.jsonl"]).samples()]
            for path in starts[-2:]
        )
        found = check_learning_rate(before[-_STEPS_COMPARED:], after[:_STEPS_COMPARED])
        jumps = [one for one in self._of(attempt) if one.kind == "loss_jump" and one.data.get("restart") == restart]
        return [*(one.message for one in jumps), *([found.message] if found is not None else [])]

    def _fresh(self, owner: AttemptRecord, restart: int, told: Sequence[Event], hang: str = "") -> Diagnosis:
        """From all that is in the folder, the whole log among it."""
        between = events_of(told, restart)
        last = restart == self.run.restarts(owner.attempt)[-1]
        job = self.jobs.get(owner.job_id) if last else None
        started = [event for event in told if event.kind == "restart_started" and event.data.get("restart") == restart]
        nodes = tuple(started[0].data.get("nodes", ())) if started else ()
        asked = [event for event in between if event.kind == "save_asked"]
        says = job.state.job_class if job is not None and job.state.alive is False else None
        lost = self.lost.get(owner.attempt, {}) if last else {}
        evidence = evidence_of(
            contract.restart_dir(self.run.path, owner.attempt, restart),
            job_class=None if lost or says in _SAYS_NOTHING else says,
            job_state=job.state.text if job is not None else "",
            dead_nodes={
                str(event.data["node"]): str(event.data.get("how", ""))
                for event in between
                if event.kind == "node_dead" and event.data.get("node") in nodes
            }
            | dict(lost),
            request=Request("save_and_exit", owner.attempt, str(asked[-1].data.get("reason", "")), 0, asked[-1].time)
            if asked
            else None,
            placement=Placement(nodes, self.launch.srun.tasks_per_node),
            other_logs=[self.run.job_log(owner.job_id)] if last else [],
            log_bytes=None,
        )
        return diagnose(replace(evidence, hang=hang or evidence.hang))

    def _as_recorded(self, fresh: Diagnosis, restart: int, told: Sequence[Event]) -> Diagnosis:
        """The attempt saw more than its folder keeps, so its own word stands unless the whole log knows better."""
        ended = [event for event in told if event.kind == "restart_ended" and event.data.get("restart") == restart]
        if not ended:
            return fresh
        data = ended[-1].data
        kind = str(data.get("class", ""))
        if (
            kind == fresh.failure_class
            or kind not in set(FailureClass)
            or (kind in _VAGUE and fresh.failure_class not in _VAGUE)
        ):
            return fresh
        return replace(
            fresh,
            failure_class=kind,
            message=ended[-1].message,
            nodes=tuple(data.get("nodes", ())),
            ranks=tuple(data.get("ranks", ())),
            evidence=tuple(data.get("evidence", ())),
            confidence=data.get("confidence", "medium"),
            lasting=False,
            hint=str(data.get("hint", "")),
        )

    def _without_start(self, owner: AttemptRecord, told: Sequence[Event]) -> Diagnosis | None:
        """An attempt that ended before it started the program: by its own word, else by Slurm's and the job's log."""
        ended = [event for event in told if event.kind == "attempt_ended"]
        past = {event.data.get("class") for event in told if event.kind == "looked_back"}
        if ended:
            kind = str(ended[-1].data.get("class", ""))
            if kind in past or kind not in set(FailureClass) or ended[-1].data.get("action") in {"finish", "wait"}:
                return None
            if any(
                event.attempt == 0 and event.kind in {"stop_requested", "cancel_requested"} for event in self.events
            ):
                return None
            return Diagnosis(kind, ended[-1].message, evidence=(f"attempt {owner.attempt}: {ended[-1].message}",))
        job = self.jobs.get(owner.job_id)
        log = self.run.job_log(owner.job_id)
        told_by_log = diagnose_log(read_logs([log]), Placement(owner.nodes))
        if job is None or job.state.alive is not False or job.state.job_class in _SAYS_NOTHING:
            return told_by_log
        from_slurm = diagnose(
            replace(
                evidence_of(log.parent, job_class=job.state.job_class, job_state=job.state.text),
                job_signal=ending_signal(job.exit_code, job.exit_signal),
            )
        )
        return told_by_log if from_slurm.failure_class in _VAGUE else from_slurm

    def _of(self, attempt: int) -> list[Event]:
        return [event for event in self.events if event.attempt == attempt]

    def _alive(self, job_id: int) -> bool:
        """Whether the job may still run; where Slurm does not say, it may."""
        return job_id not in self.jobs or self.jobs[job_id].state.alive is not False


def _which(what: str, numbers: Sequence[int]) -> str:
    return f"its {what} are {numbers[0]} to {numbers[-1]}" if numbers else f"it has no {what} yet"


def _finding(diagnosis: Diagnosis, rule: RecoveryRule | None = None) -> Finding:
    return Finding(
        failure_class=diagnosis.failure_class,
        message=diagnosis.message,
        nodes=diagnosis.nodes,
        ranks=diagnosis.ranks,
        evidence=diagnosis.evidence,
        confidence=diagnosis.confidence,
        action=course_of(diagnosis, rule).value,
        hint=hint_of(diagnosis),
    )
