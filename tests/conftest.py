"""What every test has: none of the user's own configuration, and the options of this suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SLURM = Path(__file__).parent / "sandbox"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-stage", action="store_true", help="every fault with every ZeRO stage, and the slow ones")
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ anew instead of comparing with it"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_stage(reason): run with --every-stage alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Among several workers, one begins with the tests on the real Slurm: they take the longest."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.parent != SLURM)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker has all tests on the real Slurm, which share a machine and mostly wait; else a file stays together."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "slurm" if nodeid.startswith("tests/sandbox/") else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    marker = item.get_closest_marker("every_stage")
    if marker is not None and not item.config.getoption("--every-stage"):
        pytest.skip(f"{marker.args[0]}: with --every-stage")


@pytest.fixture(autouse=True)
def user_configuration(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration folder, which a test may fill; no variable of the user reaches a test."""
    folder = tmp_path_factory.mktemp("config")
    monkeypatch.setenv("PRETRAINCTL_CONFIG", str(folder))
    for name in ("PRETRAINCTL_ACCOUNT", "PRETRAINCTL_DEBUG", "PRETRAINCTL_RUNS"):
        monkeypatch.delenv(name, raising=False)
    return folder
