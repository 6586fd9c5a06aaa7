"""One run as doctor sees it: its ledger, Slurm's word, and what each of its ends was."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pretrainctl.errors import MissingError, RunError, SlurmError
from pretrainctl.metrics.continuity import check_learning_rate
from pretrainctl.metrics.series import read_series
from pretrainctl.records import contract
from pretrainctl.records.contract import Request
from pretrainctl.records.job import Job, JobClass
from pretrainctl.records.run import AttemptRecord, Diagnosis, Event
from pretrainctl.recovery.diagnosis import FailureClass, diagnose
from pretrainctl.recovery.log_diagnosis import diagnose_log
from pretrainctl.recovery.placement import Placement
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold
from pretrainctl.runs.story import events_of, what_the_witness_did, what_was_decided, what_was_done
from pretrainctl.slurm.states import ending_signal
from pretrainctl.units import show_duration
from pretrainctl.workflows import last_word
from pretrainctl.workflows.finding import Finding, as_decided, finding_of
from pretrainctl.workflows.look_back import evidence_of, trained_before
from pretrainctl.workflows.reach import reach
from pretrainctl.workflows.read_logs import read_logs

__all__ = ["GOOD", "Case"]

GOOD = {FailureClass.FINISHED.value, FailureClass.CHECKPOINTED.value}
"""Classes of an end that was meant."""
_VAGUE = {FailureClass.UNKNOWN.value, FailureClass.APPLICATION_ERROR.value, FailureClass.HANG.value}
_BY_REQUEST = {FailureClass.STOPPED.value, FailureClass.FINISHED.value, FailureClass.FENCED.value}
"""Ends that a cancel of the job, which came with them or after them, does not explain."""
_STALLED_AFTER = 1800.0
"""Seconds without a step that may be a checkpoint, an evaluation or a start."""
_STALLED_STEPS = 50
"""Nor is it a stall before so many steps could have been done."""
_STEPS_COMPARED = 100
"""Steps on each side of a resume over which the learning rate is compared."""
_SAYS_NOTHING = {JobClass.FINISHED, JobClass.FAILED}
"""A job that ran to the end of its script says nothing about the training."""


class Case:
    """A run, its ledger, and what Slurm says of its jobs."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.events = ledger.read_events(run.path)
        self.state = fold(self.events)
        self.lost = {known.attempt: known.lost_host for known in self.state.attempts if known.lost_host}
        self.seen = {*self.lost, *(event.data.get("of") for event in self.events)}
        self.launch = run.launch()
        self.notes: tuple[str, ...] = (str(self.state.went_back),) if self.state.went_back is not None else ()
        self.jobs: dict[int, Job] = {}
        try:
            found = reach(run).jobs(self.state.jobs) if self.state.jobs else {}
            # Job ids count from 1 on each cluster: the name, which is unique to the run, says whose job it is.
            self.jobs = {number: job for number, job in found.items() if job.name == run.record.job_name}
        except (SlurmError, MissingError) as error:
            self.notes += (f"Slurm could not be asked, so its word on the jobs is missing: {error}",)

    def ends(self) -> Iterator[tuple[AttemptRecord, int | None]]:
        """Each start of the program that is over, newest first; None for an attempt that never started it."""
        for owner in reversed(self.run.attempts()):
            told = self._of(owner.attempt)
            restarts: list[int | None] = list(reversed(self.run.restarts(owner.attempt)))
            over = {event.data.get("restart") for event in told if event.kind == "restart_ended"}
            ended = any(event.kind in {"attempt_ended", "refused"} for event in told) or owner.attempt in self.seen
            over_by_now = ended or self._is_cancelled(owner) or self._was_followed(owner)
            alive = not over_by_now and self._alive(owner.job_id)
            for index in restarts or [None]:
                if index in over or not alive or index != (restarts or [None])[0]:
                    yield owner, index

    def was_overcome(self, owner: AttemptRecord, found: Finding) -> bool:
        """Whether it ended because a person wished it, and `resume` went on since: that is no failure."""
        wished = found.failure_class in {FailureClass.STOPPED.value, FailureClass.USER_CANCEL.value}
        return wished and owner.attempt <= self.state.resumed_after

    def examine(self, owner: AttemptRecord, restart: int | None, *, named: bool = False) -> Finding | None:
        """How it ended; None for an attempt that only saw that there was nothing to do, unless it was `named`."""
        told = self._of(owner.attempt)
        cancel = self._cancel_of(owner.attempt)
        cut = last_word.cut_short(cancel, told, restart)
        if restart is None:
            diagnosis = self._without_start(owner, told) or (
                last_word.what_it_saw(owner.attempt, told) if named else None
            )
        else:
            sound = last_word.before(cancel, told)
            diagnosis = self._as_recorded(self._fresh(owner, restart, sound), restart, sound)
        if diagnosis is None:
            return None
        wish, sure = self._wish_for(owner.attempt, restart)
        last = restart == next(reversed(self.run.restarts(owner.attempt)), None)
        if cut and cancel is not None and last:
            wish, sure = last_word.word_of(cancel), True
        if wish is not None:
            sure = sure and diagnosis.failure_class not in {*last_word.CANCELS, *_BY_REQUEST}
            cut = cut or not any(event.kind == "attempt_ended" for event in told)
            diagnosis = last_word.as_wished(diagnosis, wish, cut=cut, sure=sure)
        if diagnosis.failure_class == FailureClass.STOPPED.value:
            asked = [event.message for event in self.events if event.kind == "stop_requested"]
            facts = (*(f"ledger: {text}" for text in asked[-1:]), *diagnosis.evidence)
            diagnosis = replace(diagnosis, evidence=facts)
        found = finding_of(diagnosis, self.launch.recovery, run=self.run.record.name, job_id=owner.job_id)
        return replace(
            as_decided(found, what_was_decided(told, restart)),
            attempt=owner.attempt,
            restart=restart,
            done=(
                *what_was_done(told, restart),
                *(what_the_witness_did(self.events, owner.attempt) if last and owner.attempt in self.lost else ()),
            ),
            notes=(
                *self.notes,
                *last_word.stopped_besides(diagnosis, wish),
                *self._ending(owner),
                *self._breaks(owner.attempt, restart),
            ),
        )

    def wish(self, *, since_resume: bool = False) -> Finding | None:
        """That a person stopped it, where nothing of it has run, or nothing `since_resume`: the ledger, or Slurm's word
        on its jobs, knows no more."""
        newest = self.state.owner
        if newest is not None and (newest.attempt > self.state.resumed_after if since_resume else not newest.ended):
            return None
        told = last_word.wish_of_run(self.state, self.events)
        if told is None and self.state.stopped is None and since_resume:
            told = last_word.cancelled_in_queue(self.state, self.jobs)
        if told is None:
            return None
        return replace(finding_of(told, self.launch.recovery, run=self.run.record.name), notes=self.notes)

    def _wish_for(self, attempt: int, restart: int | None) -> tuple[Diagnosis | None, bool]:
        """The wish that ended an attempt with this start of the program, or let nothing come after it; and whether
        Slurm said so of its own job."""
        restarts = self.run.restarts(attempt)
        if restarts and restart != restarts[-1]:
            return None, False
        found = last_word.word_on(attempt, self.events)
        trained = [owner.attempt for owner in self.run.attempts() if self.run.restarts(owner.attempt)]
        newest = trained[-1] if trained else self.state.owner.attempt if self.state.owner is not None else None
        if attempt == newest and attempt > self.state.resumed_after:
            wish = found or last_word.wish_of_run(self.state, self.events)
            if wish is None and self.state.stopped is None:
                wish = last_word.cancelled_in_queue(self.state, self.jobs)
            return wish, found is not None
        return found, found is not None

    def _cancel_of(self, attempt: int) -> Event | None:
        """`pretrainctl cancel`, where it was given while this attempt had the run."""
        return last_word.cancel_of(attempt, self.state, self.events)

    def _is_cancelled(self, owner: AttemptRecord) -> bool:
        """Whether it is the attempt whose job `pretrainctl cancel` took."""
        return self._cancel_of(owner.attempt) is not None

    def _was_followed(self, owner: AttemptRecord) -> bool:
        """Whether a later attempt had the run: that is claimed only where this one's job has ended."""
        return any(known.attempt > owner.attempt and not known.refused for known in self.state.attempts)

    def _ending(self, owner: AttemptRecord) -> list[str]:
        """That the cancelled job has not ended yet."""
        job = self.jobs.get(owner.job_id)
        if job is None or job.state.alive is False or not self._is_cancelled(owner):
            return []
        return [f"job {job.job_id} is still {job.state.text}: Slurm's own word on its end is missing"]

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
        if owner is None or job is None or not job.is_running or job.is_suspended or not restarts:
            return None
        if self._is_cancelled(owner):
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
            finding_of(found, self.launch.recovery, run=self.run.record.name, job_id=owner.job_id),
            message=found.message if found.failure_class == FailureClass.HANG.value else f"{found.message}; {hang}",
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
        says = self._word_of_slurm(owner) if last else None
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
            trained=trained_before(self.run, owner.attempt, restart, told),
            other_logs=[self.run.job_log(owner.job_id)] if last else [],
            log_bytes=None,
            target_steps=self.launch.target_steps,
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
            or (kind in {*_VAGUE, FailureClass.CHECKPOINTED.value} and fresh.failure_class not in _VAGUE)
        ):
            return fresh
        if fresh.failure_class in last_word.CANCELS and kind not in _BY_REQUEST:
            return replace(fresh, message=f"{fresh.message}; before that: {ended[-1].message}")
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
        if any(event.kind == "refused" for event in told):
            return None
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

    def _word_of_slurm(self, owner: AttemptRecord) -> JobClass | None:
        """How the attempt's job ended, None where it has not or Slurm does not know it."""
        if any(other.job_id == owner.job_id and other.attempt > owner.attempt for other in self.run.attempts()):
            return JobClass.REQUEUED  # the same job began anew: Slurm tells only how that goes
        job = self.jobs.get(owner.job_id)
        return job.state.job_class if job is not None and job.state.alive is False else None

    def _of(self, attempt: int) -> list[Event]:
        return [event for event in self.events if event.attempt == attempt]

    def _alive(self, job_id: int) -> bool:
        """Whether the job may still run; where Slurm does not say, it may."""
        return job_id not in self.jobs or self.jobs[job_id].state.alive is not False


def _which(what: str, numbers: Sequence[int]) -> str:
    return f"its {what} are {numbers[0]} to {numbers[-1]}" if numbers else f"it has no {what} yet"
