"""What the Python that trains says of itself, asked without importing torch: 0.1 s, a container's start besides."""

from __future__ import annotations

import json
from pathlib import Path

from pretrainctl.records.launch import Launch

__all__ = ["probe_argv", "read_probe"]

_FOREIGN = {"torch", "deepspeed", "accelerate"}
"""Packages whose version says enough: launchers that come with the environment."""

_PROGRAM = r"""
import hashlib, importlib.util, json, os, platform, re, sys
from importlib import metadata
facts = {"python.version": platform.python_version(), "python.path": os.environ.get("PYTHONPATH", "")}
facts["python.modules"] = os.environ.get("LOADEDMODULES", "")
for name in ("torch", "deepspeed", "numpy"):
    try:
        facts["python." + name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
torch = importlib.util.find_spec("torch")
if torch is not None and torch.origin:
    try:
        with open(os.path.join(os.path.dirname(torch.origin), "version.py")) as file:
            found = re.search(r"^cuda\b[^=]*=\s*['\"]([^'\"]+)", file.read(), re.M)
        if found:
            facts["python.cuda"] = found[1]
    except OSError:
        pass
module = sys.argv[1]
spec = importlib.util.find_spec(module.split(".")[0]) if module else None
if spec is not None and spec.origin:
    place = os.path.join(os.path.dirname(spec.origin), *module.split(".")[1:])
    if not os.path.isdir(place):
        place = os.path.dirname(place)
    hashed = hashlib.sha256()
    for folder, folders, names in os.walk(place):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                hashed.update(os.path.relpath(os.path.join(folder, name), place).encode())
                with open(os.path.join(folder, name), "rb") as file:
                    hashed.update(file.read())
    facts["python.module." + module] = hashed.hexdigest()[:12]
print(json.dumps(facts))
"""


def probe_argv(launch: Launch) -> list[str]:
    """The argv that asks the Python of the training program, in its container; empty where it begins with none."""
    python, *words = launch.program
    if not Path(python).name.startswith("python"):
        return []
    module = words[1] if words[:1] == ["-m"] and len(words) > 1 else ""
    if module.split(".")[0] in _FOREIGN:
        module = ""
    return [*launch.container, python, "-c", _PROGRAM, module]


def read_probe(answer: str) -> dict[str, str]:
    """The facts in what it printed; ValueError where that is no answer."""
    lines = answer.strip().splitlines()  # a container, or a sitecustomize, may print something before
    facts = json.loads(lines[-1]) if lines else None
    if not isinstance(facts, dict):
        raise ValueError("the training Python did not say what it is")
    return {str(key): str(value) for key, value in facts.items() if value != ""}
