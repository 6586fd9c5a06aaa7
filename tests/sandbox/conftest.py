"""A real Slurm for these tests: up once for all of them, tidied after each."""

from __future__ import annotations

import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pretrainctl.sandbox import Sandbox, Shape, packages
from tests.sandbox.training_runs import Site


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """Four nodes that are up; taken down at the end whatever happens."""
    absent = packages.missing()
    if absent:
        packages.install(absent, say=print)
    root = Path(tempfile.mkdtemp(prefix="ptl-", dir="/tmp"))  # short: Slurm makes sockets in it
    machine = Sandbox(root)
    try:
        machine.up(Shape(nodes=4, gpus=4))
        yield machine
    finally:
        machine.down()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(autouse=True)
def _tidy(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test on the sandbox: no job left, every node back, and none on the exclusion list."""
    yield
    if "sandbox" in request.fixturenames:
        request.getfixturevalue("sandbox").reset()
    if "site" in request.fixturenames:
        request.getfixturevalue("site").forget_nodes()


@pytest.fixture(scope="session")
def site(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A user of the sandbox with tokenized data in the folder that runs are launched from."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "config").mkdir()
    environment = {
        **sandbox.environment(),
        "PRETRAINCTL_RUNS": str(folder / "runs"),
        "PRETRAINCTL_CONFIG": str(folder / "config"),
        "PRETRAINCTL_WEIGHTS_DIGEST": "1",
    }
    site = Site(folder, environment)
    source = Path(sysconfig.get_paths()["stdlib"]) / "email"
    site.python(
        *("-m", "pretrainctl.trainer.tokenize", "--input", str(source), "--suffix", ".py"),
        *("--output", str(folder / "data" / "quickstart")),
    )
    return site
