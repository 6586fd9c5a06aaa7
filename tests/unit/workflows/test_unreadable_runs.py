"""One run that cannot be read or written is trouble of that run alone."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrainctl.cli.run import reconcile as reconcile_command
from pretrainctl.errors import LedgerError, RunError
from pretrainctl.records import codec
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.records.run import RunRecord
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows import launch as launching
from pretrainctl.workflows import nodes, reconcile, status
from pretrainctl.workflows.exclusions import Avoided, list_of


class Slurm:
    """Stands where the Slurm client stands."""

    def __init__(self) -> None:
        self.known: list[Job] = []
        self.submitted: list[str] = []

    def all_queued(self) -> dict[str, list[Job]]:
        return {job.name: [job] for job in self.known}

    def queued(self, name: str) -> list[Job]:
        return [job for job in self.known if job.name == name]

    def jobs(self, _ids: object) -> dict[int, Job]:
        return {job.job_id: job for job in self.known}

    def submit(self, _script: Path, *, job_name: str, **_more: object) -> SimpleNamespace:
        self.submitted.append(job_name.partition("-")[0])
        return SimpleNamespace(job_id=70 + len(self.submitted), messages=())


@pytest.fixture
def slurm(tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Two runs, aa and bb, that have no job."""
    here = Slurm()
    golden = pytestconfig.rootpath / "tests" / "golden" / "quickstart-on-sandbox" / "launch.json"
    for name in ("aa", "bb"):
        (tmp_path / name / "bundle").mkdir(parents=True)
        (tmp_path / name / "events").mkdir()
        (tmp_path / name / "bundle" / "launch.json").write_text(golden.read_text().replace("quickstart", name))
        identity = RunRecord(name, name, name, "sandbox", 0.0, getpass.getuser(), {}, {}, {})
        codec.write(tmp_path / name / "run.json", identity)
    monkeypatch.setenv("PRETRAINCTL_RUNS", str(tmp_path))
    monkeypatch.setattr(RunFolder, "refuse_if_moved", lambda _run: None)
    monkeypatch.setattr(launching, "avoid_at_submit", lambda *_: Avoided())
    for module in (reconcile, nodes):
        monkeypatch.setattr(module, "reach_own", lambda _run: here)
    monkeypatch.setattr(status, "reach", lambda _run: here)
    return here


def unwritable(monkeypatch: pytest.MonkeyPatch, where: Path) -> None:
    """As with `chattr +i`, or a quota: nothing can be made in a folder."""
    opens = Path.open

    def refuse(path: Path, mode: str = "r", *more: object, **named: object) -> object:
        if path.parent == where and "w" in mode:
            raise PermissionError(1, "Operation not permitted", str(path))
        return opens(path, mode, *more, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)


def closed(monkeypatch: pytest.MonkeyPatch, where: Path) -> None:
    """As with mode 0700 for everybody else: root, who may run this test, is not kept out by it."""

    def keep_out(name: str, of: object) -> None:
        real: Callable[..., object] = getattr(of, name)

        def ask(path: object, *more: object, **named: object) -> object:
            if isinstance(path, (str, Path)) and str(path).startswith(f"{where}/"):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *more, **named)

        monkeypatch.setattr(of, name, ask)

    for name in ("stat", "scandir", "listdir", "open"):
        keep_out(name, os)


def test_a_run_that_cannot_be_written_gets_no_job_and_the_others_do(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unwritable(monkeypatch, tmp_path / "aa" / "events")
    found = reconcile.reconcile()
    assert slurm.submitted == ["bb"], "what cannot be written down is not submitted"
    assert [outcome.run for outcome in found.outcomes] == ["bb"]
    (problem,) = found.problems
    assert problem.startswith("aa: nothing done: ")
    assert "Operation not permitted" in problem
    assert found.unknown == 1


def test_reconcile_says_the_problem_on_stderr_and_ends_in_5(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed(monkeypatch, tmp_path / "aa")
    with pytest.raises(Exception) as caught:  # noqa: PT011 - typer's Exit
        reconcile_command(None)
    assert caught.value.exit_code == 5  # type: ignore[attr-defined]
    out, err = capsys.readouterr()
    assert out.startswith("bb: queued job 71")
    assert f"warning: {tmp_path}/aa/run.json cannot be read: " in err
    assert slurm.submitted == ["bb"]


def test_what_other_people_keep_closed_is_no_trouble_of_reconcile(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed(monkeypatch, tmp_path / "aa")
    monkeypatch.setattr(folder.os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    found = reconcile.reconcile()
    assert (found.problems, found.unknown, slurm.submitted) == ((), 0, ["bb"])
    assert len(status.survey().problems) == 1


def test_a_run_of_closed_folders_is_a_problem_of_its_own(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed(monkeypatch, tmp_path / "aa")
    found = status.survey()
    assert [one.name for one in found.runs] == ["bb"]
    assert "Permission denied" in found.problems[0]
    with pytest.raises(RunError, match="no run 'nosuch'"):
        folder.find("nosuch")
    for name in ("aa", str(tmp_path / "aa")):
        with pytest.raises(LedgerError, match="Permission denied"):
            folder.find(name)
    told = nodes._push(list_of(folder.find("bb")))
    assert "Permission denied" in told[0]


def test_a_ledger_that_cannot_be_listed_is_a_problem_of_its_run(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.append(tmp_path / "aa", "note", "one")
    closed(monkeypatch, tmp_path / "aa" / "attempts")
    closed(monkeypatch, tmp_path / "aa" / "events")
    found = status.survey()
    assert [one.name for one in found.runs] == ["bb"]
    with pytest.raises(LedgerError, match="Permission denied"):
        ledger.read_events(tmp_path / "aa")
    assert len(reconcile.reconcile().problems) == 1
    assert slurm.submitted == ["bb"]


@pytest.mark.parametrize("text", ["[" * 200_000, '{"created": 1' + "0" * 400 + "}"])
def test_a_run_record_of_nonsense_is_a_problem_of_its_own(slurm: Slurm, tmp_path: Path, text: str) -> None:
    (tmp_path / "aa" / "run.json").write_text(text)
    assert [one.name for one in status.survey().runs] == ["bb"]
    (tmp_path / "aa" / "run.json").unlink()
    os.mkfifo(tmp_path / "aa" / "run.json")
    assert [one.name for one in status.survey().runs] == ["bb"]


def test_a_job_that_could_not_be_written_down_is_never_told_as_cancelled(slurm: Slurm, tmp_path: Path) -> None:
    ledger.append(tmp_path / "aa", "submitted", "submitted job 7", data={"job_id": 7})
    gone = StateMeaning("CANCELLED by 7", JobClass.USER_CANCEL, alive=False, cancelled_by=7)
    slurm.known = [Job(7, "aa", gone)]
    assert status.survey("aa").runs[0].phase == "stopped"
    slurm.known.append(Job(8, "aa", StateMeaning("RUNNING", JobClass.RUNNING, alive=True)))
    (found,) = status.survey("aa").runs
    assert found.phase == "running"
    assert found.warnings == ("job 8 is not in the ledger: `pretrainctl reconcile aa` writes it down",)


@pytest.mark.parametrize("name", ["\udcff", "a\ud800"])
def test_a_name_that_is_no_text_is_no_traceback(name: str) -> None:
    with pytest.raises(folder.InputError, match="cannot be the name of a run"):
        folder.check_name(name)
