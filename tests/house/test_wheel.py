"""The wheel: the core install alone, without a checkout, extras or network, can plan and render."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from packaging.requirements import Requirement


def closure(names):
    """The distributions that the core install brings, found in this environment."""
    found, queue = {}, list(names)
    while queue:
        requirement = Requirement(queue.pop())
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found[name] = importlib.metadata.distribution(name)
        queue += found[name].requires or []
    return found


def test_the_wheel_renders_in_an_environment_with_the_core_dependencies_only(top, tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=top,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("pretrainctl-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=60)
    (site,) = (tmp_path / "venv" / "lib").glob("python3.*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    needed = importlib.metadata.distribution("pretrainctl").requires or []
    for distribution in closure([line for line in needed if "extra ==" not in line]).values():
        for part in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = site / part
            if not link.exists():
                link.symlink_to(distribution.locate_file(part))
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    python = str(tmp_path / "venv" / "bin" / "python")
    assert (
        subprocess.run([python, "-c", "import torch"], env=environment, capture_output=True, check=False).returncode
        != 0
    ), "the environment holds more than the core dependencies"
    work = tmp_path / "elsewhere"
    work.mkdir()
    done = subprocess.run(
        [python, "-m", "pretrainctl", "render", "quickstart", "--cluster", "sandbox"],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert f"exec {python} -m pretrainctl attempt" in done.stdout
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if "/_data/" in name}
    for folder in ("recipes", "cluster_profiles", "templates"):
        for path in (top / folder).rglob("*"):
            if path.is_file():
                assert f"pretrainctl/_data/{path.relative_to(top)}" in shipped
    assert not any(name.startswith(("tests/", "recipes/", "templates/")) for name in zipfile.ZipFile(wheel).namelist())
    assert os.path.commonpath([str(work), str(Path(top))]) != str(top)
