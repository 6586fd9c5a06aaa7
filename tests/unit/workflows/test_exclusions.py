"""The list in use: what a submission avoids, what pending jobs are told, what an attempt lists."""

from __future__ import annotations

import getpass
import os
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pretrainctl.cli.nodes import list_nodes
from pretrainctl.errors import InputError, SlurmError
from pretrainctl.health.exclusion import listed
from pretrainctl.records import codec
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.launch import RecoveryRule
from pretrainctl.records.nodes import ExclusionEntry
from pretrainctl.records.run import AttemptRecord, Diagnosis, RunRecord
from pretrainctl.recovery.decision import RestartSummary
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.slurm.sinfo import parse_sinfo
from pretrainctl.workflows import exclusions, nodes, reach
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.node_listing import NodeListing
from pretrainctl.workflows.attempt.signals import Signals

LAUNCH = SimpleNamespace(recovery=RecoveryRule(), srun=SimpleNamespace(nodes=2), spares=1)


class Slurm:
    """Five nodes and one running job."""

    def __init__(self) -> None:
        self.excluded: dict[int, tuple[Any, ...]] = {}
        self.asked = 0
        self.state = JobClass.RUNNING
        self.preempted = False
        self.away = False

    def partition_nodes(self, partition: str = "") -> tuple[Any, str]:
        self.asked += 1
        if self.away:
            raise SlurmError("unable to contact slurm controller")
        text = "".join(f"boost*|n{number}|idle|(null)|none\n" for number in range(1, 6))
        return tuple(parse_sinfo(text).values()), partition or "boost"

    def node_states(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: None for name in names if name in {"n1", "n2", "n3", "n4", "n5"}}

    def exclude(self, job: int, wanted: Sequence[str], *, ours: Any = (), held: bool = False) -> tuple[str, ...]:
        self.excluded[job] = (tuple(wanted), set(ours), held)
        return tuple(wanted[2:])

    def jobs(self, ids: Sequence[int]) -> dict[int, Job]:
        return {job: Job(job, "a", StateMeaning(self.state.name, self.state, alive=True)) for job in ids}

    def is_preempted(self, _job: int) -> bool:
        return self.preempted

    def cluster_name(self) -> str:
        return "boost"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    path = tmp_path / "runs" / "a"
    (path / "attempts" / "0001" / "events").mkdir(parents=True)
    plan = {"queue": {"partition": "boost"}, "directives": {}}
    codec.write(
        path / "run.json", RunRecord("a", "a", "a-1", "leonardo", 0.0, "me", {}, {}, plan, slurm_cluster="boost")
    )
    return RunFolder(path)


@pytest.fixture
def slurm() -> Slurm:
    return Slurm()


def put(run: RunFolder, node: str, cause: str = "node_failure", *, age: float = 0.0, **more: Any) -> None:
    then = time.time() - age
    entry = ExclusionEntry("exclude", "leonardo", "boost", node, cause, "it died", "me", then, expires=then + 3600)
    exclusions.list_of(run).add(replace(entry, **more))


def excluding(run: RunFolder, own: str) -> RunFolder:
    codec.write(run.path / "run.json", replace(run.record, plan={"directives": {"exclude": own}}))
    return RunFolder(run.path)


def submit(run: RunFolder, slurm: Slurm) -> exclusions.Avoided:
    return exclusions.avoid_at_submit(run, LAUNCH, slurm)  # type: ignore[arg-type]


def test_without_entries_slurm_is_not_asked(run: RunFolder, slurm: Slurm) -> None:
    assert submit(run, slurm) == exclusions.Avoided()
    put(run, "n1", age=7200)
    assert submit(run, slurm) == exclusions.Avoided()
    assert slurm.asked == 0


def test_a_new_job_keeps_off_the_list_and_is_left_enough(run: RunFolder, slurm: Slurm) -> None:
    put(run, "n2")
    avoided = submit(run, slurm)
    assert (avoided.options, avoided.nodes) == (("--exclude=n2",), ("n2",))
    assert avoided.message.startswith("kept off n2 (node_failure, until ")
    put(run, "n3", age=60)
    put(run, "n4", "person", age=120)
    avoided = submit(run, slurm)
    assert avoided.options == ("--exclude=n[2,4]",), "five nodes, three are needed"
    assert "may get n3 of the node exclusion list: too few others are in service" in avoided.message


def test_what_the_script_excludes_stays_beside_the_list(run: RunFolder, slurm: Slurm) -> None:
    put(run, "n2")
    put(run, "n3", age=60)
    assert submit(excluding(run, "n5"), slurm).options == ("--exclude=n[2,5]",)
    assert submit(excluding(run, "n[2,5]"), slurm).options == (), "the script does it all"


def test_a_node_of_another_partition_and_a_file_of_nodes(run: RunFolder, slurm: Slurm) -> None:
    put(run, "gpu9")
    put(run, "n2")
    assert "gpu9" not in submit(run, slurm).message
    run = excluding(run, "/home/you/bad-nodes")
    assert submit(run, slurm).options == ()
    assert "of a file, /home/you/bad-nodes" in submit(run, slurm).message
    assert exclusions.push(run, slurm, [8], ["n1"]) == ()  # type: ignore[arg-type]


def test_what_cannot_be_read_or_asked_keeps_nothing_off_and_is_told(run: RunFolder, slurm: Slurm) -> None:
    put(run, "n2")
    slurm.away = True
    avoided = submit(run, slurm)
    assert (avoided.options, avoided.nodes) == ((), ())
    assert avoided.message == "the node exclusion list is not used: unable to contact slurm controller"


def test_pending_jobs_are_told_the_list_of_now(run: RunFolder, slurm: Slurm) -> None:
    assert exclusions.push(run, slurm, [8]) == ()  # type: ignore[arg-type]
    assert slurm.excluded == {}
    put(run, "n2")
    put(run, "n3", age=7200)
    assert exclusions.push(run, slurm, [8], ["n4", "n5"]) == ()  # type: ignore[arg-type]
    assert slurm.excluded[8] == (("n4", "n5", "n2"), {"n2", "n3"}, False)
    assert exclusions.push(run, slurm, [8], ["n4", "n1", "n5"]) == ("n5",)  # type: ignore[arg-type]
    exclusions.push(excluding(run, "n3"), slurm, [8])  # type: ignore[arg-type]
    assert slurm.excluded[8] == (("n2",), {"n2"}, False), "n3 is the script's own"


def test_a_held_job_gives_up_what_the_run_excluded_too(run: RunFolder, slurm: Slurm) -> None:
    put(run, "n2")
    ledger.append(run.path, "node_dead", "n4 is dead", attempt=1, data={"node": "n4"})
    ledger.append(run.path, "decided", "restart", attempt=1, data={"action": "x", "exclude": ["n5"]})
    exclusions.release(run, slurm, 8)  # type: ignore[arg-type]
    assert slurm.excluded[8] == (("n2",), {"n2", "n4", "n5"}, True)


def test_files_of_nonsense_in_the_list_are_problems_of_theirs(run: RunFolder, slurm: Slurm) -> None:
    put(run, "n2")
    folder = exclusions.list_of(run).path
    (folder / "a.json").write_text("[" * 200_000)
    (folder / "b.json").write_text(
        re.sub(r'"time": [0-9.]+', f'"time": 1{"0" * 400}', next(folder.glob("n2*")).read_text())
    )
    os.mkfifo(folder / "c.json")
    (folder / "d.json").symlink_to("/dev/zero")
    for index in range(20):
        (folder / f"e{index}.json").write_text("{")
    avoided = exclusions.avoid_at_submit(run, LAUNCH, slurm)  # type: ignore[arg-type]
    assert avoided.nodes == ("n2",)
    assert avoided.message.startswith(
        "24 files of the node exclusion list cannot be used: `pretrainctl nodes list` says"
    )
    assert "; kept off n2" in avoided.message
    for name in ("a", "b", "c", "d"):
        assert any(f"/{name}.json cannot be read: " in problem for problem in exclusions.list_of(run).read()[1])
    exclusions.push(run, slurm, [8])  # type: ignore[arg-type]
    assert slurm.excluded[8] == (("n2",), {"n2"}, False)


def test_whatever_is_wrong_with_a_list_it_ends_no_attempt_and_holds_none(
    run: RunFolder, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(run, "n2")
    monkeypatch.setattr(exclusions, "_PATIENCE", 0.1)
    never = threading.Event()

    def fault(_list: object) -> None:
        raise TypeError("no list")

    for read, says in ((fault, "no list"), (lambda _list: never.wait(60), "did not answer within 0.1 s")):
        monkeypatch.setattr(exclusions.ExclusionList, "read", read)
        avoided = exclusions.avoid_at_submit(run, LAUNCH, slurm)  # type: ignore[arg-type]
        assert (avoided.options, avoided.nodes) == ((), ())
        assert avoided.message.startswith("the node exclusion list is not used: ")
        assert avoided.message.endswith(says)
        assert exclusions.push(run, slurm, [8], ["n4"]) == ()  # type: ignore[arg-type]
        assert slurm.excluded[8] == (("n4",), set(), False)
    never.set()


@pytest.fixture
def attempt(run: RunFolder, slurm: Slurm) -> Attempt:
    record = AttemptRecord(1, 7, 0, "n1", 1, ("n1", "n2"), 0.0)
    return Attempt(run, LAUNCH, record, slurm, Signals())  # type: ignore[arg-type]


def told(attempt: Attempt) -> list[str]:
    return [event.message for event in ledger.read_events(attempt.run.path) if event.kind in {"node_listed", "note"}]


def test_an_attempt_lists_a_node_once_and_says_so(attempt: Attempt) -> None:
    listing = NodeListing(attempt)
    for _ in range(2):
        listing.add_dead({"n2": "closed"})
        listing.tell(wait=True)
    assert told(attempt) == ["jobs keep off n2 for 1d00h: node_failure"]
    (entry,) = exclusions.list_of(attempt.run).read()[0].values()
    assert (entry.node, entry.run, entry.attempt, entry.job_id) == ("n2", "a", 1, 7)
    NodeListing(attempt).add("n2", "gpu_hardware", "Xid 79", ["token=abc"])
    again = NodeListing(attempt)
    again.add_diagnosed(Diagnosis("gpu_hardware", "Xid 79", ("n2",), evidence=("x token=abc",)), ())
    again.tell(wait=True)
    node = listed(exclusions.list_of(attempt.run).read()[0])["n2"]
    assert node.count >= 2
    assert node.newest.expires - node.newest.time >= 14 * 86400, "longer, as it comes again"
    assert "abc" not in str(node.newest.evidence)


def test_nodes_that_are_taken_away_are_no_dead_ones(attempt: Attempt, slurm: Slurm) -> None:
    listing = NodeListing(attempt)
    slurm.preempted = True
    listing.add_dead({"n2": "closed"})
    slurm.state = JobClass.ENDING
    listing.add_dead({"n1": "closed"})
    listing.tell(wait=True)
    attempt.signals.terminated = True
    listing.add("n3", "gpu_hardware", "Xid 79")
    listing.tell(wait=True)
    assert exclusions.list_of(attempt.run).read() == ({}, ())
    assert told(attempt) == []


def test_a_suspect_is_listed_the_second_time(attempt: Attempt) -> None:
    suspect = Diagnosis("fabric", "link down", ("n2",))
    once = RestartSummary(1, 0, "fabric", 0, 5, 0, ("n2",))
    listing = NodeListing(attempt)
    listing.add_diagnosed(suspect, [once])
    listing.tell(wait=True)
    assert told(attempt) == []
    listing.add_diagnosed(suspect, [once, replace(once, restart=1)])
    listing.tell(wait=True)
    assert told(attempt) == ["jobs keep off n2 for 1d00h: fabric"]


def test_what_is_no_node_of_the_job_is_never_listed(attempt: Attempt) -> None:
    words = ("urllib3.exceptions.MaxRetryError", "n3", "botocore3.x1", "", "n2 ")
    listing = NodeListing(attempt)
    listing.add_diagnosed(Diagnosis("gpu_hardware", "ECC", (*words, "n2")), ())
    listing.add_dead(dict.fromkeys(words, "closed"))
    for word in words:
        listing.add(word, "node_test", "slow")
    listing.tell(wait=True)
    assert [entry.node for entry in exclusions.list_of(attempt.run).read()[0].values()] == ["n2"]


def test_an_attempt_that_died_without_a_word_is_listed_by_the_next(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Diagnosis("node_failure", "job 7 lost n2", ("n2",))
    ledger.append(attempt.run.path, "attempt_ended", "end", attempt=1)
    listing = NodeListing(attempt)
    listing.add_past(1, found)
    listing.tell(wait=True)
    assert exclusions.list_of(attempt.run).read()[0] == {}
    listing.add_past(2, found)
    assert listing._threads == [], "no attempt 2 is known, and so none of its nodes"
    past = AttemptRecord(2, 9, 0, "n2", 1, ("n2", "n4"), 0.0)
    monkeypatch.setattr(RunFolder, "attempts", lambda _run: [past])
    listing.add_past(2, replace(found, nodes=("n2", "n1", "urllib3.exceptions.MaxRetryError")))
    listing.tell(wait=True)
    assert [entry.node for entry in exclusions.list_of(attempt.run).read()[0].values()] == ["n2"]


def test_a_list_that_cannot_be_written_is_a_note(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(codec, "create", full)
    listing = NodeListing(attempt)
    listing.add("n2", "gpu_hardware", "Xid 79")
    listing._threads[0].join(10)
    monkeypatch.undo()
    listing.tell(wait=True)
    assert told(attempt) == ["n2 could not be listed: [Errno 28] No space left on device"]


@pytest.fixture
def cluster(run: RunFolder, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PRETRAINCTL_RUNS", str(run.path.parent))
    for room in (nodes, reach):
        monkeypatch.setattr(room, "slurm_at", lambda _conf: slurm)
    return "leonardo"


def test_a_report_leaves_out_what_is_dated_after_it(run: RunFolder, cluster: str) -> None:
    put(run, "n2", time=time.time() + 600)  # a clock that is ahead a little
    for ahead in (7200, 32 * 365 * 86400):
        put(run, "n2", time=time.time() + ahead, expires=time.time() + 60, reason="in times to come")
    text = nodes.report(["n2"], cluster)
    assert "n2: 1 finding, and 2 of a time that is to come" in text
    assert "in times to come" not in text


def test_people_exclude_report_and_forgive(run: RunFolder, cluster: str) -> None:
    nodes.exclude(["n[2-3]"], cluster, reason="noisy fan, password=x", seconds=7200)
    put(run, "n2", evidence=("training.log:7: Xid 79",), job_id=12)
    found = nodes.survey(cluster)
    assert [(node.node, node.count, node.cause) for node in found.nodes] == [("n2", 2, "person"), ("n3", 1, "person")]
    text = nodes.report(["n2"], cluster)
    assert "n2: 2 findings" in text
    assert ", job 12: node_failure: it died\n    | training.log:7: Xid 79" in text
    assert "person: noisy fan, password=[removed]" in text
    assert time.strftime("%z") in text
    told = nodes.forgive(["n2"], cluster, reason="")
    assert told.message == "jobs on the Slurm cluster boost may go to n2 again"
    assert [node.node for node in nodes.survey(cluster).nodes] == ["n3"]
    assert len(exclusions.list_of(run).read()[0]) == 4, "nothing is deleted"


def test_a_report_has_no_consequence_and_no_line_of_another_node(run: RunFolder, cluster: str) -> None:
    kept = (
        "node n2: no beat for 20 s",
        "first bad task: rank 0 on n2, status 1",
        "log: a.log:7: n2 kernel: NVRM: Xid (PCI:0000:4e:00): 79, pid=1",
    )
    left_out = (
        "log: a.log:9: (a consequence) srun: error: n2: task 0: Killed",
        "log (a consequence): a.log:9: RuntimeError: Connection reset by peer",
        "srun: error: n3: task 0: Killed",
        "srun: error: n2: task 0: Killed",
        "slurmstepd: error: *** STEP 7.0 ON n2 CANCELLED AT 2026-11-30T10:00:00 ***",
        "srun: error: Node failure on n3",
        "node n3: no beat for 20 s",
        "first bad task: rank 0 on n3, status 137",
    )
    put(run, "n2", evidence=(*left_out, *kept))
    text = nodes.report(["n2"], cluster)
    assert [line for line in (*kept, *left_out) if f"| {line}" in text] == list(kept)
    put(run, "n2", evidence=("srun: error: Node failure on n[1-3]",))
    assert "| srun: error: Node failure on n[1-3]" in nodes.report(["n2"], cluster)


def test_what_was_forgiven_stays_in_the_history(
    run: RunFolder, cluster: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    put(run, "n2", evidence=("training.log:7: Xid 79",), job_id=12)
    nodes.forgive(["n2"], cluster, reason="new cable")
    assert nodes.survey(cluster).nodes == ()
    (found,) = nodes.survey(cluster, everything=True).nodes
    assert (found.node, found.active, found.count, found.cause) == ("n2", False, 1, "node_failure")
    assert (found.forgiven_by, found.forgiven_for) == (getpass.getuser(), "new cable")
    list_nodes(cluster, everything=True)
    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert re.search(rf"n2 +forgiven .* forgiven by {getpass.getuser()} .* ago \(new cable\): it died", row)
    text = nodes.report(["n2"], cluster)
    assert ", job 12: node_failure: it died\n    | training.log:7: Xid 79\n" in text
    assert re.search(r"n2: 1 finding\n.*\n.*\n  .*: forgiven by hand: new cable\n  our jobs may go there$", text)
    with pytest.raises(InputError, match="nothing is listed of n2"):
        nodes.forgive(["n2"], cluster, reason="")
    put(run, "n2", reason="it died again")
    (found,) = nodes.survey(cluster).nodes
    assert (found.active, found.count, found.reason) == (True, 1, "it died again")
    list_nodes(cluster)
    (row,) = capsys.readouterr().out.splitlines()[1:]
    told = rf"it died again; before that forgiven by {getpass.getuser()} .* ago \(new cable\)$"
    assert re.search(told, row), "the forgiving was of what was found before"
    assert "n2: 2 findings" in nodes.report([], cluster)
    assert "our jobs keep off it until" in nodes.report(["n2"], cluster)


def test_an_exclusion_says_the_end_that_is_true(run: RunFolder, cluster: str) -> None:
    first = nodes.exclude(["n2"], cluster, reason="x", seconds=86400)
    end = first.message.partition("until ")[2]
    assert first.message == f"jobs on the Slurm cluster boost keep off n2 until {end}"
    again = nodes.exclude(["n[2-3]"], cluster, reason="x", seconds=60).message
    assert f"n2 until {end}, n3 until " in again
    assert again.endswith("; n2 was excluded for longer before: `pretrainctl nodes forgive n2` shortens that")
    nodes.forgive(["n2"], cluster, reason="")
    assert "longer" not in nodes.exclude(["n2"], cluster, reason="x", seconds=60).message
    with pytest.raises(InputError, match="--reason is empty"):
        nodes.exclude(["n4"], cluster, reason=" ", seconds=60)
    assert "n4" not in {node.node for node in nodes.survey(cluster, everything=True).nodes}


def test_a_reason_is_one_line_and_kept_whole(run: RunFolder, cluster: str) -> None:
    reason = "why " * 125
    nodes.exclude(["n2"], cluster, reason=reason, seconds=60)
    assert nodes.survey(cluster).nodes[0].reason == reason.strip()
    for long, said in (
        ("x" * 100_000, "--reason has 100000 characters in 1 line, at most 500 in one line are kept"),
        ("a\nb", "--reason has 3 characters in 2 lines, at most 500 in one line are kept"),
    ):
        for command in (
            lambda text: nodes.exclude(["n3"], cluster, reason=text, seconds=60),
            lambda text: nodes.forgive(["n2"], cluster, reason=text),
        ):
            with pytest.raises(InputError) as caught:
                command(long)
            assert str(caught.value) == said
    assert [node.node for node in nodes.survey(cluster).nodes] == ["n2"]


@pytest.mark.parametrize(
    ("names", "seconds", "says"),
    [
        (["n[2-"], 60.0, "not a node list"),
        (["n9"], 60.0, "the Slurm cluster boost has no node n9"),
        ([" "], 60.0, "no node is named"),
        (["n2"], 0.5, "not between 1 s and 365 days"),
        (["n2"], 1e9, "not between 1 s and 365 days"),
    ],
)
def test_bad_input_changes_nothing(run: RunFolder, cluster: str, names: list[str], seconds: float, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("[", r"\[")):
        nodes.exclude(names, cluster, reason="x", seconds=seconds)
    assert not exclusions.list_of(run).path.exists()
    for command in (lambda: nodes.forgive(["n2"], cluster, reason=""), lambda: nodes.report(["n2"], cluster)):
        with pytest.raises(InputError, match="nothing is listed of n2"):
            command()


def test_where_the_list_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = SimpleNamespace(node_list=None)
    assert exclusions.list_folder(profile, tmp_path) == tmp_path / ".nodes"  # type: ignore[arg-type]
    profile.node_list = Path("/project/nodes")
    assert exclusions.list_folder(profile, tmp_path) == Path("/project/nodes")  # type: ignore[arg-type]
    monkeypatch.setenv("PRETRAINCTL_NODES", "~/nodes")
    assert exclusions.list_folder(profile, tmp_path) == Path.home() / "nodes"  # type: ignore[arg-type]
