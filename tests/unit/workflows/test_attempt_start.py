"""The start of an attempt: the chained job comes first, and a job that cannot take the run does not end the chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.errors import SlurmError
from pretrainctl.records import codec, contract
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.run import AttemptRecord, RunRecord
from pretrainctl.runs import ledger
from pretrainctl.runs.claim import claim
from pretrainctl.runs.fence import raise_fence
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows.attempt import chain as chains
from pretrainctl.workflows.attempt import run as attempts
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.patience import Patience
from pretrainctl.workflows.attempt.signals import Signals

ME = AttemptRecord(0, 7, 0, "node01", 1, ("node01",), 0.0)
LAUNCH = SimpleNamespace(chain="inside", chained_jobs=1, tops_up=False, job_name="a-1")


def replaced(**changes: object) -> SimpleNamespace:
    """The launch record with other values."""
    return SimpleNamespace(**{**vars(LAUNCH), **changes})


class Queue:
    """Stands where the Slurm client stands: jobs in the queue, comments, and what was asked of it."""

    def __init__(self) -> None:
        self.jobs_queued: list[int] = []
        self.comments: dict[int, str] = {}
        self.running: set[int] = set()
        self.away = False
        self.refuses = ""

    def _ask(self) -> None:
        if self.away:
            raise SlurmError("unable to contact slurm controller", stderr="Unable to contact slurm controller")

    def queued(self, name: str) -> list[Job]:
        self._ask()
        pending = StateMeaning("PENDING", JobClass.PENDING, alive=True)
        return [Job(number, name, pending) for number in self.jobs_queued]

    def submit(self, _script: Path, **_options: object) -> SimpleNamespace:
        self._ask()
        if self.refuses:
            raise SlurmError(f"Slurm refused the job: {self.refuses}", stderr=self.refuses)
        self.jobs_queued.append(max([7, *self.jobs_queued]) + 1)
        return SimpleNamespace(job_id=self.jobs_queued[-1])

    def jobs(self, ids: list[int]) -> dict[int, Job]:
        self._ask()
        running = StateMeaning("RUNNING", JobClass.RUNNING, alive=True)
        return {number: Job(number, "a-1", running) for number in ids if number in self.running}

    def comment(self, job: int) -> str:
        self._ask()
        return self.comments.get(job, "")

    def update(self, job: int, field: str, value: str) -> None:
        self._ask()
        assert field == "Comment"
        self.comments[job] = value

    def cancel(self, jobs: list[int]) -> None:
        self._ask()
        self.jobs_queued = [job for job in self.jobs_queued if job not in jobs]


class World:
    """A run folder, a queue, and time that passes only in pauses; `then` is called in each pause."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.queue = Queue()
        self.signals = Signals()
        self.now = 0.0
        self.then: Callable[[float], None] = lambda _now: None
        self.carried = False
        (folder / "attempts").mkdir(parents=True)
        codec.write(folder / "run.json", RunRecord("a", "a", "a-1", "sandbox", 0.0, "u", {}, {}, {}))
        monkeypatch.setattr(RunFolder, "launch", lambda _run: LAUNCH)
        monkeypatch.setattr(Signals, "install", lambda _signals: None)
        monkeypatch.setattr(attempts, "Signals", lambda: self.signals)
        monkeypatch.setattr(attempts, "Slurm", lambda: self.queue)
        monkeypatch.setattr(attempts, "this_job", lambda: ME)
        monkeypatch.setattr(attempts, "Patience", self.patience)
        monkeypatch.setattr(attempts, "_carry", self.carry)

    def patience(self, signals: Signals) -> Patience:
        return Patience(signals, idle=self.idle, clock=lambda: self.now)

    def idle(self, seconds: float) -> None:
        self.now += seconds
        self.then(self.now)

    def carry(self, _attempt: Attempt, *_: object) -> tuple[attempts.Decision, str]:
        self.carried = True
        return attempts.Decision(attempts.Action.HAND_OVER, "time limit"), "time_limit"

    def go(self) -> int:
        return attempts.run_attempt(self.folder)

    def events(self, kind: str) -> list[str]:
        return [event.message for event in ledger.read_events(self.folder) if event.kind == kind]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path / "a", monkeypatch)


def full(*_arguments: object, **_more: object) -> None:
    raise OSError(28, "No space left on device")


def test_the_chained_job_is_queued_before_the_claim_and_told_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def claim_now(run_dir: Path, job: AttemptRecord) -> AttemptRecord:
        assert world.queue.jobs_queued == [8]
        return claim(run_dir, job)

    monkeypatch.setattr(attempts, "claim", claim_now)
    assert world.go() == 0
    assert world.carried
    assert [event.kind for event in ledger.read_events(world.folder)][:2] == ["claimed", "chained"]


def test_the_job_s_log_says_each_thing_once(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def carry(attempt: Attempt, *_: object) -> tuple[attempts.Decision, str]:
        attempt.event("restart_ended", "the loss is NaN", {"class": "divergence", "restart": 0})
        attempt.event("decided", "stop: the loss is NaN; it would be again")
        return attempts.Decision(attempts.Action.STOP, "the loss is NaN; it would be again"), "divergence"

    monkeypatch.setattr(attempts, "_carry", carry)
    assert world.go() == 1
    assert capsys.readouterr().err.splitlines() == [
        "pretrainctl: queued chained job 8",
        "pretrainctl: attempt 1: job 7 on 1 nodes, batch host node01",
        "pretrainctl: attempt 1: the loss is NaN",
        "pretrainctl: attempt 1: stop: it would be again",
        "pretrainctl: attempt 1: cancelled queued jobs 8",
    ]
    for kind in ("chained", "restart_ended", "decided", "stopped", "attempt_ended"):
        assert len(world.events(kind)) == 1, "the ledger keeps all of them"


def test_a_run_that_is_over_queues_nothing(world: World) -> None:
    ledger.append(world.folder, "stop_requested", "stop")
    world.carry = None  # type: ignore[method-assign,assignment]
    assert attempts._is_over(RunFolder(world.folder))


def test_a_claim_that_fails_for_a_while_is_made_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "claim", lambda *_: full() if world.now < 60 else claim(world.folder, ME))
    assert world.go() == 0
    assert 60 <= world.now < 120
    assert world.carried


def test_a_job_that_cannot_take_the_run_leaves_a_chained_job_and_a_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "claim", full)
    world.queue.comments[8] = "of the site"
    assert world.go() == 0
    assert not world.carried
    assert world.queue.jobs_queued == [8]
    assert world.queue.comments[8] == "of the site pretrainctl: 1 job in a row could not take the run"
    assert world.now >= 900 + 120, "no tight loop of jobs"


@pytest.mark.parametrize(("before", "goes_on"), [(1, True), (6, True), (7, False)])
def test_jobs_that_cannot_take_the_run_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch, before: int, goes_on: bool
) -> None:
    monkeypatch.setattr(attempts, "claim", full)
    world.queue.comments[7] = f"pretrainctl: {before} jobs in a row could not take the run"
    assert world.go() == (0 if goes_on else 1)
    assert world.queue.jobs_queued == ([8] if goes_on else [])
    if goes_on:
        assert world.queue.comments[8] == f"pretrainctl: {before + 1} jobs in a row could not take the run"


def test_a_controller_that_comes_back_is_waited_for(world: World) -> None:
    claim(world.folder, replace(ME, job_id=5))
    world.queue.away = True

    def then(now: float) -> None:
        world.queue.away = now < 300

    world.then = then
    assert world.go() == 0
    assert world.carried
    assert not world.events("refused")
    assert world.events("chained") == ["queued chained job 8"]


def test_an_owner_that_stays_unknown_leaves_a_chained_job(world: World) -> None:
    claim(world.folder, replace(ME, job_id=5))

    def jobs(_ids: list[int]) -> dict[int, Job]:
        raise SlurmError("unable to contact slurm controller")

    world.queue.jobs = jobs  # type: ignore[method-assign]
    assert world.go() == 0
    assert not world.carried
    assert "cannot be known" in world.events("refused")[0]
    assert world.queue.jobs_queued == [8]
    assert "1 job in a row" in world.queue.comments[8]


def test_a_rival_that_lives_has_its_own_chain(world: World) -> None:
    claim(world.folder, replace(ME, job_id=5))
    world.queue.running = {5}
    assert world.go() == 0
    assert not world.carried
    assert world.events("refused") == ["attempt 1 owns the run: its job 5 is alive"]
    assert world.queue.comments == {}
    assert world.now == 0


def test_a_signal_ends_the_wait_and_the_chained_job_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "claim", full)

    def then(now: float) -> None:
        world.signals.terminated = now >= 10

    world.then = then
    assert world.go() == 0
    assert world.now < 11
    assert world.queue.jobs_queued == [8]


def test_what_slurm_refuses_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "claim", lambda *_: claim(world.folder, ME))
    world.queue.refuses = "sbatch: error: QOSMaxSubmitJobPerUserLimit"
    assert world.go() == 0
    assert world.now == 0
    assert "QOSMaxSubmitJobPerUserLimit" in world.events("chain_refused")[0]


def test_two_jobs_wait_where_the_run_has_three_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunFolder, "launch", lambda _run: replaced(chained_jobs=2))
    assert world.go() == 0
    assert world.queue.jobs_queued == [8, 9]
    assert world.events("chained") == ["queued chained job 8", "queued chained job 9"]


def test_one_job_that_waits_is_enough_to_go_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunFolder, "launch", lambda _run: replaced(chained_jobs=2))
    world.queue.jobs_queued, world.queue.refuses = [9], "sbatch: error: QOSMaxSubmitJobPerUserLimit"
    assert world.go() == 0
    assert world.now == 0
    first, last = world.events("chain_refused")
    assert first.startswith("queued is 9, and no more: Slurm refused the job: ")
    assert last == first, "asked for once more before the job hands over"


def test_where_nobody_knows_whether_sbatch_works_inside_it_is_tried(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "launch", lambda _run: replaced(chain="prequeued", chained_jobs=2, tops_up=True))
    world.queue.jobs_queued = [8, 9]
    assert world.go() == 0
    assert world.queue.jobs_queued == [8, 9]
    assert world.events("chained") == []
    world.queue.jobs_queued = [9]
    assert world.go() == 0
    assert world.queue.jobs_queued == [9, 10]


def test_where_sbatch_is_known_not_to_work_inside_it_is_not_tried(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "launch", lambda _run: replaced(chain="prequeued", chained_jobs=2))
    assert world.go() == 0
    assert world.queue.jobs_queued == []


@pytest.mark.parametrize("chain", ["inside", "prequeued"])
def test_a_hand_over_to_nobody_is_told(world: World, monkeypatch: pytest.MonkeyPatch, chain: str) -> None:
    def carry(*_: object) -> tuple[attempts.Decision, str]:
        world.queue.jobs_queued = []  # a person cancels what waits
        return attempts.Decision(attempts.Action.HAND_OVER, "lost node02"), "node_failure"

    world.queue.jobs_queued = [8]
    monkeypatch.setattr(RunFolder, "launch", lambda _run: replaced(chain=chain))
    assert world.go() == 0
    assert world.events("note") == []
    monkeypatch.setattr(attempts, "_carry", carry)
    assert world.go() == 0
    assert world.queue.jobs_queued == [], "a person does not want it back"
    assert world.events("note") == [
        "no job of this run is queued: nothing goes on by itself; see `pretrainctl status a`"
    ]


def test_a_run_that_is_cancelled_misses_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def carry(*_: object) -> tuple[attempts.Decision, str]:
        world.queue.jobs_queued = []
        ledger.append(world.folder, "cancel_requested", "cancelled")
        return attempts.Decision(attempts.Action.HAND_OVER, "told to end"), "checkpointed"

    monkeypatch.setattr(attempts, "_carry", carry)
    world.go()
    assert world.events("note") == []


def test_an_event_that_cannot_be_written_comes_before_the_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    record = claim(world.folder, ME)
    attempt = Attempt(RunFolder(world.folder), LAUNCH, record, world.queue, world.signals)  # type: ignore[arg-type]
    append = ledger.append
    monkeypatch.setattr(ledger, "append", full)
    attempt.event("note", "one")
    with pytest.raises(OSError, match="No space"):
        attempt.write_events()
    monkeypatch.setattr(ledger, "append", append)
    attempt.event("note", "two")
    assert world.events("note") == ["one", "two"]


def broken(*_arguments: object, **_more: object) -> None:
    raise TypeError("unhashable type: 'list'")


def test_a_fault_of_ours_while_it_carries_the_run_is_written_down_and_handed_over(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attempts, "_carry", broken)
    assert world.go() == 0
    (told,) = world.events("attempt_ended")
    assert told == "this attempt failed: a fault of pretrainctl itself: TypeError: unhashable type: 'list'"
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert world.queue.jobs_queued == [8]
    assert world.queue.comments[8] == "pretrainctl: 1 job in a row could not take the run"
    assert world.now >= 120, "no tight loop of jobs"


@pytest.mark.parametrize("place", ["_carry", "claim", "fold"])
def test_faults_of_ours_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr(attempts, place, broken)
    world.queue.comments[7] = "pretrainctl: 7 jobs in a row could not take the run"
    if place == "fold":
        monkeypatch.setattr(attempts, "_carry", lambda *_: attempts.fold(()))
    assert world.go() == 1
    assert world.queue.jobs_queued == []


def test_an_attempt_that_trained_counts_by_its_progress(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def carry(attempt: Attempt, *_: object) -> None:
        contract.restart_dir(world.folder, attempt.number, 0).mkdir()
        broken()

    monkeypatch.setattr(attempts, "_carry", carry)
    assert world.go() == 0
    assert world.now == 0
    assert world.queue.comments == {}


def test_a_fault_of_ours_before_the_chained_job_does_not_end_the_chain(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attempts, "fold", broken)
    assert world.go() == 0
    assert world.queue.jobs_queued == [8]
    assert "TypeError" in capsys.readouterr().err


def test_a_chained_job_that_a_fault_of_ours_prevents_is_a_note(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "avoid_at_submit", broken)
    assert world.go() == 0
    assert world.carried
    assert world.events("chain_refused")[0] == (
        "no chained job: a fault of pretrainctl itself: TypeError: unhashable type: 'list'"
    )
    assert "nothing goes on by itself" in world.events("note")[0]


@pytest.mark.parametrize("action", list(attempts.Action))
def test_an_attempt_that_another_has_followed_settles_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, action: attempts.Action
) -> None:
    def carry(attempt: Attempt, *_: object) -> tuple[attempts.Decision, str]:
        raise_fence(world.folder, attempt.number + 1, 0)
        return attempts.Decision(action, "it hangs"), "hang"

    contract.control_dir(world.folder).mkdir()
    monkeypatch.setattr(attempts, "_carry", carry)
    assert world.go() == 0
    assert world.queue.jobs_queued == [8]
    assert world.events("attempt_ended") == ["attempt 2 has the run"]
    assert world.events("stopped") == world.events("finished") == []


def test_an_end_that_cannot_be_written_leaves_the_chained_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def carry(*_: object) -> tuple[attempts.Decision, str]:
        monkeypatch.setattr(ledger, "append", full)
        return attempts.Decision(attempts.Action.FINISH, "the target was reached"), "finished"

    monkeypatch.setattr(attempts, "_carry", carry)
    assert world.go() == 1
    assert world.queue.jobs_queued == [8]
