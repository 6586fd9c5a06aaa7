"""A run folder: made once, found by path or name, read by everybody."""

from __future__ import annotations

import errno
import getpass
import os
import re
import secrets
import shlex
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from pretrainctl.errors import InputError, LedgerError, RunError
from pretrainctl.records import codec, contract
from pretrainctl.records.launch import Bundle, Launch
from pretrainctl.records.lineage import Planned
from pretrainctl.records.run import AttemptRecord, Event, RunRecord
from pretrainctl.runs import ledger

__all__ = [
    "RUNS_VARIABLE",
    "RunFolder",
    "all_runs",
    "check_name",
    "create",
    "discard",
    "find",
    "missing_roots",
    "refuse_existing",
    "roots",
]

RUNS_VARIABLE = "PRETRAINCTL_RUNS"
"""Folders that hold run folders, separated by `:`; the first takes new runs. Default: `runs` where one stands."""

_LONGEST = 200
"""Bytes; a file system holds 255, and Slurm and we add some."""
_NAME = re.compile("[^\x00-\x1f/\ud800-\udfff]{1,200}")


class RunFolder:
    """One run on disk. Opening it reads and checks `run.json`; the rest is read when asked for."""

    def __init__(self, path: Path) -> None:
        if not _may_hold_run(path):
            raise RunError(f"{path} is no run folder: it holds no run.json", hint="`pretrainctl status` lists the runs")
        self.path = path.absolute()
        self.record = codec.read(RunRecord, path / "run.json")

    @property
    def bundle(self) -> Path:
        """Exactly what was submitted."""
        return self.path / "bundle"

    @property
    def script(self) -> Path:
        """The batch script."""
        return self.bundle / "job.sbatch"

    def job_log(self, job_id: int) -> Path:
        """What the batch script of a job printed."""
        return self.path / "attempts" / f"slurm-{job_id}.out"

    def refuse_if_moved(self) -> None:
        """RunError where the batch script was written for another folder: its jobs would end before they began. Those
        that run are the other folder's, where this is a copy. Without a script that can be read nothing is known."""
        try:
            launched = self.launched_as()
        except (OSError, ValueError, IndexError):
            return
        if not launched.exists():
            raise RunError(
                f"{self.path} was launched as {launched}, and its scripts say so",
                hint="move it back, or put a symbolic link there",
            )
        if not self.path.samefile(launched):
            raise RunError(
                f"{self.path} is a copy: the run was launched as {launched}, and its jobs are that folder's",
                hint=f"give the command for {launched}",
            )

    def refuse_foreign(self) -> None:
        """RunError where nothing is to be done to the run from here: it is another user's, or this is not the folder
        that it was launched in. To be asked before anything is written."""
        self.refuse_others()
        self.refuse_if_moved()

    def launched_as(self) -> Path:
        """The folder that the batch script names."""
        return Path(shlex.split(self.script.read_text(encoding="utf-8").rstrip().splitlines()[-1])[-1])

    def is_own(self) -> bool:
        """Whether this user launched the run."""
        return self.record.user == getpass.getuser()

    def refuse_others(self) -> None:
        """RunError where the run belongs to another user, whose jobs we neither see nor may touch."""
        if not self.is_own():
            raise RunError(
                f"the run {self.record.name!r} belongs to {self.record.user}",
                hint="ask them; `status`, `logs`, `metrics` and `checkpoints` work for everybody",
            )

    def launch(self) -> Launch:
        """The launch record."""
        return codec.read(Launch, self.bundle / "launch.json")

    def planned(self) -> Planned:
        """Recipe, profile and plan as they are now: those of the launch, or of the last `resume` that changed them."""
        if (self.path / "plan.json").exists():
            return codec.read(Planned, self.path / "plan.json")
        return Planned(self.record.recipe, self.record.profile, self.record.plan, self.record.settings)

    def attempts(self) -> list[AttemptRecord]:
        """Attempts in order; an attempt whose record cannot be read is a LedgerError.

        Where a record was set aside, the attempt's first event tells what it said. A folder with neither is no attempt.
        """
        found = []
        for path in self.attempt_dirs():
            number = int(path.name)
            if (path / "attempt.json").exists():
                found.append(ledger.read_attempt(self.path, number))
            elif told := ledger.read_events(self.path, number):
                found.append(self._from_events(number, told))
        return found

    @staticmethod
    def _from_events(attempt: int, told: Sequence[Event]) -> AttemptRecord:
        claimed = [event for event in told if event.kind == "claimed"]
        data, host, begun = (claimed[0].data, claimed[0].host, claimed[0].time) if claimed else ({}, "", 0.0)
        return AttemptRecord(attempt, int(data.get("job_id", 0)), int(data.get("slurm_restart", 0)), host, 0, (), begun)

    def attempt_dirs(self) -> list[Path]:
        """Folders of attempts in order."""
        return [contract.attempt_dir(self.path, number) for number in ledger.attempt_numbers(self.path)]

    def restarts(self, attempt: int) -> list[int]:
        """Numbers of the restarts of an attempt, in order."""
        folder = contract.attempt_dir(self.path, attempt)
        if not folder.is_dir():
            return []
        found = (re.fullmatch(r"restart-(\d+)", path.name) for path in folder.iterdir())
        return sorted(int(match.group(1)) for match in found if match)

    def restart_dirs(self) -> Iterator[tuple[int, int, Path]]:
        """(attempt, restart, folder) of every restart, in order."""
        for path in self.attempt_dirs():
            attempt = int(path.name)
            for restart in self.restarts(attempt):
                yield attempt, restart, contract.restart_dir(self.path, attempt, restart)


def _may_hold_run(path: Path) -> bool:
    """Whether a run.json lies in a folder, or whether one does cannot be known: its reader then says why."""
    try:
        return stat.S_ISREG((path / "run.json").stat().st_mode)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise
        return error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


def create(path: Path, record: RunRecord, bundle: Bundle) -> RunFolder:
    """Make a run folder in one rename: it exists whole or not at all, and its first event says that nothing was
    submitted, so that a launch which ends in any moment from here on leaves no run that goes on.

    RunError where `path` exists already. OSError (no space, no permission) leaves nothing behind.
    """
    refuse_existing(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".new-run-{secrets.token_hex(8)}")
    try:
        for name in ("bundle", "code", "events", "control", "attempts"):
            (aside / name).mkdir(parents=True, exist_ok=True)
        for name, text in bundle.files.items():
            (aside / "bundle" / name).write_text(text, encoding="utf-8")
            if text.startswith("#!"):
                (aside / "bundle" / name).chmod(0o755)
        codec.write(aside / "run.json", record)
        ledger.append(aside, "made", "the run folder was made, and nothing was submitted")
        aside.rename(path)
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if isinstance(error, OSError):
            refuse_existing(path)  # somebody else made it in the same moment
        raise
    codec.sync_directory(path.parent)
    return RunFolder(path)


def discard(run: RunFolder) -> None:
    """Remove a run folder whose run never began. From its first moment on nobody takes it for a run."""
    aside = run.path.with_name(f".old-run-{secrets.token_hex(8)}")
    run.path.rename(aside)
    shutil.rmtree(aside)


def refuse_existing(path: Path) -> None:
    """RunError where something stands at `path` already."""
    if path.exists():
        raise RunError(
            f"the run {path.name!r} exists already in {path.parent}",
            hint=f"give another name with --name, or go on with `pretrainctl resume {path.name}`",
        )


def check_name(name: str) -> str:
    """A name that can be a folder's; InputError where it cannot."""
    if not _NAME.fullmatch(name) or len(name.encode()) > _LONGEST or name in {".", ".."} or name.startswith((".", "-")):
        raise InputError(
            f"{name!r} cannot be the name of a run",
            hint="at most 200 bytes of UTF-8, no slash, no control character, and no dot or dash at the start",
        )
    return name


def roots() -> list[Path]:
    """Folders that hold runs, the one for new runs first."""
    named = [Path(text) for text in os.environ.get(RUNS_VARIABLE, "").split(":") if text]
    return [path.absolute() for path in named] or [Path("runs").absolute()]


def missing_roots() -> list[Path]:
    """Roots that PRETRAINCTL_RUNS names and that do not exist."""
    return [root for root in roots() if os.environ.get(RUNS_VARIABLE) and _is_missing(root)]


def _is_missing(root: Path) -> bool:
    try:
        root.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # `all_runs` says what is wrong with it
    return False


def all_runs(*, own: bool = False) -> tuple[list[RunFolder], list[RunError]]:
    """Every run under the roots, oldest first, and what could not be read there; with `own` nothing of other people.

    One that is there by several names, through links, is one run: by the name that is no link, where there is one.
    """
    found: dict[Path, RunFolder] = {}
    unreadable: list[RunError] = []
    for root in roots():
        try:
            paths = sorted(root.iterdir())
        except OSError as error:
            if error.errno != errno.ENOENT:
                unreadable.append(LedgerError(f"{root} cannot be read: {error.strerror}"))
            continue
        for path in paths:
            try:
                if path.name.startswith(".") or not _may_hold_run(path):
                    continue
                place = path.resolve()
                if place not in found or place == path:
                    found[place] = RunFolder(path)
            except RunError as error:
                unreadable += [] if own and _is_of_others(path) else [error]
            except (OSError, RuntimeError) as error:  # resolve() says of a circle of links that it is a RuntimeError
                unreadable.append(LedgerError(f"{path} cannot be read: {error}"))
    runs = (run for run in found.values() if not own or run.is_own())
    return sorted(runs, key=lambda run: run.record.created), unreadable


def _is_of_others(path: Path) -> bool:
    try:
        return path.lstat().st_uid != os.geteuid()
    except OSError:
        return False


def find(name: str) -> RunFolder:
    """A run by its path, or by its name under the roots; RunError with what there is when it is not found.

    InputError for an empty name, which as a path would be the current folder, and for one that several runs have.
    """
    if not name:
        raise InputError("the name of the run is empty", hint="`pretrainctl status` lists the runs")
    path = Path(name)
    is_folder = os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises where a folder above cannot be searched
    if is_folder and (path.is_absolute() or "/" in name):
        return RunFolder(path)
    places = [place for place in (path.absolute(), *(root / name for root in roots())) if _may_hold_run(place)]
    if places:
        _refuse_ambiguous(name, places)
        return RunFolder(path if places[0] == path.absolute() else places[0])
    if is_folder:
        return RunFolder(path)
    known = ", ".join(run.record.name for run in all_runs()[0]) or "none"
    raise RunError(f"there is no run {name!r}", hint=f"runs under {':'.join(map(str, roots()))}: {known}")


def _refuse_ambiguous(name: str, places: Sequence[Path]) -> None:
    """InputError where runs stand at several of `places`, by whatever links; at one that cannot be read nothing is
    known to stand."""
    runs = {place.resolve(): place for place in reversed(places) if os.path.isfile(place / "run.json")}  # noqa: PTH113
    if len(runs) > 1:
        raise InputError(
            f"{len(runs)} runs are called {name!r}",
            hint=f"give the folder of the one that is meant: {' or '.join(map(str, reversed(runs.values())))}",
        )
