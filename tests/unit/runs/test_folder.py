"""A run folder exists whole or not at all, and is found by path or name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pretrainctl.errors import InputError, RunError
from pretrainctl.records.launch import Bundle
from pretrainctl.records.run import RunRecord
from pretrainctl.runs import folder

BUNDLE = Bundle({"job.sbatch": "#!/bin/bash\n", "launch.json": "{}\n"})


def record(name: str, created: float = 0.0) -> RunRecord:
    return RunRecord(name, name, name, "sandbox", created, "u", {}, {}, {})


def test_of_two_launches_in_the_same_moment_one_makes_the_run(tmp_path: Path) -> None:
    def make(index: int) -> str:
        try:
            folder.create(tmp_path / "run", record("run", float(index)), BUNDLE)
        except RunError as error:
            return str(error)
        return "made"

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(make, range(6)))
    assert outcomes.count("made") == 1
    assert all("exists already" in outcome for outcome in outcomes if outcome != "made")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run" / "bundle" / "job.sbatch").stat().st_mode & 0o111


def test_a_failure_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long"):
        folder.create(tmp_path / "run", record("run"), Bundle({"x" * 300: ""}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "-x", "a/b", "a\nb", "x" * 201])
def test_names_that_cannot_be_a_folder(name: str) -> None:
    with pytest.raises(InputError):
        folder.check_name(name)


@pytest.mark.parametrize("name", ["7B main run #1", "it's", 'a "b" $c', "ablation ä"])
def test_runs_are_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(folder.RUNS_VARIABLE, f"{tmp_path / 'mine'}:{tmp_path / 'group'}")
    made = folder.create(tmp_path / "group" / folder.check_name(name), record(name), BUNDLE)
    assert folder.find(name).path == made.path
    assert folder.find(str(made.path)).path == made.path
    assert [run.record.name for run in folder.all_runs()[0]] == [name]


def test_a_name_that_no_run_has_says_which_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(folder.RUNS_VARIABLE, str(tmp_path))
    folder.create(tmp_path / "one", record("one"), BUNDLE)
    with pytest.raises(RunError, match="no run 'two'") as caught:
        folder.find("two")
    assert "one" in caught.value.hint


def test_an_empty_name_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder.create(tmp_path / "one", record("one"), BUNDLE)
    monkeypatch.setenv(folder.RUNS_VARIABLE, str(made.path))
    monkeypatch.chdir(made.path)
    assert folder.find(".").record.name == "one"
    with pytest.raises(InputError, match="name of the run is empty"):
        folder.find("")


def test_a_run_seen_through_links_is_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a-link").symlink_to(tmp_path / "group")
    monkeypatch.setenv(folder.RUNS_VARIABLE, f"{tmp_path / 'a-link'}:{tmp_path / 'mine'}:{tmp_path / 'group'}")
    made = folder.create(tmp_path / "group" / "one", record("one"), BUNDLE)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "other").symlink_to(made.path)
    (tmp_path / "group" / "another").symlink_to("one")
    (found,) = folder.all_runs()[0]
    assert found.path == made.path


def test_a_name_that_several_runs_have_is_refused_with_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, group = (folder.create(tmp_path / root / "one", record("one"), BUNDLE) for root in ("mine", "group"))
    (tmp_path / "a-link").symlink_to(tmp_path / "mine")
    monkeypatch.setenv(folder.RUNS_VARIABLE, f"{tmp_path / 'mine'}:{tmp_path / 'a-link'}:{tmp_path / 'none'}")
    assert folder.find("one").path == mine.path, "the same by two names is one"
    monkeypatch.setenv(folder.RUNS_VARIABLE, f"{tmp_path / 'mine'}:{tmp_path / 'a-link'}:{tmp_path / 'group'}")
    with pytest.raises(InputError, match=r"^2 runs are called 'one'$") as caught:
        folder.find("one")
    assert caught.value.hint == f"give the folder of the one that is meant: {mine.path} or {group.path}"
    for run in (mine, group):
        assert folder.find(str(run.path)).path == run.path


def test_a_run_in_the_current_folder_and_another_under_a_root_are_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = (folder.create(tmp_path / root / "one", record("one"), BUNDLE) for root in ("here", "there"))
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv(folder.RUNS_VARIABLE, str(tmp_path / "here"))
    assert folder.find("one").path == here.path
    monkeypatch.setenv(folder.RUNS_VARIABLE, str(tmp_path / "there"))
    with pytest.raises(InputError, match="2 runs are called 'one'"):
        folder.find("one")
    assert folder.find("./one").path == here.path
    assert folder.find(str(there.path)).path == there.path


def test_a_root_that_cannot_be_searched_makes_no_name_ambiguous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = folder.create(tmp_path / "mine" / "one", record("one"), BUNDLE)
    monkeypatch.setenv(folder.RUNS_VARIABLE, f"{tmp_path / 'mine'}:{tmp_path / 'locked'}")
    searched = Path.stat

    def stat(path: Path, **how: bool) -> object:
        if path.is_relative_to(tmp_path / "locked"):
            raise PermissionError(13, "Permission denied")
        return searched(path, **how)

    monkeypatch.setattr(Path, "stat", stat)
    assert folder.find("one").path == made.path
