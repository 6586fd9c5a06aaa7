"""Finds out what a run trains with: its bundle, data, image, code, and the Python that trains.

Cheap at any size: of data a few blocks are read, and only where size or time are new; torch is never imported. All of
it can be done beside other work, in threads that nobody waits for longer than they are worth.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pretrainctl import __version__, process
from pretrainctl.errors import CommandError, MissingError, PretrainctlError
from pretrainctl.records.launch import Launch
from pretrainctl.records.lineage import Lineage
from pretrainctl.runs.probe import probe_argv, read_probe
from pretrainctl.runs.snapshot import digest

__all__ = [
    "NOT_THERE",
    "Gathering",
    "bundle_facts",
    "code_facts",
    "data_facts",
    "image_facts",
    "python_facts",
    "sampled_digest",
]

NOT_THERE = "the file is not there"
"""Why nothing is known of it."""
_BLOCK = 4096
_BLOCKS = 32
_TIMEOUT = 10.0
"""Seconds for one answer of git or of the training Python."""
_LARGEST = 4 << 20
"""Bytes of a file of the program that are read."""
_READERS = 8
_SHORT = 12

Facts = dict[str, str]


class Gathering:
    """Facts that are found out in threads of their own; `collect` takes those that are there in time."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[threading.Thread, dict[str, tuple[Facts, dict[str, str]]]]] = {}
        self._begun = time.monotonic()

    def add(self, name: str, find: Callable[[], tuple[Facts, dict[str, str]]]) -> None:
        """Begin to find out `name`, the beginning of its keys; `find` returns facts, and what is unknown with why."""
        answer: dict[str, tuple[Facts, dict[str, str]]] = {}

        def work() -> None:
            try:
                answer["is"] = find()
            except (OSError, PretrainctlError, ValueError) as error:
                answer["is"] = {}, {name: str(error)}

        thread = threading.Thread(target=work, daemon=True)
        self._parts[name] = thread, answer
        thread.start()

    def collect(self, seconds: float) -> Lineage:
        """What is known `seconds` after the beginning, or as soon as all is; the rest is unknown."""
        facts: Facts = {}
        unknown: dict[str, str] = {}
        for name, (thread, answer) in self._parts.items():
            thread.join(max(0.0, seconds - (time.monotonic() - self._begun)))
            found, missing = answer.get("is", ({}, {name: f"not known within {seconds:g} s"}))
            facts |= found
            unknown |= missing
        return Lineage(facts, unknown)


def bundle_facts(files: Mapping[str, str]) -> Facts:
    """The settings in the bundle's files, one fact a value; `files` is text by name."""
    facts: Facts = {}
    for name in ("training", "deepspeed", "launch"):
        text = files.get(f"{name}.json")
        if text is None:
            continue
        try:
            _flatten(name, json.loads(text), facts)
        except (ValueError, RecursionError):
            facts[name] = f"unreadable, {digest(text)[:_SHORT]}"
    script = files.get("job.sbatch", "").splitlines()
    for line in script:
        if line.startswith("#SBATCH --"):
            option, _, value = line.removeprefix("#SBATCH --").partition("=")
            facts[f"job.{option.strip()}"] = value.strip() or "given"
    if script:
        facts["job"] = digest("\n".join(_said(script)))[:_SHORT]
    if "task.sh" in files:
        facts["task"] = digest("\n".join(_said(files["task.sh"].splitlines())))[:_SHORT]
    return facts


def _said(lines: Sequence[str]) -> list[str]:
    """Lines of a script that do something."""
    return [line.rstrip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _flatten(key: str, value: Any, facts: Facts) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            _flatten(f"{key}.{name}", item, facts)
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for index, item in enumerate(value):
            _flatten(f"{key}.{index}", item, facts)
    else:
        facts[key] = value if isinstance(value, str) else json.dumps(value)


def data_facts(prefixes: Sequence[Path], known: Mapping[str, str]) -> tuple[Facts, dict[str, str]]:
    """Size, time and a sampled digest of each `.bin` and `.idx`; the digest of `known` where size and time are its.

    What is not there is unknown: on this host, a file system may not be mounted.
    """
    files = [prefix.with_name(prefix.name + suffix) for prefix in prefixes for suffix in (".bin", ".idx")]
    facts: Facts = {}
    unknown: dict[str, str] = {}

    def work(part: Sequence[Path]) -> None:
        for path in part:
            try:
                facts.update(_file_facts(path, known))
            except (FileNotFoundError, NotADirectoryError):
                unknown[f"data.{path}"] = NOT_THERE
            except OSError as error:
                unknown[f"data.{path}"] = error.strerror or str(error)

    readers = [
        threading.Thread(target=work, args=(files[index::_READERS],), daemon=True)
        for index in range(min(_READERS, len(files)))
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return facts, unknown


def _file_facts(path: Path, known: Mapping[str, str]) -> Facts:
    key, status = f"data.{path}", path.stat()
    facts = {f"{key}.size": str(status.st_size), f"{key}.mtime": str(status.st_mtime_ns)}
    old = known.get(f"{key}.digest", "")
    same = all(known.get(name) == value for name, value in facts.items())
    return {**facts, f"{key}.digest": old if same and old else sampled_digest(path, status.st_size)}


def sampled_digest(path: Path, size: int) -> str:
    """SHA-256 of 32 blocks of 4 KiB, evenly spread, the first and the last among them; of all of a small file."""
    hashed = hashlib.sha256(str(size).encode())
    with path.open("rb", buffering=0) as file:
        if size <= _BLOCK * _BLOCKS:
            hashed.update(file.read())
        else:
            for index in range(_BLOCKS):
                file.seek((size - _BLOCK) * index // (_BLOCKS - 1))
                hashed.update(file.read(_BLOCK))
    return hashed.hexdigest()[:_SHORT]


def image_facts(launch: Launch) -> tuple[Facts, dict[str, str]]:
    """Path, size and time of the container image."""
    if not launch.container:
        return {}, {}
    image = Path(launch.container[-1])
    status = image.stat()
    return {
        "image.path": str(image),
        "image.size": str(status.st_size),
        "image.mtime": str(status.st_mtime_ns),
    }, {}


def python_facts(launch: Launch, environment: Mapping[str, str]) -> tuple[Facts, dict[str, str]]:
    """Versions of the Python that trains and of what it would import, and a digest of the module that it runs."""
    argv = probe_argv(launch)
    if not argv:
        return {}, {"python": "the program does not begin with a Python"}
    answer = process.run(argv, timeout=_TIMEOUT, env={**environment, **launch.environment})
    return read_probe(answer.stdout), {}


def code_facts(launch: Launch, run_dir: Path) -> tuple[Facts, dict[str, str]]:
    """Digests of the program's own files that its argv names, and of the git work trees in which they lie."""
    facts: Facts = {"code.pretrainctl": __version__}
    unknown: dict[str, str] = {}
    trees: set[str] = set()
    words = [word for word in launch.program if not word.startswith("-")]
    for path in dict.fromkeys(run_dir / word for word in words[1:]):
        if path.suffix not in {".py", ".sh"} or not path.is_file():
            continue
        facts[f"code.file.{path}"] = hashlib.sha256(path.read_bytes()[:_LARGEST]).hexdigest()[:_SHORT]
        try:
            found = _git(path.parent, "rev-parse", "--show-toplevel", "HEAD").split("\n")
        except (CommandError, MissingError):
            continue  # in no work tree: its own digest is all there is
        top, commit = found[0], found[1][:_SHORT]
        if top in trees:
            continue
        trees.add(top)
        facts[f"code.commit.{top}"] = commit
        try:
            facts[f"code.tree.{top}"] = _tree(Path(top))[:_SHORT]
        except (CommandError, OSError) as error:
            unknown[f"code.tree.{top}"] = str(error)
    return facts, unknown


def _tree(top: Path) -> str:
    """The id that git would give to the tracked files as they are now: a commit of what is there leaves it the same."""
    index, objects = _git(top, "rev-parse", "--git-path", "index", "--git-path", "objects").split("\n")[:2]
    with tempfile.TemporaryDirectory(prefix="pretrainctl-") as folder:
        aside = Path(folder)
        (aside / "objects").mkdir()
        shutil.copyfile(top / index, aside / "index")
        environment = {
            "GIT_INDEX_FILE": str(aside / "index"),
            "GIT_OBJECT_DIRECTORY": str(aside / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(top / objects),
        }
        _git(top, "add", "--update", environment=environment)
        return _git(top, "write-tree", environment=environment)


def _git(folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> str:
    known = {name: value for name, value in os.environ.items() if not re.match("GIT_(DIR|WORK|INDEX|OBJ|ALT)", name)}
    argv = ["git", "-C", str(folder), *words]
    return process.run(argv, timeout=_TIMEOUT, env={**known, **(environment or {})}).stdout.strip()
