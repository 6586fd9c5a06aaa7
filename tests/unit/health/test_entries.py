from __future__ import annotations

import json
import multiprocessing
import os
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pretrainctl.health.entries import ExclusionList
from pretrainctl.health.exclusion import listed
from pretrainctl.records import codec
from pretrainctl.records.nodes import ExclusionEntry


def entry(node: str = "gn001", **more: object) -> ExclusionEntry:
    return replace(ExclusionEntry("exclude", "leonardo", "boost", node, "node_failure", "it died", "me", 1.0), **more)  # type: ignore[arg-type]


@pytest.fixture
def nodes(tmp_path: Path) -> ExclusionList:
    return ExclusionList(tmp_path / ".nodes", "leonardo", "boost")


def test_a_list_that_is_not_there_is_empty_and_an_entry_comes_back(nodes: ExclusionList) -> None:
    assert nodes.read() == ({}, ())
    name = nodes.add(entry())
    assert nodes.read() == ({name: entry()}, ())
    assert nodes.path.name == "@boost"


def test_all_profiles_of_one_slurm_share_its_list_and_another_slurm_has_its_own(tmp_path: Path) -> None:
    place = tmp_path / ".nodes"
    one, lab, dcgp = (
        ExclusionList(place, *names) for names in (("leonardo", "boost"), ("lab", "boost"), ("leonardo", "dcgp"))
    )
    first, second = one.add(entry()), lab.add(entry("gn002", cluster="lab"))
    dcgp.add(entry("gn003", slurm_cluster="dcgp"))
    for nodes in (one, lab):
        assert (set(nodes.read()[0]), nodes.read()[1]) == ({first, second}, ())
    assert [found.node for found in dcgp.read()[0].values()] == ["gn003"]


def test_without_slurms_name_the_list_is_the_profiles(tmp_path: Path) -> None:
    one, lab = ExclusionList(tmp_path, "leonardo", ""), ExclusionList(tmp_path, "lab", "")
    name = one.add(entry(slurm_cluster=""))
    assert list(one.read()[0]) == [name]
    assert lab.read() == ({}, ())
    assert ExclusionList(tmp_path, "leonardo", "boost").read() == ({}, ())
    with pytest.raises(ValueError, match="does not belong into"):
        lab.add(entry(slurm_cluster=""))


def test_entries_that_lie_by_profile_still_count_and_can_be_forgiven(tmp_path: Path) -> None:
    for profile, slurm in (("leonardo", "boost"), ("lab", "boost"), ("leonardo", "dcgp"), ("boost", "")):
        place = tmp_path / f"{profile}@{slurm}"
        place.mkdir()
        codec.write(place / f"{profile}.json", entry(cluster=profile, slurm_cluster=slurm))
    nodes = ExclusionList(tmp_path, "third", "boost")
    entries, problems = nodes.read()
    assert (set(entries), problems) == ({"leonardo.json", "lab.json"}, ())
    nodes.add(entry(kind="forgive", cluster="third", forgives=("leonardo.json", "lab.json")))
    assert listed(nodes.read()[0]) == {}


def test_an_older_folder_that_cannot_be_listed_is_told_and_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "leonardo@boost").write_text("no folder")
    nodes = ExclusionList(tmp_path, "leonardo", "boost")
    name = nodes.add(entry())
    assert list(nodes.read()[0]) == [name]
    assert nodes.read()[1] == (f"{tmp_path / 'leonardo@boost'} cannot be listed: Not a directory",)


def add_many(nodes: ExclusionList, number: int) -> None:
    for count in range(20):
        nodes.add(entry(f"gn{number:03}", attempt=count))


def test_many_writers_at_once_lose_nothing(nodes: ExclusionList) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=add_many, args=(nodes, number)) for number in range(4)]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + 60
    while any(writer.is_alive() for writer in writers) and time.monotonic() < deadline:
        assert nodes.read()[1] == (), "no half entry is ever seen"
    for writer in writers:
        writer.join(10)
        assert writer.exitcode == 0
    entries, _ = nodes.read()
    assert len(entries) == 80
    assert [path for path in nodes.path.iterdir() if path.name.startswith(".")] == []


def test_what_cannot_be_used_is_told_and_hides_nothing(nodes: ExclusionList) -> None:
    name = nodes.add(entry())
    whole = json.loads((nodes.path / name).read_text())
    (nodes.path / "torn.json").write_text(json.dumps(whole)[:40])
    (nodes.path / "other.json").write_text(json.dumps({**whole, "slurm_cluster": "dcgp"}))
    (nodes.path / "path.json").write_text(json.dumps({**whole, "node": "/etc/passwd"}))
    (nodes.path / "late.json").write_text(json.dumps({**whole, "expires": float("inf")}))
    (nodes.path / ".aside.json").write_text("")
    entries, problems = nodes.read()
    assert list(entries) == [name]
    named = [problem.split(" ")[0].rsplit("/", 1)[1] for problem in problems]
    assert named == ["late.json", "other.json", "path.json", "torn.json"]
    assert "is of leonardo@dcgp, and is not used here" in problems[1]


def test_an_entry_of_another_cluster_or_of_no_node_is_refused(nodes: ExclusionList) -> None:
    for wrong in (entry(slurm_cluster=""), entry(slurm_cluster="dcgp"), entry("a/b"), entry("-x")):
        with pytest.raises(ValueError, match="does not belong into"):
            nodes.add(wrong)
    assert nodes.read() == ({}, ())


def test_a_group_that_shares_the_runs_shares_the_list(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    group.chmod(0o2775)
    old = os.umask(0o077)
    try:
        nodes = ExclusionList(group / ".nodes", "leonardo", "boost")
        name = nodes.add(entry())
    finally:
        os.umask(old)
    for folder in (nodes.folder, nodes.path):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o2770
    assert stat.S_IMODE((nodes.path / name).stat().st_mode) & 0o040
