"""Why a run ended, by its folder, with Slurm and without; and why a program ended, by its logs alone."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pretrainctl.cli.main import main
from pretrainctl.errors import InputError, RunError, SlurmError
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import End, Failure
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.progress import Hang
from pretrainctl.records.run import AttemptRecord, RunRecord
from pretrainctl.recovery.policies import POLICIES
from pretrainctl.runs import ledger
from pretrainctl.workflows import case
from pretrainctl.workflows.doctor import examine_logs, examine_run
from pretrainctl.workflows.finding import fill_names
from pretrainctl.workflows.metrics import summarize_run

NODES = ("node01", "node02")
OOM = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.00 GiB."
RESET = "[rank0]: RuntimeError: Connection reset by peer"


class Slurm:
    """Knows the jobs that a test gives it; None: it does not answer."""

    def __init__(self, known: dict[int, Job] | None) -> None:
        self.known = known

    def jobs(self, ids: Sequence[int]) -> dict[int, Job]:
        if self.known is None:
            raise SlurmError("unable to contact slurm controller")
        return {number: self.known[number] for number in ids if number in self.known}


class Run:
    """A run folder as attempts leave it."""

    def __init__(self, root: Path, launch: dict[str, object]) -> None:
        self.path = root / "a"
        (self.path / "bundle").mkdir(parents=True)
        codec.write(self.path / "run.json", RunRecord("a", "a", "a-1", "sandbox", 0.0, "u", {}, {}, {}))
        (self.path / "bundle" / "launch.json").write_text(json.dumps(launch))

    def event(self, kind, message: str, attempt: int = 1, **data: object) -> None:
        ledger.append(self.path, kind, message, attempt=attempt, data=data)

    def attempt(self, number: int, job: int) -> None:
        folder = contract.attempt_dir(self.path, number)
        folder.mkdir(parents=True)
        codec.write(folder / "attempt.json", AttemptRecord(number, job, 0, "node01", 1, NODES, 0.0))
        ledger.append(self.path, "submitted", f"job {job}", data={"job_id": job})
        self.event("claimed", f"job {job}", number, job_id=job)

    def restart(
        self,
        attempt: int,
        index: int,
        *lines: str,
        steps: int = 5,
        failure: Failure | None = None,
        end: End | None = None,
    ) -> Path:
        folder = contract.restart_dir(self.path, attempt, index)
        folder.mkdir(parents=True)
        (folder / "training.log").write_text("".join(f"{line}\n" for line in lines))
        (folder / "metrics.jsonl").write_text(
            "".join(
                f'{{"kind":"step","step":{step},"tokens":1,"loss":1.0,"grad_norm":1.0,"lr":1.0,"seconds":1.0,"time":1.0}}\n'
                for step in range(1, steps + 1)
            )
        )
        if failure is not None:
            codec.write(folder / "failure.json", failure)
        if end is not None:
            codec.write(folder / "end.json", end)
        self.event("restart_started", f"restart {index}", attempt, restart=index, nodes=list(NODES))
        return folder

    def ended(self, attempt: int, index: int, kind: str, message: str, **data: object) -> None:
        self.event("restart_ended", message, attempt, restart=index, **{"class": kind}, **data)

    def leave(self, attempt: int, action: str, kind: str, message: str) -> None:
        self.event("attempt_ended", message, attempt, action=action, **{"class": kind})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Run:
    golden = pytestconfig.rootpath / "tests" / "golden" / "quickstart-on-sandbox" / "launch.json"
    monkeypatch.setenv("PRETRAINCTL_RUNS", str(tmp_path / "runs"))
    made = Run(tmp_path / "runs", json.loads(golden.read_text()))
    monkeypatch.setattr(case, "reach", lambda _run: Slurm({}))
    return made


@pytest.fixture
def slurm_says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def say(*jobs: tuple[int, str, JobClass], alive: bool = False, name: str = "a-1", away: bool = False) -> None:
        known = {number: Job(number, name, StateMeaning(text, kind, alive=alive)) for number, text, kind in jobs}
        monkeypatch.setattr(case, "reach", lambda _run: Slurm(None if away else known))

    return say


def died(status: int = 1, rank: int = 1) -> Failure:
    return Failure(rank, "node02", status, 1.0)


def test_the_root_cause_with_its_place_and_what_was_done(run: Run) -> None:
    run.attempt(1, 7)
    folder = run.restart(1, 0, "step 5 | loss 1.0", RESET, OOM, failure=died(rank=0))
    run.ended(1, 0, "gpu_oom", "the GPU's memory ran out")
    run.event("decided", "restart_here: the GPU's memory ran out", action="restart_here")
    run.event("checkpoint_gate", "resume from global_step4")
    run.restart(1, 1, "fine", end=End("reached", 10, 10, None, "", 2.0))
    run.ended(1, 1, "finished", "the target was reached at step 10")
    run.leave(1, "finish", "finished", "the target was reached at step 10")
    found = examine_run("a")
    assert (found.failure_class, found.attempt, found.restart) == ("gpu_oom", 1, 0)
    assert (found.ranks, found.nodes) == ((1,), ("node02",)), "by the log, and by where the rank lay"
    assert f"log: {folder}/training.log:3: {OOM}" in found.evidence
    assert any("(a consequence)" in line and ":2: " in line for line in found.evidence)
    assert found.done == ("restart_here: the GPU's memory ran out", "resume from global_step4", "restart 1")
    assert (found.action, found.confidence) == ("restart_once", "high")
    assert examine_run("a", 1).failure_class == "finished", "the newest of that attempt"
    assert examine_run("a", 1, 0).failure_class == "gpu_oom"


def test_a_run_that_was_stopped_says_so_and_not_the_usual_course(run: Run) -> None:
    run.attempt(1, 7)
    for index in (0, 1):
        run.restart(1, index, "KeyError: 'labels'", steps=0, failure=died())
        run.ended(1, index, "application_error", "the program failed before its first step: KeyError: 'labels'")
        action = "stop" if index else "restart_here"
        run.event("decided", f"{action}: why", action=action)
    run.leave(1, "stop", "application_error", "the same error twice in a row")
    found = examine_run("a")
    assert (found.failure_class, found.restart, found.action) == ("application_error", 1, "stop")
    assert found.hint.endswith("it was stopped: `pretrainctl resume a` goes on")
    first = examine_run("a", 1, 0)
    assert (first.action, "resume" in first.hint) == ("restart_once", False)


def test_a_run_without_a_failure(run: Run) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, end=End("reached", 10, 10, None, "", 2.0))
    run.ended(1, 0, "finished", "the target was reached at step 10")
    run.leave(1, "finish", "finished", "the target was reached at step 10")
    assert (examine_run("a").failure_class, examine_run("a").action) == ("finished", "finish")


def test_what_never_was_has_not_ended(run: Run) -> None:
    with pytest.raises(RunError, match="has no attempt 9999") as caught:
        examine_run("a", 9999)
    assert caught.value.hint == "it has no attempts yet"
    run.attempt(1, 7)
    run.restart(1, 0, OOM)
    run.ended(1, 0, "gpu_oom", "the GPU's memory ran out")
    with pytest.raises(RunError, match="the run 'a' has no attempt 9999") as caught:
        examine_run("a", 9999)
    assert caught.value.hint == "its attempts are 1 to 1"
    with pytest.raises(RunError, match="has no attempt 4"):
        examine_run("a", 4, 1)
    with pytest.raises(RunError, match="attempt 1 of the run 'a' has no restart 3"):
        examine_run("a", 1, 3)


def test_what_trains_is_not_judged(run: Run, slurm_says, monkeypatch) -> None:
    monkeypatch.setattr(case.time, "time", lambda: 2.0)
    run.attempt(1, 7)
    run.restart(1, 0, OOM)
    slurm_says((7, "RUNNING", JobClass.RUNNING), alive=True)
    with pytest.raises(RunError, match="nothing of the run 'a' has ended yet"):
        examine_run("a")
    slurm_says((7, "NODE_FAIL", JobClass.NODE_FAILURE))
    assert examine_run("a").failure_class == "node_failure"


@pytest.mark.parametrize(
    ("state", "kind", "expected"),
    [
        ("CANCELLED by 1000", JobClass.USER_CANCEL, "user_cancel"),
        ("CANCELLED by 0", JobClass.ADMIN_CANCEL, "admin_cancel"),
        ("TIMEOUT", JobClass.TIME_LIMIT, "time_limit"),
        ("OUT_OF_MEMORY", JobClass.HOST_OOM, "host_oom"),
        ("PREEMPTED", JobClass.PREEMPTED, "preempted"),
        ("BOOT_FAIL", JobClass.BOOT_FAILURE, "boot_failure"),
    ],
)
def test_slurm_s_word_on_an_attempt_that_left_none(run: Run, slurm_says, state: str, kind: JobClass, expected) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, "step 5")
    slurm_says((7, state, kind))
    found = examine_run("a")
    assert found.failure_class == expected
    assert any(state in line for line in found.evidence)
    slurm_says((7, state, kind), name="another's")
    with pytest.raises(RunError):
        examine_run("a")


def test_without_slurm_the_folder_tells_what_it_can(run: Run, slurm_says) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, OOM, failure=died())
    run.ended(1, 0, "application_error", "rank 1 on node02 ended with status 1 after step 5")
    run.leave(1, "hand_over", "application_error", "x")
    slurm_says(away=True)
    found = examine_run("a")
    assert found.failure_class == "gpu_oom", "the whole log knows better than the attempt did"
    assert "unable to contact" in found.notes[0]


def test_a_dead_node_is_known_from_the_ledger(run: Run) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, RESET)
    run.event("node_dead", "node node02 is dead: silent", node="node02", how="silent")
    run.event("node_dead", "node node09 is dead: silent", node="node09", how="silent")
    run.ended(1, 0, "node_failure", "lost node02 (silent)", nodes=["node02"])
    run.leave(1, "hand_over", "node_failure", "lost node02 (silent)")
    found = examine_run("a")
    assert (found.failure_class, found.nodes) == ("node_failure", ("node02",))
    assert "node node02: silent" in found.evidence
    assert found.done[0] == "node node02 is dead: silent"


def test_a_cancel_is_known_from_the_ledger_before_slurm_has_ended_the_job(run: Run, slurm_says, monkeypatch) -> None:
    monkeypatch.setattr(case.time, "time", lambda: 2.0)
    run.attempt(1, 7)
    run.restart(1, 0, RESET)
    run.event("node_dead", "node node02 is dead: closed", node="node02", how="closed")
    run.ended(1, 0, "node_failure", "lost node02 (closed)", nodes=["node02"])
    run.restart(1, 1, "step 9", "srun: error: node01: task 0: Terminated", failure=died(143))
    slurm_says((7, "RUNNING", JobClass.RUNNING), alive=True)
    assert examine_run("a").failure_class == "node_failure", "what trains is not judged"
    ledger.append(run.path, "cancel_requested", "cancelled by command")
    slurm_says((7, "COMPLETING", JobClass.ENDING), alive=True)
    found = examine_run("a")
    assert (found.failure_class, found.message, found.restart) == ("user_cancel", "cancelled by command", 1)
    assert found.evidence[0] == "ledger: cancelled by command"
    assert found.hint == "`pretrainctl resume a` goes on"
    assert not any("Terminated" in line for line in found.evidence)
    assert found.notes == ("job 7 is still COMPLETING: Slurm's own word on its end is missing",)
    slurm_says((7, "CANCELLED by 1000", JobClass.USER_CANCEL))
    assert (examine_run("a").failure_class, examine_run("a").notes) == ("user_cancel", ())


@pytest.mark.parametrize("away", [True, False])
def test_a_cancel_belongs_to_the_attempt_that_had_the_run(run: Run, slurm_says, away: bool) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, RESET, failure=died(143))
    ledger.append(run.path, "cancel_requested", "cancelled by command")
    run.event("node_dead", "node node02 is dead: closed", node="node02", how="closed")
    run.ended(1, 0, "node_failure", "lost node02 (closed)", nodes=["node02"])
    run.leave(1, "hand_over", "node_failure", "lost node02 (closed)")
    ledger.append(run.path, "resume_requested", "resume asked for")
    run.attempt(2, 8)
    run.restart(2, 0, OOM, failure=died())
    run.ended(2, 0, "gpu_oom", "the GPU's memory ran out")
    run.leave(2, "hand_over", "gpu_oom", "the GPU's memory ran out")
    run.attempt(3, 9)
    slurm_says((7, "CANCELLED by 1000", JobClass.USER_CANCEL), (8, "FAILED", JobClass.FAILED), away=away)
    found = examine_run("a", 1)
    assert (found.failure_class, found.confidence, found.nodes, found.action) == ("user_cancel", "high", (), "stop")
    assert found.message == ("cancelled by command" if away else "the user cancelled the job")
    assert not any("node node02" in line for line in found.evidence)
    assert examine_run("a", 2).failure_class == "gpu_oom", "another attempt's cancel"
    assert examine_run("a").failure_class == "gpu_oom", "a wish that was overcome is no failure"


def test_a_node_that_died_before_the_cancel_is_still_to_blame(run: Run, slurm_says) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, RESET, failure=died())
    run.event("node_dead", "node node02 is dead: closed", node="node02", how="closed")
    run.ended(1, 0, "node_failure", "lost node02 (closed)", nodes=["node02"])
    run.leave(1, "hand_over", "node_failure", "lost node02 (closed)")
    ledger.append(run.path, "cancel_requested", "cancelled by command")
    slurm_says(away=True)
    found = examine_run("a", 1)
    assert (found.failure_class, found.nodes) == ("node_failure", ("node02",))
    assert found.hint == "tell the site: `pretrainctl nodes report node02` prints which node, when, and what was seen"
    assert "besides, the run is stopped: cancelled by command" in found.notes


@pytest.mark.parametrize("claims_after", [False, True])
def test_an_attempt_that_was_cancelled_as_it_began_has_ended(run: Run, slurm_says, claims_after: bool) -> None:
    slurm_says(away=True)
    if claims_after:
        ledger.append(run.path, "cancel_requested", "cancelled by command")
        run.attempt(1, 7)
    else:
        run.attempt(1, 7)
        ledger.append(run.path, "cancel_requested", "cancelled by command")
    for later in range(2):
        found = examine_run("a", 1)
        assert (found.failure_class, found.message, found.restart) == ("user_cancel", "cancelled by command", None)
        if not later:
            ledger.append(run.path, "resume_requested", "resume asked for")
            run.attempt(2, 8)
    with pytest.raises(RunError, match="attempt 2 has ended yet"):
        examine_run("a", 2)


def test_an_attempt_without_a_word_has_ended_where_a_later_one_has_the_run(run: Run, slurm_says) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, "step 5")
    run.attempt(2, 8)
    slurm_says(away=True)
    found = examine_run("a", 1)
    assert (found.failure_class, found.restart) == ("unknown", 0)
    assert "`sacct -j 7 -o" in found.hint
    run.attempt(3, 9)
    run.event("refused", "attempt 2 has the run", 3)
    with pytest.raises(RunError, match="attempt 2 has ended yet"):
        examine_run("a", 2)


def test_what_the_witness_of_a_lost_batch_host_did(run: Run, slurm_says) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, RESET)
    lost = {"attempt": 1, "job_id": 7, "node": "node01", "how": "silent"}
    message = "batch host node01 of job 7 is lost (silent): the job is cancelled, the next goes on"
    ledger.append(run.path, "batch_host_lost", message, data=lost)
    slurm_says((7, "CANCELLED by 1000", JobClass.USER_CANCEL))
    assert examine_run("a", 1).done == (message,)
    run.attempt(2, 8)
    assert examine_run("a", 1).done == (message, "job 8 went on by itself as attempt 2")
    run.restart(2, 0, "fine")
    found = examine_run("a", 1)
    assert (found.failure_class, found.nodes) == ("node_failure", ("node01",))
    assert found.done == (message, "job 8 went on by itself as attempt 2", "restart 0")


def test_a_batch_host_that_came_back_is_not_why_the_job_was_cancelled(run: Run, slurm_says) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, "0: step 5")
    lost = {"attempt": 1, "job_id": 7, "node": "node01", "how": "silent"}
    ledger.append(run.path, "batch_host_lost", "batch host node01 of job 7 is lost", data=lost)
    ledger.append(run.path, "batch_host_back", "it is there again", data={"attempt": 1})
    slurm_says((7, "CANCELLED by 1000", JobClass.USER_CANCEL))
    found = examine_run("a", 1)
    assert (found.failure_class, found.nodes, found.done) == ("user_cancel", (), ())


@pytest.mark.parametrize(
    ("hint", "filled"),
    [
        ("`pretrainctl resume RUN` goes on", "`pretrainctl resume 'a b'` goes on"),
        ("tell RUN: `pretrainctl nodes report NODE`", "tell RUN: `pretrainctl nodes report 'node[01-02]'`"),
        ("`sacct -j JOB -o State`", "`sacct -j 7 -o State`"),
    ],
)
def test_hints_can_be_typed(hint: str, filled: str) -> None:
    assert fill_names(hint, run="a b", nodes=NODES, job_id=7) == filled
    assert fill_names(hint) == hint, "what is not known is left to the reader"


def test_every_command_of_ours_in_the_table_names_its_run() -> None:
    for policy in POLICIES.values():
        for command in re.findall(r"`pretrainctl (.*?)`", policy.hint):
            assert "RUN" in command or "NODE" in command, command


@pytest.mark.parametrize(
    ("kind", "expected"), [("cancel_requested", "user_cancel"), ("stop_requested", "stopped"), ("note", None)]
)
def test_a_run_that_was_stopped_in_the_queue(run: Run, kind, expected: str | None) -> None:
    ledger.append(run.path, "submitted", "job 7", data={"job_id": 7})
    ledger.append(run.path, kind, "a person's word")
    if expected is None:
        with pytest.raises(RunError, match="has ended yet"):
            examine_run("a")
        return
    found = examine_run("a")
    assert (found.failure_class, found.message, found.attempt) == (expected, "a person's word", None)


def test_a_wanted_stop_rests_on_the_request_and_the_end_record(run: Run) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, RESET)
    run.event("node_dead", "node node02 is dead: closed", node="node02", how="closed")
    run.ended(1, 0, "node_failure", "lost node02 (closed)", nodes=["node02"])
    log = run.path / "attempts" / "slurm-7.out"
    log.write_text("srun: error: Node failure on node09\nsrun: error: node01: task 2: Killed\n")
    run.restart(1, 1, "srun: error: node01: task 0: Killed", end=End("checkpointed", 5, 5, None, "stop", 2.0))
    run.event("save_asked", "asked to save", reason="stop")
    run.ended(1, 1, "stopped", "saved at step 5 and stopped, as was asked")
    run.leave(1, "stop", "stopped", "saved at step 5 and stopped, as was asked")
    found = examine_run("a", 1, 1)
    assert found.failure_class == "stopped"
    assert found.evidence == ("end record: checkpointed at step 5", "request sent: save_and_exit (stop)")
    ledger.append(run.path, "stop_requested", "stop asked for: save, then end")
    assert examine_run("a", 1, 1).evidence == ("ledger: stop asked for: save, then end", *found.evidence)


def test_the_job_s_log_blames_no_node_of_an_earlier_start(run: Run) -> None:
    run.attempt(1, 7)
    log = run.path / "attempts" / "slurm-7.out"
    log.write_text("srun: error: Node failure on node09\n")
    run.restart(1, 0, "KeyError: 'weight'", failure=died())
    run.leave(1, "stop", "application_error", "x")
    assert examine_run("a").failure_class == "application_error"
    log.write_text("srun: error: Node failure on node02\n")
    assert (examine_run("a").failure_class, examine_run("a").nodes) == ("node_failure", ("node02",))


def test_the_hint_follows_the_policy_in_force(run: Run) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, "step 5")
    run.ended(1, 0, "hang", "no step for 600 s", nodes=["node02"], ranks=[1])
    run.leave(1, "hand_over", "hang", "no step for 600 s")
    assert (examine_run("a").action, examine_run("a").hint.count("leave a node out that comes twice")) == ("restart", 1)
    path = run.path / "bundle" / "launch.json"
    launch = json.loads(path.read_text())
    for course, says in (("exclude_node", "nodes that are named are left out"), ("stop", "`pretrainctl resume a`")):
        launch["recovery"]["policies"] = {"hang": course}
        path.write_text(json.dumps(launch))
        found = examine_run("a")
        assert found.action == course
        assert says in found.hint
        assert "see the stacks" in found.hint
        assert "comes twice" not in found.hint


def test_what_all_ranks_print_is_no_node_s_fault(run: Run) -> None:
    missing = "ModuleNotFoundError: No module named 'transformers'"
    run.attempt(1, 7)
    folder = run.restart(1, 0, *[missing] * 2, steps=0, failure=died())
    run.leave(1, "stop", "environment", "x")
    found = examine_run("a")
    assert (found.failure_class, found.nodes, found.ranks) == ("environment", (), ())
    (folder / "training.log").write_text(f"{missing}\n")
    assert (examine_run("a").nodes, examine_run("a").ranks) == (("node02",), (1,))


def test_what_the_attempt_saw_and_its_folder_does_not_keep(run: Run) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, "step 5")
    run.ended(1, 0, "hang", "no step for 600 s", nodes=["node02"], ranks=[1], evidence=["rank 1 is behind"])
    run.leave(1, "stop", "hang", "no step for 600 s")
    found = examine_run("a")
    assert (found.failure_class, found.message, found.nodes) == ("hang", "no step for 600 s", ("node02",))
    assert found.evidence == ("rank 1 is behind",)


def test_a_hang_is_told_with_the_rank_behind_and_the_stacks(run: Run) -> None:
    run.attempt(1, 7)
    folder = run.restart(1, 0, "step 5 | loss 1.0", "srun: error: node02: task 1: Killed")
    message = "no progress for 21.0 s in the phase step after step 5; behind: rank 1 on node02, stopped (state T)"
    facts = ("rank 1: stopped (state T)", "rank 0: alive, all_reduce (engine.py:38)")
    codec.write(folder / "hang.json", Hang("step", 5, 21.0, 20.0, message, (1,), ("node02",), facts, 2.0))
    run.event("hang", message)
    run.leave(1, "hand_over", "hang", "handed over")
    found = examine_run("a")
    assert (found.failure_class, found.ranks, found.nodes, found.message) == ("hang", (1,), ("node02",), message)
    assert set(facts) <= set(found.evidence)
    assert found.action == "restart"
    run.ended(1, 0, "hang", message)
    assert message in examine_run("a").done


def test_a_job_that_died_before_it_started_the_program(run: Run, slurm_says) -> None:
    run.attempt(1, 7)
    (run.path / "attempts" / "slurm-7.out").write_text(
        "pretrainctl: attempt 1: ended before: ValueError: quoted\nslurm_script: line 9: module: command not found\n"
    )
    slurm_says((7, "FAILED", JobClass.FAILED))
    found = examine_run("a")
    assert (found.failure_class, found.restart) == ("environment", None)
    assert "slurm-7.out:2: " in found.evidence[0]
    slurm_says((7, "BOOT_FAIL", JobClass.BOOT_FAILURE))
    assert examine_run("a").failure_class == "boot_failure"


def test_an_attempt_that_had_nothing_to_do_is_passed_over(run: Run, slurm_says) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, "step 5")
    run.attempt(2, 8)
    run.event("looked_back", "the user cancelled the job", 2, **{"class": "user_cancel"})
    run.leave(2, "stop", "user_cancel", "the user cancelled the job")
    run.attempt(3, 9)
    run.event("refused", "attempt 2 has the run", 3)
    slurm_says((7, "CANCELLED by 1000", JobClass.USER_CANCEL), (8, "FAILED", JobClass.FAILED))
    found = examine_run("a")
    assert (found.failure_class, found.attempt) == ("user_cancel", 1)


def test_a_gate_that_found_no_checkpoint(run: Run) -> None:
    run.attempt(1, 7)
    run.leave(1, "stop", "checkpoint_incomplete", "no complete checkpoint, and there must be one")
    found = examine_run("a")
    assert (found.failure_class, found.restart, found.action) == ("checkpoint_incomplete", None, "stop")


def test_a_schedule_that_was_lost_at_the_resume(run: Run) -> None:
    run.attempt(1, 7)
    for index, rate in enumerate((1.7e-5, 3.0e-8)):
        folder = run.restart(1, index, OOM, failure=died())
        lines = (folder / "metrics.jsonl").read_text().replace('"lr":1.0', f'"lr":{rate}')
        (folder / "metrics.jsonl").write_text(lines.replace('"step":', f'"step":{index + 1}000'))
        run.ended(1, index, "gpu_oom", "x")
    assert "learning rate not continuous across the resume: 1.700E-05" in examine_run("a").notes[0]
    run.event("loss_jump", "the loss jumped up across the resume", 1, restart=1)
    run.event("loss_jump", "another start's", 1, restart=0)
    notes = examine_run("a").notes
    assert notes[0] == "the loss jumped up across the resume"
    assert len(notes) == 2
    assert summarize_run("a").alerts[0] == "attempt 1: the loss jumped up across the resume"
    assert examine_run("a", 1, 0).notes == ()


@pytest.mark.parametrize(("seconds", "silent", "stalls"), [(9.8, 32628, True), (9.8, 1700, False), (900, 32628, False)])
def test_a_job_that_runs_and_does_no_step(
    run: Run, slurm_says, monkeypatch, seconds: float, silent: float, stalls: bool
) -> None:
    run.attempt(1, 7)
    folder = run.restart(1, 0, "step 5", OOM, *[RESET] * 3)
    lines = (folder / "metrics.jsonl").read_text().replace('"seconds":1.0', f'"seconds":{seconds}')
    (folder / "metrics.jsonl").write_text(lines)
    slurm_says((7, "RUNNING", JobClass.RUNNING), alive=True)
    monkeypatch.setattr(case.time, "time", lambda: 1.0 + silent)
    if not stalls:
        with pytest.raises(RunError):
            examine_run("a")
        return
    found = examine_run("a")
    assert (found.failure_class, found.ranks, found.nodes) == ("gpu_oom", (1,), ("node02",))
    assert "job 7 runs, but step 5 was its last, 9h04m ago; a step takes 9.8 s" in found.message
    (folder / "training.log").write_text("step 5\n")
    assert examine_run("a").failure_class == "hang"


# logs alone


def test_the_rank_of_a_log_is_in_its_name(tmp_path: Path) -> None:
    logs = [tmp_path / f"task_{rank:03d}.out" for rank in (0, 17)]
    logs[0].write_text("2026-01-01 10:00:05 ConnectionResetError: [Errno 104] Connection reset by peer\n")
    logs[1].write_text("2026-01-01 10:00:01 step\nKeyError: 'weight'\n")
    found = examine_logs(logs, "cn[01-05]", 4)
    assert (found.failure_class, found.ranks, found.nodes) == ("application_error", (17,), ("cn05",))
    assert found.evidence[0].startswith(f"{logs[1]}:2: ")


def test_ranks_that_waited_after_an_error_elsewhere_are_its_consequence(tmp_path: Path) -> None:
    logs = [tmp_path / f"rank_{rank}.out" for rank in range(4)]
    for rank, log in enumerate(logs):
        log.write_text(
            f"2026-01-01 10:{rank:02d}:01 [rank{rank}]:[E1 ProcessGroupNCCL.cpp:1] Watchdog caught collective "
            "operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600001 milliseconds\n"
        )
    logs[2].write_text("2026-01-01 09:50:01 [rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\n")
    found = examine_logs(logs)
    assert (found.failure_class, found.ranks) == ("gpu_oom", (2,))
    assert [line.split(":1: ")[1][:16] for line in found.evidence[1:]] == ["(a consequence) "] * 2
    logs[2].write_text("2026-01-01 11:50:01 [rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\n")
    assert not any("(a consequence)" in line for line in examine_logs(logs).evidence), "they waited before it"
    for log in logs:
        log.write_text(log.read_text().replace("2026-01-01 1", "step "))
    assert sum("(a consequence)" in line for line in examine_logs(logs).evidence) == 2, "no times, so no order"


def test_only_nodes_of_the_job_are_named(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    error = "urllib3.exceptions.MaxRetryError: CUDA error: uncorrectable ECC error"
    log.write_text(f"17: {error}\n")
    assert examine_logs([log], "jpbo-001-[01-08]", 4).nodes == ("jpbo-001-05",)
    assert examine_logs([log]).nodes == ()
    log.write_text(f"SLURM_JOB_NODELIST=jpbo-001-[01-08]\n{error}\n")
    found = examine_logs([log])
    assert (found.failure_class, found.nodes, found.action) == ("gpu_hardware", (), "restart")
    log.write_text("SLURM_JOB_NODELIST=jpbo-001-[01-08]\nsrun: error: Node failure on jpbo-104-11\n")
    assert examine_logs([log]).nodes == ("jpbo-104-11",), "a log may tell of several jobs"
    assert examine_logs([log], "jpbo-001-[01-08]").nodes == ()


def test_logs_of_ranks_on_several_nodes_that_say_the_same_name_none(tmp_path: Path) -> None:
    logs = [tmp_path / f"rank_{rank}.out" for rank in range(4)]
    for log in logs:
        log.write_text("ModuleNotFoundError: No module named 'einops'\n")
    found = examine_logs(logs, "cn[1-2]", 2)
    assert (found.failure_class, found.nodes, found.ranks) == ("environment", (), ())
    for log in logs[:2]:
        log.write_text("step 1\n")
    assert examine_logs(logs, "cn[1-2]", 2).nodes == ("cn2",)


def test_logs_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        examine_logs([tmp_path])
    with pytest.raises(InputError, match="is not there"):
        examine_logs([tmp_path / "none"])


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pretrainctl", "doctor", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return run


def test_the_command_on_logs(call, tmp_path: Path) -> None:
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    first.write_text("fine\n")
    second.write_text(f"{OOM}\n")
    status, out, err = call("--log", first, second, "--json")
    assert (status, err) == (0, "")
    data = json.loads(out)
    assert {"class", "nodes", "ranks", "evidence", "action", "hint"} <= set(data)
    assert (data["class"], data["ranks"], data["action"]) == ("gpu_oom", [1], "restart_once")
    status, out, _ = call("--log", first, "--log", second)
    assert status == 0
    assert "class     gpu_oom (confidence high)" in out
    assert f"evidence  {second}:1: {OOM}" in out


def test_the_command_on_a_run(call, run: Run) -> None:
    run.attempt(1, 7)
    run.restart(1, 0, OOM, failure=died())
    run.ended(1, 0, "gpu_oom", "x")
    run.leave(1, "hand_over", "gpu_oom", "x")
    status, out, _ = call("a")
    assert status == 0
    assert out.startswith("run       a, attempt 1, restart 0\nclass     gpu_oom")
    data = json.loads(call("a", "--json")[1])
    assert (data["run"], data["attempt"], data["restart"], data["done"]) == ("a", 1, 0, ["x"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "doctor needs one run, or logs"),
        (["a", "b"], "doctor takes one run, not 2"),
        (["a", "--restart", "1"], "--restart is one of an attempt"),
        (["a", "--nodes", "cn1"], "go with --log"),
        (["--log", "x", "--attempt", "1"], "--log reads plain files"),
        (["--log", "no-such-file"], "no-such-file is not there"),
    ],
)
def test_bad_input(call, arguments: list[str], says: str) -> None:
    status, out, err = call(*arguments)
    assert (status, out) == (2, "")
    assert says in err
    assert "hint: " in err


def test_a_quota_of_an_earlier_start_is_why_the_later_ones_die_of_what_it_left(tmp_path: Path) -> None:
    again = (
        "restored from ckpt/LATEST -> epoch_0_step_599\nstep 600 | loss 2.2\nstep 601 | loss 2.2\nstep 699 | loss 2.1\n"
        "[rank0]: FileExistsError: Checkpoint directory ckpt/epoch_0_step_699 already exists\n"
    )
    log = tmp_path / "train.out"
    log.write_text(
        "step 697 | loss 2.1\nstep 698 | loss 2.1\nstep 699 | loss 2.1\n"
        "OSError: [Errno 122] Disk quota exceeded: 'ckpt/.LATEST.tmp'\n" + 2 * again
    )
    found = examine_logs([log])
    assert (found.failure_class, found.confidence) == ("quota", "medium")
    log.write_text(again)
    assert examine_logs([log]).failure_class == "application_error"
    log.write_text(
        "OSError: [Errno 122] Disk quota exceeded: 'a'\n" + again + "torch.OutOfMemoryError: CUDA out of memory.\n"
    )
    assert examine_logs([log]).failure_class == "gpu_oom", "a root of the last start explains more"
