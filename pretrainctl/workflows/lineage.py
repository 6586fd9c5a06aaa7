"""What a run trains with now, held against what it trained with before, and what of the difference was accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pretrainctl.errors import RunError
from pretrainctl.records import codec, contract
from pretrainctl.records.launch import Launch
from pretrainctl.records.lineage import Change, Lineage
from pretrainctl.recovery.consent import compare, join, open_changes
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.lineage import Gathering, bundle_facts, code_facts, data_facts, image_facts, python_facts
from pretrainctl.runs.snapshot import digest
from pretrainctl.workflows.revise import Revision
from pretrainctl.workflows.training_data import sources_of

__all__ = [
    "Difference",
    "Trained",
    "begin",
    "compare_to_trained",
    "difference",
    "finish",
    "lineage_file",
    "trained_before",
]

_PATIENCE = 30.0
"""Seconds for a command to find out what a run trains with; what is not known then is no change."""

_FILES = ("training.json", "deepspeed.json", "launch.json", "job.sbatch", "task.sh")
_DIGESTS = {
    "settings": ("training", "deepspeed", "launch", "task"),
    "code": ("code", "python.module"),
    "environment": ("python", "image"),
    "data": ("data",),
}
"""Which facts go into a digest, by the beginning of their keys."""


@dataclass(frozen=True)
class Trained:
    """What the run last trained with, and in which attempt."""

    attempt: int
    lineage: Lineage


@dataclass(frozen=True)
class Difference:
    """All changes since the attempt that trained last; `waiting` are those that need a consent that nobody gave."""

    since: int
    changes: tuple[Change, ...] = ()
    waiting: tuple[Change, ...] = ()


def lineage_file(run_dir: Path, attempt: int) -> Path:
    """`attempts/NNNN/lineage.json`."""
    return contract.attempt_dir(run_dir, attempt) / "lineage.json"


def trained_before(run: RunFolder, *, before: int | None = None) -> Trained | None:
    """What the attempts that started the program, older than `before`, trained with; None where none recorded it.

    Older ones are read only for what the newer ones could not find out.
    """
    newest: Trained | None = None
    for number in reversed([int(path.name) for path in run.attempt_dirs()]):
        if (before is not None and number >= before) or not run.restarts(number):
            continue
        lineage = codec.read_if_whole(Lineage, lineage_file(run.path, number))
        if lineage is not None:
            newest = (
                Trained(number, lineage) if newest is None else replace(newest, lineage=join([lineage, newest.lineage]))
            )
            if not newest.lineage.unknown:
                break
    return newest


def begin(
    run: RunFolder,
    launch: Launch,
    *,
    known: Lineage | None,
    job_environment: Mapping[str, str] | None,
    files: Mapping[str, str] | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> Gathering:
    """Begin to find out what the run trains with.

    `known` saves reading data again. `job_environment` is that of a job, None elsewhere: without its modules the Python
    that trains would say something else, so it is not asked. `files` stand for those of the bundle, and `recipe` for
    the run's, where they are yet to be written.
    """
    gathering = Gathering()
    old = known.facts if known is not None else {}
    gathering.add("data", lambda: data_facts(sources_of(recipe or run.planned().recipe), old))
    gathering.add("code", lambda: code_facts(launch, run.path))
    gathering.add("image", lambda: image_facts(launch))
    if job_environment is not None:
        gathering.add("python", lambda: python_facts(launch, job_environment))
    for name in ("training", "deepspeed", "launch", "job", "task"):
        gathering.add(name, lambda name=name: (_settings(run, name, files), {}))  # type: ignore[misc]
    return gathering


def finish(gathering: Gathering, run: RunFolder, seconds: float) -> Lineage:
    """What was found out within `seconds` of the beginning, with digests of each part."""
    found = gathering.collect(seconds)
    planned = run.planned()
    digests = {name: _digest(found.facts, keys) for name, keys in _DIGESTS.items()}
    digests |= {"recipe": digest(str(planned.recipe)), "profile": digest(str(planned.profile))}
    unknown = dict(found.unknown)
    if not any(key.startswith("python.") for key in found.facts):
        unknown.setdefault("python", "asked in jobs only")
    return replace(found, unknown=unknown, digests=digests)


def difference(run: RunFolder, trained: Trained | None, now: Lineage) -> Difference:
    """How `now` differs from what was trained with, less what `resume --accept` has accepted since."""
    if trained is None:
        return Difference(0)
    changes = compare(trained.lineage, now)
    return Difference(trained.attempt, tuple(changes), tuple(open_changes(changes, _accepted(run, trained))))


def compare_to_trained(
    run: RunFolder, launch: Launch, revision: Revision | None = None
) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
    """All changes since the run last trained, as far as they show outside a job, and those that wait for consent."""
    trained = trained_before(run)
    if trained is None:
        return (), ()
    files, recipe = (revision.files, revision.planned.recipe) if revision is not None else (None, None)
    gathering = begin(run, launch, known=trained.lineage, job_environment=None, files=files, recipe=recipe)
    now = finish(gathering, run, _PATIENCE)
    found = difference(run, trained, now)
    in_job = _found_in_job(run, trained, now)
    waiting = open_changes(in_job, _accepted(run, trained))
    return (*found.changes, *in_job), (*found.waiting, *waiting)


def _accepted(run: RunFolder, trained: Trained) -> set[tuple[str, str]]:
    """(key, value) of what was accepted since the run last trained."""
    return {
        (str(change.get("key")), str(change.get("after")))
        for event in ledger.read_events(run.path, 0)
        if event.kind == "change_accepted" and event.after_attempt >= trained.attempt
        for change in event.data.get("changes", [])
    }


def _found_in_job(run: RunFolder, trained: Trained, now: Lineage) -> list[Change]:
    """Changes for which the newest attempt stopped, and of which nothing can be known here."""
    last = ledger.newest_attempt(run.path)
    if last <= trained.attempt:
        return []
    return [
        Change(str(one.get("key")), str(one.get("before")), str(one.get("after")), alters=True)
        for event in ledger.read_events(run.path, last)
        if event.kind == "lineage"
        for one in event.data.get("waiting", [])
        if not now.knows(str(one.get("key")))
    ]


def _settings(run: RunFolder, name: str, files: Mapping[str, str] | None) -> dict[str, str]:
    found = bundle_facts(_texts(run, files))
    return {key: value for key, value in found.items() if key == name or key.startswith(f"{name}.")}


def _texts(run: RunFolder, files: Mapping[str, str] | None) -> Mapping[str, str]:
    if files is not None:
        return files
    paths = [run.bundle / name for name in _FILES]
    try:
        return {path.name: path.read_text(encoding="utf-8", errors="replace") for path in paths if path.exists()}
    except OSError as error:
        raise RunError(f"{error.filename} cannot be read: {error.strerror}") from error


def _digest(facts: Mapping[str, str], keys: Sequence[str]) -> str:
    chosen = {
        key: value
        for key, value in sorted(facts.items())
        if any(key == name or key.startswith(f"{name}.") for name in keys)
    }
    return digest(str(chosen))
