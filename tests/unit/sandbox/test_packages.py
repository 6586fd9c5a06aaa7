from __future__ import annotations

import os
import shutil

import pytest

from pretrainctl import process
from pretrainctl.errors import CommandError, MissingError
from pretrainctl.process import Completed
from pretrainctl.sandbox import packages
from pretrainctl.workflows import sandbox as workflow


@pytest.fixture
def policy(monkeypatch, tmp_path):
    file = tmp_path / "policy-rc.d"
    monkeypatch.setattr(packages, "_POLICY", file)
    return file


class Apt:
    """Stands for apt-get; notes what Debian's policy said while it ran."""

    def __init__(self, policy, status=0):
        self.policy, self.status, self.calls, self.policies = policy, status, [], []

    def __call__(self, argv, *, timeout, env=None, cwd=None, stdin=None, check=True):
        assert timeout > 0
        self.calls.append(" ".join(argv))
        self.policies.append(self.policy.read_text())
        assert env["DEBIAN_FRONTEND"] == "noninteractive"
        return Completed(tuple(argv), self.status if "install" in argv else 0, "", "E: no such package\n")


@pytest.fixture
def root(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/usr/bin/{name}")
    monkeypatch.setattr(packages, "missing", list)


def test_what_is_missing_is_named_by_package(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name in ("munged", "srun") else name)
    found = packages.missing()
    assert "munge" in found
    assert "slurm-wlm" in found
    assert "slurmdbd" not in found


def test_an_ordinary_user_is_told_the_exact_command(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(MissingError) as error:
        packages.install(["munge", "slurmdbd"], say=print)
    assert "apt-get install -y --no-install-recommends munge slurmdbd" in error.value.hint


@pytest.mark.parametrize("before", [None, "#!/bin/sh\nexit 0\n"])
@pytest.mark.parametrize("status", [0, 100])
def test_no_service_starts_meanwhile_and_the_old_policy_comes_back(monkeypatch, root, policy, before, status):
    if before is not None:
        policy.write_text(before)
    apt = Apt(policy, status)
    monkeypatch.setattr(process, "run", apt)
    if status:
        with pytest.raises(CommandError, match="no such package"):
            packages.install(["munge"], say=print)
    else:
        packages.install(["munge"], say=print)
    assert apt.calls[0].endswith("update")
    assert "--no-install-recommends" in apt.calls[1]
    assert all("exit 101" in text for text in apt.policies)
    assert (policy.read_text() if policy.exists() else None) == before
    assert [file.name for file in policy.parent.iterdir()] == ([policy.name] if before else [])


def test_a_policy_that_an_interrupted_installation_moved_comes_back(monkeypatch, root, policy):
    policy.with_name("policy-rc.d.before-pretrainctl").write_text("the site's own")
    policy.write_text("left behind, exit 101")
    monkeypatch.setattr(process, "run", Apt(policy))
    packages.install(["munge"], say=print)
    assert policy.read_text() == "the site's own"


def test_a_service_that_started_all_the_same_is_an_error(monkeypatch, root, policy):
    monkeypatch.setattr(process, "run", Apt(policy))
    answers = iter([{"slurmd 7"}, {"slurmd 7", "munged 8"}])
    monkeypatch.setattr(packages, "_services", lambda: next(answers))
    with pytest.raises(CommandError, match="munged 8"):
        packages.install(["munge"], say=print)


def test_still_missing_after_the_installation_is_an_error(monkeypatch, root, policy):
    monkeypatch.setattr(process, "run", Apt(policy))
    monkeypatch.setattr(packages, "missing", lambda: ["munge"])
    with pytest.raises(MissingError, match="munge"):
        packages.install(["munge"], say=print)


def test_up_asks_before_it_installs_and_takes_no_for_an_answer(monkeypatch, tmp_path):
    monkeypatch.setattr(packages, "missing", lambda: ["munge"])
    monkeypatch.setattr(packages, "can_install", lambda: True)
    monkeypatch.setattr(packages, "install", lambda *args, **kwargs: pytest.fail("installed"))
    said, asked = [], []

    def no(question):
        asked.append(question)
        return False

    with pytest.raises(MissingError) as error:
        workflow.up(tmp_path / "s", say=said.append, confirm=no)
    assert asked
    assert "munge" in said[0]
    assert "apt-get install" in error.value.hint
    assert not (tmp_path / "s").exists()
