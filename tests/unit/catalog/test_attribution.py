"""Whose a value is: the profile's source, or the file of one's own that sets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl import catalog
from pretrainctl.errors import InputError
from pretrainctl.linting.findings import source
from pretrainctl.workflows.plan import make_plan

OWN = """\
extends: marenostrum5
account: {name: ehpc01}
signals:
  lead: 20m
node:
  gpus: 2
queues:
  - name: mine
    partition: acc
    qos: acc_ehpc
    purpose: production
    max_nodes: 10
    max_walltime: 1d
"""


@pytest.fixture
def own(user_configuration: Path) -> str:
    folder = user_configuration / "cluster_profiles"
    folder.mkdir()
    (folder / "marenostrum5.yaml").write_text(OWN, encoding="utf-8")
    return str(folder / "marenostrum5.yaml")


def refused(*settings: str) -> str:
    with pytest.raises(InputError) as caught:
        make_plan("llama-8b", "marenostrum5", set_values=settings)
    return str(caught.value)


def test_a_limit_of_ones_own_is_not_the_sites(own: str) -> None:
    assert f"mine: 32 nodes, at most 10 ({own}:12)" in refused()
    said = refused("resources.nodes=8", "resources.walltime=2d")
    assert f"at most 1-00:00:00 ({own}:13)" in said
    assert "BSC" not in said
    assert f"has 2 ({own}:6)" in refused("resources.nodes=8", "resources.walltime=1d", "resources.gpus_per_node=4")


def test_a_value_of_the_site_keeps_its_source_beside_ones_own(own: str) -> None:
    profile = catalog.load_profile("marenostrum5")
    shipped = str(profile.node.provenance)
    assert profile.source_of(profile.node, "cpus") == shipped
    assert profile.source_of(profile.node, "gpus", "cpus") == f"{shipped}; gpus: {own}:6"
    assert profile.source_of(profile.signals, "lead") == f"{own}:4"
    assert profile.source_of(profile.account, "required") == str(profile.account.provenance)
    assert profile.source_of(profile.account, "name") == f"{own}:2"
    assert profile.source_of(profile.queues[0]) == f"{own}:8"
    assert source(profile, profile.queues[0]) == f"profile marenostrum5: {own}:8"


def test_a_setting_is_its_own_source() -> None:
    profile = catalog.load_profile("sandbox", ["queues.0.max_nodes=2", "default_partition=x"])
    assert profile.source_of(profile.queues[0], "max_nodes") == "--set cluster.queues.0.max_nodes"
    assert profile.source_of(profile.queues[0], "max_walltime") == "pretrainctl's own sandbox, 2026-11"
    assert profile.source_of(None, "default_partition") == "--set cluster.default_partition"
    assert profile.source_of(None) == "pretrainctl's own sandbox, 2026-11"


def test_a_source_that_ones_own_file_names_stands(own: str) -> None:
    Path(own).write_text(OWN + "    provenance: {source: help desk, as_of: 2026-10, confidence: official}\n")
    assert "at most 10 (help desk, 2026-10)" in refused()


def test_who_names_a_new_source_speaks_for_what_lies_under_it(own: str) -> None:
    new = "signals.provenance={source: measured here, as_of: 2026-11, confidence: measured}"
    profile = catalog.load_profile("marenostrum5", [new, "node.cpus=7"])
    assert profile.source_of(profile.signals, "lead", "write_rate") == "measured here, 2026-11"
    assert profile.source_of(profile.node, "gpus", "cpus") == f"{own}:6, --set cluster.node.cpus"


def test_a_file_between_ones_own_and_the_shipped_one_is_told_too(own: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"extends: {own}\nsignals: {{write_rate: 1GB}}\n")
    profile = catalog.load_profile(str(tmp_path / "mine.yaml"))
    assert profile.source_of(profile.signals, "lead") == f"{own}:4"
    assert profile.source_of(profile.signals, "write_rate") == f"{tmp_path}/mine.yaml:2"


def test_a_profile_without_additions_is_all_the_sites() -> None:
    for name in catalog.names("cluster_profiles"):
        profile = catalog.load_profile(name)
        for section in (profile.node, profile.request, profile.signals, *profile.queues, *profile.storage):
            assert profile.source_of(section) == str(section.provenance or profile.provenance)
