"""Which account is charged, and who says so: the shell's variable, the profile, and Slurm where it refuses it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pretrainctl.errors import SlurmError
from pretrainctl.records import codec
from pretrainctl.records.run import RunRecord
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows import launch
from pretrainctl.workflows.exclusions import Avoided
from pretrainctl.workflows.plan import make_plan


def warnings(*settings: str) -> list[str]:
    made = make_plan("llama-8b", "leonardo", set_values=settings, directory=Path("/home/you"))
    return [line for line in made.warnings if "account" in line]


def test_a_variable_that_replaces_the_profiles_account_is_told(
    user_configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRETRAINCTL_ACCOUNT", "theirs")
    assert warnings() == [], "the shipped profile names none"
    own = user_configuration / "cluster_profiles" / "leonardo.yaml"
    own.parent.mkdir()
    own.write_text("extends: leonardo\naccount: {name: mine}\n", encoding="utf-8")
    assert warnings() == [f"the account theirs of the variable PRETRAINCTL_ACCOUNT replaces mine ({own}:2)"]
    assert warnings("cluster.account.name=another") == [], "a setting goes before both"
    monkeypatch.setenv("PRETRAINCTL_ACCOUNT", "mine")
    assert warnings() == []
    monkeypatch.delenv("PRETRAINCTL_ACCOUNT")
    assert warnings() == []


class Refusing:
    """A Slurm that takes no job, and says why."""

    def __init__(self, words: str) -> None:
        self.words = words

    def submit(self, *_: Any, **__: Any) -> None:
        raise SlurmError(f"Slurm refused the job: {self.words}", hint="check it", status=1, stderr=self.words)


@pytest.mark.parametrize(
    ("words", "account", "hint"),
    [
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            "project01",
            "the account 'project01' was sent; cluster.account.name or PRETRAINCTL_ACCOUNT names another",
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            None,
            "no account was sent, Slurm took your default; cluster.account.name or PRETRAINCTL_ACCOUNT names another",
        ),
        ("sbatch: error: Requested time limit is invalid", "project01", "check it"),
    ],
)
def test_a_refused_account_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, account: str | None, hint: str
) -> None:
    plan = {"directives": {"account": account} if account else {}}
    codec.write(tmp_path / "run.json", RunRecord("a", "a", "a-1", "mine", 0.0, "me", {}, {}, plan))
    monkeypatch.setattr(RunFolder, "refuse_if_moved", lambda _: None)
    monkeypatch.setattr(launch, "avoid_at_submit", lambda *_: Avoided())
    asked = SimpleNamespace(chain="inside", job_name="a-1")
    with pytest.raises(SlurmError) as caught:
        launch.queue_jobs(RunFolder(tmp_path), asked, Refusing(words))  # type: ignore[arg-type]
    assert caught.value.hint.removesuffix("; check it") == hint
