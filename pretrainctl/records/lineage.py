"""What an attempt trained with, as facts that can be held against those of another attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Change", "Lineage", "Planned"]


@dataclass(frozen=True)
class Lineage:
    """`attempts/NNNN/lineage.json`. `facts`: a dotted key, whose first word is what it is about, to a short value.

    `unknown`: a key, or the beginning of keys, of which nothing could be found out, and why: that is no change.
    `digests`: of recipe, profile, and of the facts about settings, code, environment and data as a whole.
    """

    facts: Mapping[str, str]
    unknown: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    def knows(self, key: str) -> bool:
        """Whether this key is one about which something could be found out."""
        return not any(key == name or key.startswith(f"{name}.") for name in self.unknown)


@dataclass(frozen=True)
class Change:
    """One fact that is another one now, empty for one that is not there. `alters`: it may change what is trained."""

    key: str
    before: str
    after: str
    alters: bool

    def __str__(self) -> str:
        return f"{self.key} {self.before or '(none)'} -> {self.after or '(none)'}"


@dataclass(frozen=True)
class Planned:
    """`plan.json`: recipe, profile and plan since the last `resume` that changed them; `run.json` has the first.

    `settings`: what was given by `--set`, at the launch and since, which is in the recipe and the profile already.
    """

    recipe: Mapping[str, Any]
    profile: Mapping[str, Any]
    plan: Mapping[str, Any]
    settings: tuple[str, ...] = ()
