"""The files of a node exclusion list: one small file an entry, never edited.

Several users on several hosts write at once, on a parallel file system: an entry is written aside, fsynced, and linked
to a name that is its own. A list belongs to one Slurm cluster, by Slurm's own name of it, whatever its profiles are
called; only where that is not known, it is the profile's. An entry of another cluster that got there is not used.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from pretrainctl.errors import LedgerError
from pretrainctl.records import codec
from pretrainctl.records.nodes import ExclusionEntry

__all__ = ["LIST_VARIABLE", "ExclusionList"]

LIST_VARIABLE = "PRETRAINCTL_NODES"
"""Folder of the node exclusion lists, over the profile's `node_list`."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_LATEST = 1e11
"""Epoch seconds, far beyond what any clock shows: a greater number cannot be printed as a date."""
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class ExclusionList:
    """The list of one cluster, in `folder`; `cluster` is the profile's name of it, `slurm_cluster` Slurm's own."""

    folder: Path
    cluster: str
    slurm_cluster: str

    @property
    def path(self) -> Path:
        """Where new entries lie: `@SLURM`, or `PROFILE@` where Slurm's name is not known."""
        name = _UNSAFE.sub("_", self.slurm_cluster)
        return self.folder / (f"@{name}" if name else f"{_UNSAFE.sub('_', self.cluster)}@")

    @property
    def shown(self) -> str:
        """The cluster as people are told of it."""
        if self.slurm_cluster:
            return f"the Slurm cluster {self.slurm_cluster}"
        return f"the cluster {self.cluster}"

    def add(self, entry: ExclusionEntry) -> str:
        """Write an entry durably, and return its name; ValueError for one of another cluster, or of no node.

        A group that may write where the list is made may write in it.
        """
        if not self._is_ours(entry) or not _NODE.fullmatch(entry.node):
            raise ValueError(f"{entry.node!r} of {entry.slurm_cluster} does not belong into {self.path}")
        self._make()
        readable = self.path.stat().st_mode & 0o044
        while True:
            path = self.path / f"{_UNSAFE.sub('_', entry.node)}-{secrets.token_hex(8)}.json"
            if codec.create(path, entry):
                with contextlib.suppress(OSError):
                    path.chmod(stat.S_IMODE(path.stat().st_mode) | readable)
                return path.name

    def read(self) -> tuple[dict[str, ExclusionEntry], tuple[str, ...]]:
        """The entries by name, and what is wrong with files that cannot be used. OSError where the folder cannot be
        listed; one that is not there is an empty list."""
        entries: dict[str, ExclusionEntry] = {}
        problems: list[str] = []
        for place in self._places():
            try:
                names = sorted(name for name in os.listdir(place) if re.fullmatch(r"[^.].*\.json", name))  # noqa: PTH208 - names
            except FileNotFoundError:
                continue
            except OSError as error:
                if place == self.path:
                    raise
                problems.append(f"{place} cannot be listed: {error.strerror}")
                continue
            for name in names:
                entry = self._read(place / name, problems)
                if entry is not None:
                    entries[name] = entry
        return entries, tuple(problems)

    def _places(self) -> tuple[Path, ...]:
        """Where entries are read: those of one Slurm once lay apart by profile, in `PROFILE@SLURM`."""
        if not self.slurm_cluster:
            return (self.path,)
        try:
            names = sorted(os.listdir(self.folder))  # noqa: PTH208 - names
        except FileNotFoundError:
            return ()
        older = tuple(self.folder / name for name in names if f"@{name.partition('@')[2]}" == self.path.name)
        return (self.path, *(place for place in older if place != self.path))

    def _read(self, path: Path, problems: list[str]) -> ExclusionEntry | None:
        try:
            entry = codec.read(ExclusionEntry, path)
        except LedgerError as error:
            problems.append(str(error))
            return None
        if not _NODE.fullmatch(entry.node):
            problems.append(f"{path} names no node: {entry.node!r}")
        elif not (0 <= entry.time < _LATEST and 0 <= entry.expires < _LATEST):
            problems.append(f"{path} has times that are none: {entry.time:g}, {entry.expires:g}")
        elif not self._is_ours(entry):
            problems.append(f"{path} is of {entry.cluster}@{entry.slurm_cluster}, and is not used here")
        else:
            return entry
        return None

    def _is_ours(self, entry: ExclusionEntry) -> bool:
        """Whether it is of this Slurm cluster, by whichever profile; without Slurm's name, of this profile."""
        same = entry.slurm_cluster == self.slurm_cluster
        return same and (self.slurm_cluster != "" or entry.cluster == self.cluster)

    def _make(self) -> None:
        for path in (self.folder, self.path):
            with contextlib.suppress(FileExistsError):
                path.mkdir(parents=True)
                shared = path.parent.stat().st_mode & (stat.S_IRWXG | stat.S_ISGID)
                path.chmod(stat.S_IMODE(path.stat().st_mode) | shared)
                codec.sync_directory(path.parent)
