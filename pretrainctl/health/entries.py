"""The files of a node exclusion list: one small file an entry, never edited.

Several users on several hosts write at once, on a parallel file system: an entry is written aside, fsynced, and linked
to a name that is its own. A list belongs to one cluster, by the profile's and by Slurm's own name of it; an entry of
another one that got there is not used.
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
        """Where the entries lie."""
        return self.folder / "@".join(_UNSAFE.sub("_", name) for name in (self.cluster, self.slurm_cluster))

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
        problems = []
        try:
            names = sorted(name for name in os.listdir(self.path) if re.fullmatch(r"[^.].*\.json", name))  # noqa: PTH208 - names
        except FileNotFoundError:
            return {}, ()
        for name in names:
            try:
                entry = codec.read(ExclusionEntry, self.path / name)
            except LedgerError as error:
                problems.append(str(error))
                continue
            if not _NODE.fullmatch(entry.node):
                problems.append(f"{self.path / name} names no node: {entry.node!r}")
            elif not (0 <= entry.time < _LATEST and 0 <= entry.expires < _LATEST):
                problems.append(f"{self.path / name} has times that are none: {entry.time:g}, {entry.expires:g}")
            elif self._is_ours(entry):
                entries[name] = entry
            else:
                problems.append(f"{self.path / name} is of {entry.cluster}@{entry.slurm_cluster}, and is not used here")
        return entries, tuple(problems)

    def _is_ours(self, entry: ExclusionEntry) -> bool:
        return (entry.cluster, entry.slurm_cluster) == (self.cluster, self.slurm_cluster)

    def _make(self) -> None:
        for path in (self.folder, self.path):
            with contextlib.suppress(FileExistsError):
                path.mkdir(parents=True)
                shared = path.parent.stat().st_mode & (stat.S_IRWXG | stat.S_ISGID)
                path.chmod(stat.S_IMODE(path.stat().st_mode) | shared)
                codec.sync_directory(path.parent)
