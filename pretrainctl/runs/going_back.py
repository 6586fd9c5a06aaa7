"""That a person had the run go on from an older checkpoint than its newest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pretrainctl.records.run import Event

__all__ = ["WentBack", "went_back"]


@dataclass(frozen=True)
class WentBack:
    """To `tag`, of `step`, from `from_step`, the newest that was done; attempts up to `after_attempt` were before, and
    so was what happened from outside up to event `sequence`: what they saved and reached since that step is past."""

    tag: str
    step: int
    from_step: int
    after_attempt: int
    sequence: int

    def __str__(self) -> str:
        """As people read it."""
        return f"a person went back to {self.tag} from step {self.from_step}, after attempt {self.after_attempt}"

    def is_before(self, event: Event) -> bool:
        """Whether the event is of what was left behind."""
        return event.sequence < self.sequence if event.attempt == 0 else event.attempt <= self.after_attempt


def went_back(events: Sequence[Event]) -> WentBack | None:
    """The last time that a person did, None where nobody has."""
    for event in reversed(events):
        if event.kind == "went_back":
            data = event.data
            return WentBack(
                data["back_to"],
                data["back_to_step"],
                data["from_step"],
                event.after_attempt,
                event.sequence,
            )
    return None
