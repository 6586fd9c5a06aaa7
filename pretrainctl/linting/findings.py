"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from pretrainctl.linting.batch import Batch
from pretrainctl.schema import ClusterProfile
from pretrainctl.schema.site import Sourced

__all__ = ["Finding", "Hit", "Rule", "source"]

Hit = tuple[int, str, str]
"""Line, reason, fix."""


@dataclass(frozen=True)
class Finding:
    """One mistake in a script."""

    line: int
    """Line of the script, from 1."""
    severity: Literal["error", "warning"]
    """`error`: Slurm or the site refuses it, ignores it, or the job does something else than the script says."""
    rule: str
    """Name of the rule."""
    reason: str
    """What happens, and why."""
    fix: str
    """What to write instead."""


@dataclass(frozen=True)
class Rule:
    """A known mistake; the docstring of `find` names the source."""

    name: str
    severity: Literal["error", "warning"]
    find: Callable[[Batch], Iterator[Hit]]

    def check(self, batch: Batch) -> Iterator[Finding]:
        """Every place of a script that has it."""
        for line, reason, fix in self.find(batch):
            yield Finding(line, self.severity, self.name, reason, fix)


def source(profile: ClusterProfile, section: Sourced | None = None, *keys: str) -> str:
    """Where what a rule knows of a site comes from: see `ClusterProfile.source_of`."""
    return f"profile {profile.name}: {profile.source_of(section, *keys)}"
