"""Jobs that end, or run on, without an attempt: status, reconcile, doctor and the node exclusion list agree on them."""

from __future__ import annotations

import getpass
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pretrainctl.records import codec, contract
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.run import AttemptRecord, RunRecord
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.pulse import Pulse
from pretrainctl.runs.state import fold
from pretrainctl.slurm.sinfo import NodeState, parse_sinfo
from pretrainctl.slurm.states import read_state
from pretrainctl.workflows import case as case_module
from pretrainctl.workflows import doctor, lost_jobs, reconcile, status
from pretrainctl.workflows.doctor import examine_run
from pretrainctl.workflows.exclusions import list_of
from pretrainctl.workflows.reconcile import reconcile as look

UID = 31001


class Cluster:
    """Stands where the Slurm client stands."""

    def __init__(self) -> None:
        self.known: dict[int, Job] = {}
        self.reasons = dict.fromkeys((f"node0{number}" for number in range(1, 5)), "none")
        self.cancelled: list[int] = []
        self.excluded: dict[int, tuple[str, ...]] = {}
        self.vanished: set[int] = set()

    def says(self, number: int, state: str, *nodes: str, host: str = "", code: int = 0, elapsed: float = 1.0) -> None:
        self.known[number] = Job(
            number,
            "a-1",
            read_state(state, UID),
            exit_code=code,
            nodes=nodes,
            batch_host=host,
            start=1.0 if nodes else None,
            elapsed=elapsed,
        )

    def jobs(self, ids: Sequence[int]) -> dict[int, Job]:
        return {number: self.known[number] for number in ids if number in self.known and number not in self.vanished}

    def queued(self, _name: str) -> list[Job]:
        return [job for job in self.known.values() if job.state.alive and job.job_id not in self.vanished]

    def node_states(self, names: Sequence[str]) -> dict[str, NodeState]:
        return {name: node for name, node in self._nodes().items() if name in names}

    def partition_nodes(self, partition: str = "") -> tuple[tuple[NodeState, ...], str]:
        return tuple(self._nodes().values()), partition or "production"

    def _nodes(self) -> dict[str, NodeState]:
        lines = (
            f"production*|{n}|{'idle' if r == 'none' else 'drained'}|(null)|{r}\n" for n, r in self.reasons.items()
        )
        return parse_sinfo("".join(lines))

    def cancel(self, ids: Sequence[int]) -> None:
        self.cancelled += ids
        for number in ids:
            self.says(number, f"CANCELLED by {UID}", *self.known[number].nodes, elapsed=2000.0)

    def exclude(self, job: int, nodes: Sequence[str], *, ours: object = (), held: bool = False) -> tuple[str, ...]:
        self.excluded[job] = tuple(nodes)
        return ()

    def submit(self, _script: Path, *, options: Sequence[str], **_: object) -> object:
        number = max(self.known, default=7) + 1
        self.says(number, "PENDING")
        excluded = [option.removeprefix("--exclude=") for option in options if option.startswith("--exclude=")]
        self.excluded[number] = tuple(excluded)
        return type("Submission", (), {"job_id": number, "messages": ()})()


@pytest.fixture
def slurm() -> Cluster:
    return Cluster()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config, slurm: Cluster) -> Path:
    """A run whose job 7 has just been submitted."""
    root = tmp_path / "runs"
    monkeypatch.setenv("PRETRAINCTL_RUNS", str(root))
    golden = pytestconfig.rootpath / "tests" / "golden" / "quickstart-on-sandbox" / "launch.json"
    (root / "a" / "bundle").mkdir(parents=True)
    (root / "a" / "bundle" / "launch.json").write_text(golden.read_text())
    (root / "a" / "bundle" / "job.sbatch").write_text(f"exec python -m pretrainctl attempt {root / 'a'}\n")
    (root / "a" / "attempts").mkdir()
    codec.write(
        root / "a" / "run.json",
        RunRecord("a", "a", "a-1", "sandbox", 0.0, getpass.getuser(), {}, {}, {}, slurm_cluster="here"),
    )
    reached = [(module, "reach") for module in (case_module, doctor, status, lost_jobs)]
    for module, name in (*reached, (reconcile, "reach_own")):
        monkeypatch.setattr(module, name, lambda _run: slurm)
    ledger.append(root / "a", "submitted", "submitted job 7", data={"job_id": 7})
    return root / "a"


def begin(path: Path, number: int, job: int, *, told: bool = True) -> None:
    folder = contract.attempt_dir(path, number)
    folder.mkdir(parents=True)
    record = AttemptRecord(number, job, 0, "node01", 1, ("node01", "node02"), 0.0)
    codec.write(folder / "attempt.json", record)
    if told:
        ledger.append(path, "claimed", "claimed", attempt=number, data={"job_id": job})


def phase() -> tuple[str, tuple[str, ...]]:
    (found,) = status.survey("a").runs
    return found.phase, found.warnings


def on_list(path: Path) -> dict[str, tuple[str, str]]:
    entries = list_of(RunFolder(path)).read()[0].values()
    return {entry.node: (entry.cause, entry.confidence) for entry in entries}


def test_a_job_that_lost_its_batch_host_before_an_attempt_is_ended_and_the_next_queued(
    path: Path, slurm: Cluster
) -> None:
    slurm.says(7, "RUNNING", "node04", host="node03", elapsed=60.0)
    (warning,) = phase()[1]
    assert warning.startswith("job 7 has lost its batch host node03 (before an attempt began)")
    said = look("a").outcomes[0].message
    assert slurm.cancelled == [7]
    assert said.startswith("cancelled job 7: job 7 has lost its batch host node03")
    assert "queued job 8" in said
    assert on_list(path) == {"node03": ("node_failure", "high")}
    assert slurm.excluded[8] == ("node03",)
    assert phase() == ("queued", ()), "our own cancel is no stop"
    assert look("a").outcomes[0].message == "job 8 is queued already"
    found = examine_run("a")
    assert (found.failure_class, found.nodes) == ("node_failure", ("node03",))


@pytest.mark.parametrize("elapsed", [899.0, 901.0])
@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize("state", ["RUNNING", "CONFIGURING"])
def test_a_job_that_begins_no_attempt_for_long_is_ended(
    path: Path, slurm: Cluster, elapsed: float, claimed: bool, state: str
) -> None:
    slurm.says(7, state, "node03", "node04", host="node03", elapsed=elapsed)
    if claimed:  # the record alone: its events may be still to come
        begin(path, 1, 7, told=False)
    lost = elapsed > 900 and not claimed and state == "RUNNING"
    assert len(phase()[1]) == lost
    look("a")
    assert slurm.cancelled == [7] * lost
    assert on_list(path) == ({"node03": ("boot_failure", "low")} if lost else {})


def test_a_cancel_that_slurm_did_not_take_is_given_again_and_told_once(path: Path, slurm: Cluster) -> None:
    slurm.says(7, "RUNNING", "node04", host="node03")
    slurm.cancel = slurm.cancelled.extend  # type: ignore[method-assign,assignment]
    for _ in range(2):
        look("a")
    assert slurm.cancelled == [7, 7]
    assert len([event for event in ledger.read_events(path) if event.kind == "job_lost"]) == 1


@pytest.mark.parametrize("told", [False, True])
def test_an_attempt_that_lost_its_batch_host_before_its_first_beats_is_ended(
    path: Path, slurm: Cluster, told: bool
) -> None:
    begin(path, 1, 7, told=told)
    slurm.says(7, "RUNNING", "node02", host="node01")
    assert "job 7 has lost its batch host node01" in phase()[1][0]
    assert look("a").outcomes[0].message == "cancelled job 7: its batch host node01 is gone"
    assert slurm.cancelled == [7]
    assert "queued job 8" in look("a").outcomes[0].message
    assert fold(ledger.read_events(path)).stopped is None


def test_a_requeued_job_is_not_judged_by_the_host_of_its_earlier_start(path: Path, slurm: Cluster) -> None:
    begin(path, 1, 7)
    slurm.says(7, "RUNNING", "node03", "node04", host="node03")
    assert phase()[1] == ()
    look("a")
    assert slurm.cancelled == []


def test_an_attempt_that_has_ended_and_then_lost_its_host_does_not_hold_its_nodes(path: Path, slurm: Cluster) -> None:
    begin(path, 1, 7)
    ledger.append(path, "attempt_ended", "done", attempt=1, data={"class": "checkpointed", "action": "hand_over"})
    slurm.says(7, "RUNNING", "node02", host="node01")
    assert "attempt 1 had ended" in phase()[1][0]
    look("a")
    assert slurm.cancelled == [7]


@pytest.mark.parametrize("by", [0, UID, 64030])
@pytest.mark.parametrize("chained", [False, True])
def test_a_prolog_that_failed_is_no_cancel(path: Path, slurm: Cluster, by: int, chained: bool) -> None:
    number = 7
    if chained:
        begin(path, 1, 7)
        ledger.append(path, "chained", "queued chained job 8", attempt=1, data={"job_id": 8})
        data = {"class": "node_failure", "action": "hand_over"}
        ledger.append(path, "attempt_ended", "lost node02", attempt=1, data=data)
        slurm.says(7, "COMPLETED", "node01", "node02")
        number = 8
    slurm.says(number, f"CANCELLED by {by}", "node03", "node04", elapsed=0.0)
    slurm.reasons["node03"] = "Prolog error"
    where, warnings = phase()
    assert where == "no_job"
    assert "the prolog failed on node03 (Slurm: Prolog error)" in warnings[0]
    for _ in range(2):
        found = examine_run("a")
        assert (found.failure_class, found.nodes, found.confidence) == ("boot_failure", ("node03",), "high")
        said = look("a").outcomes[0].message
    assert said == f"job {number + 1} is queued already"
    assert on_list(path) == {"node03": ("boot_failure", "high")}
    assert phase() == ("queued", ())


@pytest.mark.parametrize(
    ("nodes", "elapsed", "reason"),
    [
        ((), 0.0, "Prolog error"),  # in the queue
        (("node03", "node04"), 5.0, "none"),
        (("node03", "node04"), 5.0, "Kill task failed"),
        (("node03", "node04"), 4000.0, "Prolog error"),  # of another job, since
    ],
)
def test_a_cancel_is_a_stop(path: Path, slurm: Cluster, nodes: tuple[str, ...], elapsed: float, reason: str) -> None:
    slurm.says(7, f"CANCELLED by {UID}", *nodes, elapsed=elapsed)
    slurm.reasons["node03"] = reason
    assert phase()[0] == "stopped"
    assert examine_run("a").failure_class == "user_cancel"
    assert look("a").outcomes[0].message.startswith("stopped: job 7 was cancelled before it began")
    assert (phase()[0], examine_run("a").failure_class) == ("stopped", "user_cancel")
    assert on_list(path) == {}


def test_the_next_job_keeps_off_a_node_on_which_none_begins_and_three_in_a_row_fail(path: Path, slurm: Cluster) -> None:
    (path / "attempts" / "slurm-7.out").write_text("slurm_script: line 29: /opt/python: No such file or directory\n")
    slurm.says(7, "FAILED", "node01", "node02", code=127)
    assert phase()[0] == "no_job"
    assert "job 7 ended before its attempt began: exit status 127 on node01" in phase()[1][0]
    assert "exit status 127 on node01" in look("a").outcomes[0].message
    assert slurm.excluded[8] == ("node01",)
    assert on_list(path) == {"node01": ("boot_failure", "low")}
    slurm.says(8, "FAILED", "node02", "node03", code=126)
    look("a")
    assert slurm.excluded[9] == ("node[01-02]",)
    slurm.says(9, "FAILED", "node03", "node04", code=1)
    said = look("a").outcomes[0].message
    assert said.startswith("stopped: 3 jobs in a row were lost before their attempt began")
    assert "126 on node02" in said
    assert "attempts/slurm-*.out" in said
    assert "/opt/pretrainctl/bin/python" in said
    (found,) = status.survey("a").runs
    assert found.phase == "failed"
    told = examine_run("a")
    assert (told.failure_class, told.nodes, told.confidence) == ("boot_failure", ("node03",), "low")
    assert "slurm-9.out" in told.hint
    assert 9 not in slurm.cancelled
    assert max(slurm.known) == 9


def test_an_attempt_in_between_begins_the_count_anew(path: Path, slurm: Cluster) -> None:
    slurm.says(7, "FAILED", "node01", "node02", code=127)
    look("a")
    slurm.says(8, "FAILED", "node02", "node03", code=127)
    look("a")
    begin(path, 1, 9)
    ledger.append(path, "chained", "queued chained job 10", attempt=1, data={"job_id": 10})
    ledger.append(path, "attempt_ended", "x", attempt=1, data={"class": "node_failure", "action": "hand_over"})
    slurm.says(9, "COMPLETED", "node03", "node04")
    slurm.says(10, "FAILED", "node03", "node04", code=127)
    assert "queued job 11" in look("a").outcomes[0].message


def test_what_waits_is_kept_off_too(path: Path, slurm: Cluster) -> None:
    """Jobs that were queued ahead would follow one another onto the same node."""
    ledger.append(path, "submitted", "submitted job 8", data={"job_id": 8})
    slurm.says(7, "FAILED", "node01", "node02", code=127)
    slurm.says(8, "PENDING")
    assert "exit status 127 on node01" in look("a").outcomes[0].message
    assert slurm.excluded[8] == ("node01",)


def test_what_says_nothing_of_nodes_is_no_loss(path: Path, slurm: Cluster) -> None:
    slurm.says(7, "PREEMPTED", "node01", "node02")
    assert "queued job 8 (no attempt yet)" in look("a").outcomes[0].message
    assert on_list(path) == {}


@pytest.mark.parametrize("known", [True, False])
def test_jobs_whose_end_slurm_does_not_know_are_not_followed_without_end(
    path: Path, slurm: Cluster, known: bool
) -> None:
    for number in (7, 8, 9):
        if known:
            slurm.known[number] = Job(number, "a-1", StateMeaning("RUNNING", JobClass.UNKNOWN, alive=False))
        else:
            slurm.vanished.add(number)
        said = look("a").outcomes[0].message
        assert f"job {number} ended before its attempt began, and Slurm does not know how" in said
        assert examine_run("a").failure_class == "unknown"
    assert said.startswith("stopped: 3 jobs in a row")
    assert (max(slurm.known), on_list(path)) == (9, {})


def handed_over(path: Path, slurm: Cluster) -> None:
    """Attempt 1 has ended in job 7, which handed over to jobs 8 and 9."""
    begin(path, 1, 7)
    for number in (8, 9):
        ledger.append(path, "chained", f"queued chained job {number}", attempt=1, data={"job_id": number})
        slurm.says(number, "PENDING")
    data = {"class": "node_failure", "action": "hand_over"}
    ledger.append(path, "attempt_ended", "lost node02", attempt=1, data=data)
    slurm.says(7, "COMPLETED", "node01", "node02")


def test_a_scancel_of_all_chained_jobs_is_a_stop(path: Path, slurm: Cluster) -> None:
    handed_over(path, slurm)
    slurm.says(8, f"CANCELLED by {UID}", elapsed=0.0)
    assert look("a").outcomes[0].message == "job 9 is queued already"
    slurm.says(9, f"CANCELLED by {UID}", elapsed=0.0)
    assert phase()[0] == "stopped"
    assert examine_run("a").notes == ("besides, the run is stopped: job 9 was cancelled before it began",)
    for _ in range(2):
        said = look("a").outcomes[0].message
        assert said == "stopped: job 9 was cancelled before it began: nothing goes on until `resume`"
    assert (phase()[0], max(slurm.known)) == ("stopped", 9)


def test_a_cancel_before_a_loss_is_no_stop(path: Path, slurm: Cluster) -> None:
    handed_over(path, slurm)
    slurm.says(8, f"CANCELLED by {UID}", elapsed=0.0)
    slurm.says(9, "FAILED", "node03", "node04", code=127)
    assert (phase()[0], examine_run("a").failure_class) == ("no_job", "boot_failure")
    assert "queued job 10 (job 9 ended before" in look("a").outcomes[0].message


def prequeued(path: Path) -> None:
    """Two chained jobs, which are queued from outside."""
    file = path / "bundle" / "launch.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chain": "prequeued", "chained_jobs": 2}))


@pytest.mark.parametrize("outside", [False, True])
def test_what_a_person_cancelled_of_a_chain_is_not_wanted_back(path: Path, slurm: Cluster, outside: bool) -> None:
    if outside:
        prequeued(path)
    begin(path, 1, 7)
    slurm.says(7, "RUNNING", "node01", "node02", host="node01")
    for number in (8, 9):
        ledger.append(path, "submitted", f"submitted job {number}", data={"job_id": number})
        slurm.says(number, "PENDING")
    assert phase()[1] == ()
    assert look("a").outcomes[0].message == "running job 7"
    for number in (8, 9):
        slurm.says(number, f"CANCELLED by {UID}", elapsed=0.0)
    said = (
        "nothing goes on after job 7: the chained jobs 8, 9 were cancelled; `pretrainctl resume a` goes on when it has "
        "ended"
    )
    assert phase() == ("starting", (said,))
    assert look("a").outcomes[0].message == f"running job 7; {said}"
    assert max(slurm.known) == 9


@pytest.mark.parametrize("cancelled", [False, True])
def test_what_is_missing_of_a_chain_is_queued(path: Path, slurm: Cluster, cancelled: bool) -> None:
    prequeued(path)
    begin(path, 1, 7)
    if cancelled:  # one of those that wait
        for number in (8, 9):
            ledger.append(path, "submitted", f"submitted job {number}", data={"job_id": number})
            slurm.says(number, "PENDING")
        slurm.says(9, f"CANCELLED by {UID}", elapsed=0.0)
    slurm.says(7, "RUNNING", "node01", "node02", host="node01")
    assert look("a").outcomes[0].message == f"running job 7; queued {1 if cancelled else 2} more"
    assert (phase(), max(slurm.known)) == (("starting", ()), 10 if cancelled else 9)


def test_jobs_that_were_queued_ahead_onto_one_bad_node_are_one_loss(path: Path, slurm: Cluster) -> None:
    prequeued(path)
    for number in (8, 9):
        ledger.append(path, "submitted", f"submitted job {number}", data={"job_id": number})
    for number in (7, 8, 9):
        slurm.says(number, "FAILED", "node01", "node02", code=127)
    assert look("a").outcomes[0].message.startswith("queued job 10 (job 9 ended before its attempt began")
    assert slurm.excluded[10] == ("node01",)
    # Where they cannot keep off it, the third round is the last.
    for last in (12, 15):
        for number in range(last - 2, last + 1):
            slurm.says(number, "FAILED", "node01", "node02", code=127)
        said = look("a").outcomes[0].message
    assert said.startswith("stopped: 9 jobs in a row were lost before their attempt began: job 13 ended")


def test_three_hosts_that_jobs_queued_ahead_were_lost_on_are_too_many(path: Path, slurm: Cluster) -> None:
    for number in (8, 9):
        ledger.append(path, "submitted", f"submitted job {number}", data={"job_id": number})
    for number in (7, 8, 9):
        slurm.says(number, "FAILED", f"node0{number - 6}", "node04", code=127)
    assert look("a").outcomes[0].message.startswith("stopped: 3 jobs in a row were lost")


@pytest.mark.parametrize(("age", "ended"), [(0.0, False), (299.0, False), (301.0, False), (0.0, True)])
def test_an_attempt_that_is_heard_lives_though_slurm_took_its_host(
    path: Path, slurm: Cluster, age: float, ended: bool
) -> None:
    """Slurm's daemon died there, and nothing else."""
    begin(path, 1, 7)
    if ended:
        data = {"class": "checkpointed", "action": "hand_over"}
        ledger.append(path, "attempt_ended", "done", attempt=1, data=data)
    Pulse(path, 1, clock=lambda: 1.0).tick()
    pulse = contract.attempt_dir(path, 1) / "alive"
    os.utime(pulse, (time.time() - age,) * 2)
    slurm.says(7, "RUNNING", "node02", host="node01")
    lives = age < 300 and not ended
    assert ("attempt 1 is heard all the same" in phase()[1][0]) == lives
    said = look("a").outcomes[0].message
    assert slurm.cancelled == [7] * (not lives)
    assert ("attempt 1 is heard all the same" in said) == lives


@pytest.mark.parametrize("age", [100.0, 400.0])
def test_a_look_finds_that_a_host_which_was_lost_is_back(path: Path, slurm: Cluster, age: float) -> None:
    """Slurm did not take the cancel, and no witness is left. A cancel of this moment would not show yet."""
    begin(path, 1, 7)
    data = {"attempt": 1, "job_id": 7, "node": "node01", "how": "silent"}
    lost = ledger.append(path, "batch_host_lost", "lost", data=data)
    codec.write(path / "events" / f"{lost.sequence:06d}.json", replace(lost, time=lost.time - age))
    Pulse(path, 1, clock=lambda: 1.0).tick()
    slurm.says(7, "RUNNING", "node01", "node02", host="node01")
    for _ in range(2):
        assert look("a").outcomes[0].message == "running job 7"
    kinds = [event.kind for event in ledger.read_events(path, 0)]
    assert kinds.count("batch_host_back") == (age > 300)


@pytest.mark.parametrize("jobs", [3, 4, 5, 10])
def test_the_job_that_runs_is_seen_however_many_wait(path: Path, slurm: Cluster, jobs: int) -> None:
    begin(path, 1, 7)
    slurm.says(7, "RUNNING", "node01", "node02", host="node01", elapsed=50.0)
    for number in range(8, 8 + jobs):
        ledger.append(path, "chained", f"queued chained job {number}", attempt=1, data={"job_id": number})
        slurm.says(number, "PENDING")
    (found,) = status.survey("a").runs
    assert (found.phase, found.job_id, found.queued_jobs) == ("starting", 7, jobs)
    ledger.append(path, "stop_requested", "stop asked for")
    assert status.survey("a").runs[0].phase == "stopping"


def test_a_person_s_stop_after_a_lost_job_is_what_doctor_tells(path: Path, slurm: Cluster) -> None:
    slurm.says(7, "FAILED", "node01", "node02", code=127)
    assert examine_run("a").failure_class == "boot_failure"
    ledger.append(path, "cancel_requested", "cancelled by command")
    assert (examine_run("a").failure_class, phase()[0]) == ("user_cancel", "stopped")
