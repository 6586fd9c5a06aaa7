"""What a row of the drill's table is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pretrainctl.workflows.drill.scene import Scene
from pretrainctl.workflows.drill.verdict import Expectation

__all__ = ["Fault"]


@dataclass(frozen=True)
class Fault:
    """`play` launches a run and does to it `what` is said; how it must end is `expected`, within `patience` seconds.

    `own`: it touches nothing but the run's own job and processes, and so may be played on a user's cluster; the others
    want a sandbox. `mounts`: it mounts a file system, as root. `zero_stage` is that of the run.
    """

    name: str
    what: str
    play: Callable[[Scene], None]
    expected: Expectation = field(default_factory=Expectation)
    own: bool = False
    mounts: bool = False
    zero_stage: int = 2
    patience: float = 180.0
