from __future__ import annotations

import json
import os
import re
import shutil
import socket
from dataclasses import asdict
from pathlib import Path

import pytest

from pretrainctl.errors import InputError, LedgerError
from pretrainctl.sandbox import Sandbox
from pretrainctl.sandbox import layout as places
from pretrainctl.sandbox.layout import Layout, Settings, Shape


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    """A short folder for temporary files, as /tmp is."""
    folder = tmp_path / "t"
    folder.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(folder))
    return folder


@pytest.mark.parametrize(
    "wrong", [{"nodes": 0}, {"nodes": 65}, {"gpus": -1}, {"gpus": 17}, {"cpus": 0}, {"down_nodes": -1}]
)
def test_a_shape_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError) as error:
        Shape(**wrong)
    assert error.value.hint


def test_names_have_one_width_for_all_nodes():
    assert Shape(nodes=2).names == ("node01", "node02")
    assert Shape(nodes=1, down_nodes=99).names == ("node001",)


def test_a_short_plain_root_is_used_as_it_is():
    layout = Layout.at(Path("/tmp/sb"))
    assert layout.short == layout.root == Path("/tmp/sb")


@pytest.mark.parametrize("name", ["a folder", "x" * 80, "50%", "größe"])
def test_any_other_root_gets_a_short_plain_path_to_it(tmp_path, temporary, name):
    layout = Layout.at(tmp_path / name)
    layout.make()
    assert layout.short != layout.root
    (layout.short / "etc" / "here").touch()
    assert (layout.root / "etc" / "here").exists()
    assert Layout.at(tmp_path / name).short == layout.short
    layout.forget_short()
    assert not layout.short.is_symlink()
    assert layout.root.is_dir()


def test_socket_paths_fit_below_the_longest_root():
    layout = Layout.at(Path("/" + "x" * 59))
    assert layout.short == layout.root
    assert len(str(layout.spool("node4096") / "node4096_1234567.4294967291")) < 108


def test_a_short_path_that_somebody_else_made_is_not_followed(tmp_path, temporary):
    layout = Layout.at(tmp_path / "a folder")
    layout.short.mkdir()
    with pytest.raises(InputError):
        layout.make()


def test_two_ways_to_a_folder_are_one_sandbox(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Layout.at(tmp_path / "link") == Layout.at(tmp_path / "real")


def test_folders_are_closed_to_others(tmp_path, temporary):
    layout = Layout.at(tmp_path / "s")
    layout.make()
    for folder in (layout.root, layout.root / "run", layout.root / "etc", layout.root / "db"):
        assert folder.stat().st_mode & 0o077 == 0


def test_settings_come_back_and_broken_ones_are_an_error(tmp_path, temporary):
    layout = Layout.at(tmp_path)
    assert places.load(layout) is None
    settings = Settings(Shape(nodes=3, gpus=0), 20001, 20002, 20003, "sandbox_1")
    places.save(layout, settings)
    assert places.load(layout) == settings
    layout.settings.write_text("{")
    with pytest.raises(LedgerError):
        places.load(layout)


def test_a_folder_keeps_its_name_of_the_cluster_and_a_purged_one_comes_back_under_another(tmp_path, temporary):
    machine = Sandbox(tmp_path / "s")
    machine.layout.make()
    assert machine.cluster == ""
    first = machine._configure(Shape())
    assert re.fullmatch(r"sandbox_[0-9a-f]{8}", first.cluster)
    assert f"ClusterName={first.cluster}\n" in machine.layout.slurm_conf.read_text()
    assert machine._configure(Shape(nodes=2)).cluster == first.cluster == machine.cluster
    shutil.rmtree(machine.root)
    machine.layout.make()
    assert machine._configure(Shape()).cluster != first.cluster


def test_a_sandbox_made_before_its_name_was_kept_stays_what_slurm_calls_it(tmp_path, temporary):
    layout = Layout.at(tmp_path)
    layout.make()
    (layout.state / "clustername").write_text("sandbox_1234ab")
    before = {key: value for key, value in asdict(Settings(Shape(), 1, 2, 3)).items() if key != "cluster"}
    layout.settings.write_text(json.dumps(before))
    assert places.load(layout) == Settings(Shape(), 1, 2, 3, "sandbox_1234ab")


def test_free_ports_pass_over_one_that_is_taken(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: b"\0" * count)
    first = places.free_ports(3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 1))
        found = places.free_ports(3)
    assert not {found, found + 1, found + 2} & {first, first + 1}


def test_the_default_root_can_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PRETRAINCTL_SANDBOX", str(tmp_path / "named"))
    assert places.default_root() == tmp_path / "named"
    monkeypatch.delenv("PRETRAINCTL_SANDBOX")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert places.default_root() == tmp_path / "state" / "pretrainctl" / "sandbox"
