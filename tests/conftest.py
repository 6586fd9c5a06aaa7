"""What every test has: none of the user's own configuration, and the options of this suite."""

from __future__ import annotations

from pathlib import Path

import pytest

SLURM = Path(__file__).parent / "sandbox"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-stage", action="store_true", help="every fault with every ZeRO stage, and the slow ones")
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ anew instead of comparing with it"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_stage(reason): run with --every-stage alone")
    config.addinivalue_line("markers", "xdist_group(name): run by one worker, where there are several")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Among several workers, one begins with all tests on the real Slurm, which share a machine and wait most of the
    time; the tests of another file stay together, for what their fixtures cost."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.parent != SLURM)
    for item in items:
        item.add_marker(pytest.mark.xdist_group("slurm" if item.path.parent == SLURM else str(item.path)))


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
