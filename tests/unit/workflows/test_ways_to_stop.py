"""Every way to stop a run: doctor, status and the ledger's last word say the same of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pretrainctl.errors import RunError
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import End, Failure
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.run import AttemptRecord, RunRecord
from pretrainctl.runs import ledger
from pretrainctl.workflows import case, reconcile, status
from pretrainctl.workflows.doctor import Finding, examine_run
from pretrainctl.workflows.reconcile import reconcile as look
from pretrainctl.workflows.status import RunStatus, survey

NODES = ("node01", "node02")
CANCELLED = (f"CANCELLED by {os.getuid()}", JobClass.USER_CANCEL)
DONE = ("COMPLETED", JobClass.FINISHED)
SAVED = "saved at step 5 and left (terminated)"
ASKED = "asked for a save and the end: terminated"


class Queue:
    """Stands where the Slurm client stands."""

    def __init__(self, known: dict[int, Job]) -> None:
        self.known = known

    def jobs(self, ids: Sequence[int]) -> dict[int, Job]:
        return {number: self.known[number] for number in ids if number in self.known}

    def queued(self, _name: str) -> list[Job]:
        return [job for job in self.known.values() if job.is_running or job.is_waiting]

    def cancel(self, _jobs: Sequence[int]) -> None:
        return None


class Run:
    """A run as attempts, people and Slurm leave it."""

    def __init__(self, root: Path, launch: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = root / "a"
        (self.path / "bundle").mkdir(parents=True)
        codec.write(self.path / "run.json", RunRecord("a", "a", "a-1", "sandbox", 0.0, "u", {}, {}, {}))
        (self.path / "bundle" / "launch.json").write_text(json.dumps(launch))
        self.slurm = Queue({})
        for module, name in ((case, "reach"), (status, "reach"), (reconcile, "reach_own")):
            monkeypatch.setattr(module, name, lambda _run: self.slurm)

    def says(self, number: int, text: str, kind: JobClass, *, alive: bool = False) -> None:
        self.slurm.known[number] = Job(number, "a-1", StateMeaning(text, kind, alive=alive))

    def event(self, kind, message: str, attempt: int = 0, **data: object) -> None:
        ledger.append(self.path, kind, message, attempt=attempt, data=data)

    def queue(self, job: int) -> None:
        self.event("submitted", f"submitted job {job}", job_id=job)
        self.says(job, "PENDING", JobClass.PENDING, alive=True)

    def attempt(self, number: int, job: int) -> None:
        folder = contract.attempt_dir(self.path, number)
        folder.mkdir(parents=True)
        codec.write(folder / "attempt.json", AttemptRecord(number, job, 0, "node01", 1, NODES, 0.0))
        self.event("claimed", f"job {job}", number, job_id=job)
        self.says(job, "RUNNING", JobClass.RUNNING, alive=True)

    def train(self, attempt: int = 1, index: int = 0, end: End | None = None, failure: Failure | None = None) -> None:
        folder = contract.restart_dir(self.path, attempt, index)
        folder.mkdir(parents=True)
        (folder / "training.log").write_text("step 5\nsrun: error: node01: task 0: Terminated\n")
        line = '{"kind":"step","step":5,"tokens":1,"loss":1.0,"grad_norm":1.0,"lr":1.0,"seconds":1.0,"time":1.0}'
        (folder / "metrics.jsonl").write_text(f"{line}\n")
        for name, record in (("end.json", end), ("failure.json", failure)):
            if record is not None:
                codec.write(folder / name, record)
        self.event("restart_started", f"restart {index}", attempt, restart=index, nodes=list(NODES))

    def ended(self, kind: str, message: str, action: str, attempt: int = 1, index: int = 0, **data: object) -> None:
        self.event("restart_ended", message, attempt, restart=index, **{"class": kind}, **data)
        self.event("decided", f"{action}: {message}", attempt, action=action)
        self.leave(kind, message, action, attempt)

    def leave(self, kind: str, message: str, action: str, attempt: int = 1) -> None:
        self.event("attempt_ended", message, attempt, action=action, **{"class": kind})

    def looks_back(self, attempt: int, of: int, kind: str, message: str) -> None:
        """A chained job starts, finds how the attempt before ended, and stops the run for it."""
        self.event("looked_back", message, attempt, **{"class": kind}, of=of)
        self.event("stopped", f"{message}; nothing goes on until `resume`", attempt, **{"class": kind})
        self.leave(kind, f"{message}; nothing goes on until `resume`", "stop", attempt)

    def told(self) -> tuple[Finding, RunStatus]:
        return examine_run("a"), survey("a").runs[0]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Run:
    golden = pytestconfig.rootpath / "tests" / "golden" / "quickstart-on-sandbox" / "launch.json"
    monkeypatch.setenv("PRETRAINCTL_RUNS", str(tmp_path / "runs"))
    made = Run(tmp_path / "runs", json.loads(golden.read_text()), monkeypatch)
    made.queue(7)
    made.attempt(1, 7)
    return made


def saved(reason: str = "terminated") -> End:
    return End("checkpointed", 5, 5, "global_step5", reason, 2.0)


def leaves_in_grace_time(run: Run) -> None:
    """The ranks save on the SIGTERM of a cancel, and the attempt knows no more than that."""
    run.train(end=saved())
    run.event("save_asked", ASKED, 1, reason="terminated")
    run.ended("checkpointed", SAVED, "hand_over", evidence=["end record: checkpointed at step 5"])


def dies_in_grace_time(run: Run) -> None:
    run.train(failure=Failure(0, "node01", 143, 2.0))
    run.event("save_asked", ASKED, 1, reason="terminated")
    run.ended("unknown", "rank 0 on node01 was ended by SIGTERM after step 5; by whom is not known", "hand_over")


def raises_in_grace_time(run: Run) -> None:
    run.train(failure=Failure(1, "node02", 1, 2.0))
    run.ended("application_error", "rank 1 on node02 ended with status 1 after step 5", "hand_over")


def is_cut(run: Run) -> None:
    """Slurm kills the attempt before it could write anything."""
    run.train()


ENDS = [leaves_in_grace_time, dies_in_grace_time, raises_in_grace_time, is_cut]


@pytest.mark.parametrize("ends", ENDS)
def test_scancel_of_all_jobs(run: Run, ends: Callable[[Run], None]) -> None:
    run.queue(8)
    ends(run)
    run.says(7, *CANCELLED)
    run.says(8, *CANCELLED)
    found, where = run.told()
    assert (found.failure_class, found.action, where.phase) == ("user_cancel", "stop", "stopped")
    assert (found.nodes, found.ranks) == ((), ())
    assert "the user cancelled the job" in found.message
    assert found.hint == "`pretrainctl resume a` goes on"
    look("a")
    found, where = run.told()
    assert (found.failure_class, where.phase) == ("user_cancel", "stopped")
    assert "cancelled" in where.last_event
    assert where.last_event.endswith("nothing goes on until `resume`")


@pytest.mark.parametrize("ends", ENDS)
def test_scancel_of_the_only_job_and_a_look_from_outside(run: Run, ends: Callable[[Run], None]) -> None:
    ends(run)
    run.says(7, *CANCELLED)
    look("a")
    run.slurm.known.clear()  # Slurm forgets a job; the ledger does not
    found, where = run.told()
    assert (found.failure_class, where.phase) == ("user_cancel", "stopped")
    assert where.last_event == "the user cancelled the job; nothing goes on until `resume`"


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("forgotten", [False, True])
def test_scancel_of_the_running_job_only(run: Run, ends: Callable[[Run], None], forgotten: bool) -> None:
    run.queue(8)
    ends(run)
    run.says(7, *CANCELLED)
    run.attempt(2, 8)
    run.looks_back(2, 1, "user_cancel", "the user cancelled the job")
    run.says(8, *DONE)
    if forgotten:
        run.slurm.known.clear()
    found, where = run.told()
    assert (found.failure_class, found.action, found.attempt, where.phase) == ("user_cancel", "stop", 1, "stopped")
    assert "the user cancelled the job" in found.message
    assert "the user cancelled the job" in where.last_event
    second = examine_run("a", 2)
    assert (second.failure_class, second.action, second.attempt) == ("user_cancel", "stop", 2)
    assert second.message.startswith("no training was started: the user cancelled the job")


def test_scancel_in_the_queue(run: Run, tmp_path: Path) -> None:
    """Before any attempt, by Slurm's word first and by the ledger's then."""
    for folder in (run.path / "attempts", run.path / "events"):
        for path in sorted(folder.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    run.slurm.known.clear()
    run.queue(7)
    with pytest.raises(RunError, match="has ended yet"):
        examine_run("a")
    run.says(7, *CANCELLED)
    for _ in range(2):
        found, where = run.told()
        assert (found.failure_class, found.action, where.phase) == ("user_cancel", "stop", "stopped")
        assert "job 7 was cancelled before it began" in found.message
        look("a")
    assert "job 7 was cancelled before it began" in run.told()[1].last_event


def test_an_administrator_s_cancel(run: Run) -> None:
    leaves_in_grace_time(run)
    run.says(7, "CANCELLED by 0", JobClass.ADMIN_CANCEL)
    found, where = run.told()
    assert (found.failure_class, found.action, where.phase) == ("admin_cancel", "stop", "stopped")
    assert "ask the site why" in found.hint


@pytest.mark.parametrize("state", [CANCELLED, DONE, None])
def test_cancel_by_command(run: Run, state: tuple[str, JobClass] | None) -> None:
    run.event("cancel_requested", "cancelled by command")
    run.train(end=saved())
    run.event("save_asked", ASKED, 1, reason="terminated")
    where = run.told()[1]
    assert (where.phase, where.last_event) == ("stopping", f"cancelled by command; {ASKED}")
    run.ended("checkpointed", f"{SAVED}; cancelled by command", "stop")
    run.says(7, *state) if state else run.slurm.known.clear()
    found, where = run.told()
    assert (found.failure_class, found.action, where.phase) == ("user_cancel", "stop", "stopped")
    assert "cancelled by command" in where.last_event
    assert found.evidence[0] == "ledger: cancelled by command" or state is CANCELLED


def test_cancel_by_command_that_cut_the_attempt(run: Run) -> None:
    is_cut(run)
    run.event("cancel_requested", "cancelled by command")
    run.event("save_asked", ASKED, 1, reason="terminated")
    run.says(7, *CANCELLED)
    found, where = run.told()
    assert (found.failure_class, where.phase) == ("user_cancel", "stopped")
    assert where.last_event == f"cancelled by command; {ASKED}"


@pytest.mark.parametrize("kind", ["stopped", "checkpointed"])
def test_stop_with_a_save(run: Run, kind: str) -> None:
    """The attempt may see the end of the save and not the request."""
    run.event("stop_requested", "stop asked for: save, then end")
    run.train(end=saved("stop" if kind == "stopped" else "signal"))
    run.ended(kind, "saved at step 5 and stopped, as was asked; stop asked for: save, then end", "stop")
    run.says(7, *DONE)
    found, where = run.told()
    assert (found.failure_class, found.action, where.phase) == ("stopped", "stop", "stopped")
    assert "stop asked for: save, then end" in where.last_event
    assert "ledger: stop asked for: save, then end" in found.evidence


@pytest.mark.parametrize(("command", "kind"), [("stop_requested", "stopped"), ("cancel_requested", "user_cancel")])
def test_a_stop_between_two_attempts(run: Run, command, kind: str) -> None:
    run.queue(8)
    run.train(end=saved("time_limit"))
    run.event("save_asked", "asked for a save and the end: time_limit", 1, reason="time_limit")
    run.ended("time_limit", "saved at step 5 before the time limit", "hand_over")
    run.says(7, *DONE)
    assert run.told()[0].failure_class == "time_limit"
    run.event(command, "a person's word")
    run.says(8, *CANCELLED)
    found, where = run.told()
    assert (found.failure_class, found.action, where.phase) == (kind, "stop", "stopped")
    assert found.message == "saved at step 5 before the time limit; a person's word"
    run.attempt(2, 8)
    run.leave("user_cancel", "stopped before: a person's word", "stop", 2)
    run.says(8, *DONE)
    assert run.told()[0].failure_class == kind
    assert "a person's word" in examine_run("a", 2).message


def test_a_stop_after_a_resume_is_newer_than_what_was_before(run: Run) -> None:
    run.train(failure=Failure(1, "node02", 1, 2.0))
    run.ended("application_error", "rank 1 on node02 ended with status 1 after step 5", "stop")
    run.says(7, *DONE)
    run.event("resume_requested", "resume asked for")
    run.queue(8)
    assert run.told()[0].failure_class == "application_error"
    run.says(8, *CANCELLED)
    found, where = run.told()
    assert (found.failure_class, found.message, where.phase) == (
        "user_cancel",
        "job 8 was cancelled before it began",
        "stopped",
    )
    run.event("cancel_requested", "cancelled by command")
    assert (run.told()[0].failure_class, run.told()[0].message) == ("user_cancel", "cancelled by command")
    assert examine_run("a", 1).failure_class == "application_error"


def test_a_failure_before_a_cancel_is_still_told(run: Run) -> None:
    run.train(failure=Failure(1, "node02", 1, 2.0))
    run.event("restart_ended", "the GPU's memory ran out", 1, restart=0, **{"class": "gpu_oom"})
    run.says(7, *CANCELLED)
    found, where = run.told()
    assert (found.failure_class, where.phase) == ("user_cancel", "stopped")
    assert found.message == "the user cancelled the job; before that: the GPU's memory ran out"


def test_a_failure_and_then_a_cancel_of_what_was_queued(run: Run) -> None:
    run.train(failure=Failure(1, "node02", 1, 2.0))
    run.ended("gpu_oom", "the GPU's memory ran out", "hand_over")
    run.says(7, *DONE)
    run.event("cancel_requested", "cancelled by command")
    found, _ = run.told()
    assert (found.failure_class, found.notes) == ("gpu_oom", ("besides, the run is stopped: cancelled by command",))


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize(
    ("kind", "state", "job"),
    [
        ("time_limit", "TIMEOUT", JobClass.TIME_LIMIT),
        ("preempted", "PREEMPTED", JobClass.PREEMPTED),
    ],
)
def test_the_time_limit_and_a_preemption_are_no_stop(
    run: Run, kind: str, state: str, job: JobClass, asked: bool
) -> None:
    """Whether the attempt was told, or only its ranks."""
    run.queue(8)
    run.train(end=saved(kind if asked else "terminated"))
    if asked:
        run.ended(kind, "saved at step 5 before it", "hand_over")
    else:
        run.ended("checkpointed", SAVED, "hand_over")
    run.says(7, state, job)
    found, where = run.told()
    assert (found.failure_class, found.action, where.phase) == (kind, "hand_over", "queued")
    assert where.warnings == ()


def test_a_preempted_job_that_began_anew_and_was_cancelled_then(run: Run) -> None:
    """The same job number: what Slurm says of it is of the second attempt."""
    run.train(end=saved())
    run.ended("preempted", "saved at step 5 before the nodes were taken", "hand_over")
    run.attempt(2, 7)
    run.train(2)
    run.says(7, *CANCELLED)
    assert (examine_run("a").failure_class, examine_run("a").attempt) == ("user_cancel", 2)
    assert examine_run("a", 1).failure_class == "preempted"


def test_an_attempt_that_had_no_claim_says_so(run: Run) -> None:
    run.train()
    run.attempt(2, 8)
    run.event("refused", "attempt 1 owns the run: its job 7 is alive", 2)
    found = examine_run("a", 2)
    assert (found.failure_class, found.action) == ("fenced", "stop")
    assert found.message == "no training was started: attempt 1 owns the run: its job 7 is alive"
    with pytest.raises(RunError, match="attempt 1 has ended yet"):
        examine_run("a", 1)


@pytest.mark.parametrize("ends", ENDS[:2])
def test_a_stop_that_was_resumed_from_is_no_failure_of_a_run_that_finished(
    run: Run, ends: Callable[[Run], None]
) -> None:
    ends(run)
    run.says(7, *CANCELLED)
    look("a")
    run.event("resume_requested", "resume asked for")
    run.queue(9)
    run.attempt(2, 9)
    run.train(2, end=End("reached", 5, 5, "global_step5", "", 3.0))
    run.ended("finished", "the target was reached at step 5", "finish", 2)
    run.event("finished", "the target was reached at step 5", 2)
    run.says(9, *DONE)
    found, where = run.told()
    assert (found.failure_class, found.attempt, where.phase) == ("finished", 2, "finished")
    assert examine_run("a", 1).failure_class == "user_cancel", "of the attempt itself it is the truth"
