"""Which profile is meant on a host that several know."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pretrainctl import catalog
from pretrainctl.cli.main import main
from pretrainctl.errors import InputError
from pretrainctl.workflows.place import find_told

HOST = "login01.leonardo.local"
ACCOUNT = "account: {name: EUHPC_E01_001}\n"


@pytest.fixture
def own(user_configuration: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("socket.getfqdn", lambda: HOST)
    monkeypatch.delenv("PRETRAINCTL_ACCOUNT", raising=False)
    folder = user_configuration / "cluster_profiles"
    folder.mkdir()
    return folder


def test_ones_own_profile_comes_before_the_shipped_one_that_it_extends(own: Path) -> None:
    assert find_told() == ("leonardo", "")
    (own / "my-leo.yaml").write_text(f"extends: leonardo\n{ACCOUNT}")
    assert catalog.here() == "my-leo"
    said = f"cluster my-leo ({catalog.short_path(own / 'my-leo.yaml')}), and not leonardo, which knows this host too"
    assert find_told() == ("my-leo", said)
    (own / "nearer.yaml").write_text("extends: my-leo\n")
    assert catalog.find_here() == catalog.Here("nearer", str(own / "nearer.yaml"), ("leonardo", "my-leo"))


def test_one_of_the_shipped_name_is_the_only_one(own: Path) -> None:
    (own / "leonardo.yaml").write_text(f"extends: leonardo\n{ACCOUNT}")
    assert find_told() == ("leonardo", "")
    assert catalog.load_profile("leonardo").account.name == "EUHPC_E01_001"


def test_one_that_extends_nothing_of_the_site_comes_first_too(own: Path) -> None:
    (own / "other.yaml").write_text("extends: sandbox\nhosts: {login: ['login01[.]leonardo.*']}\n")
    assert catalog.here() == "other"


def test_two_of_ones_own_are_named_and_neither_is_taken(own: Path) -> None:
    for name in ("a-leo", "b-leo"):
        (own / f"{name}.yaml").write_text(f"extends: leonardo\n{ACCOUNT}")
    with pytest.raises(InputError, match=r"2 cluster profiles know this host.*: a-leo \(.*\) and b-leo \(") as caught:
        catalog.here()
    assert caught.value.hint == "say --cluster a-leo or --cluster b-leo"


def test_a_command_says_once_which_it_took(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "my-leo.yaml").write_text(f"extends: leonardo\n{ACCOUNT}")
    monkeypatch.chdir(tmp_path)
    for more in ((), ("--cluster", "my-leo")):
        monkeypatch.setattr(sys, "argv", ["pretrainctl", "explain", "llama-1b", *more])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        assert not caught.value.code
        assert "--account=EUHPC_E01_001" in out
        assert err.count("and not leonardo, which knows this host too") == (not more)
