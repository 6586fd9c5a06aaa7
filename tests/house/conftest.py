"""The package as text."""

from __future__ import annotations

from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


@pytest.fixture
def top() -> Path:
    """The folder of the checkout."""
    return TOP


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "module" in metafunc.fixturenames:
        modules = sorted(path for path in (TOP / "pretrainctl").rglob("*.py"))
        metafunc.parametrize("module", modules, ids=[str(path.relative_to(TOP)) for path in modules])
