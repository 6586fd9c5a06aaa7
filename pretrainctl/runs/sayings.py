"""What is said aloud of the events of an attempt. The ledger keeps all of them: several tell of one end."""

from __future__ import annotations

from pretrainctl.records.run import EventKind

__all__ = ["Sayings"]

_OF_AN_END: frozenset[EventKind] = frozenset(
    {"looked_back", "lineage", "hang", "restart_ended", "decided", "finished", "stopped", "attempt_ended"}
)
"""Events that tell of one end, one after the other, each with the reason of the last. Others happen as often as they
are told."""


class Sayings:
    """What was said since the training was last started, so that each thing is said once."""

    def __init__(self) -> None:
        self._said: list[str] = []

    def words(self, kind: EventKind, message: str) -> str:
        """What is to be said of an event, the next one in order; empty where that was said.

        Of a decision, `ACTION: REASON; WHY`, what is new: `ACTION: WHY` where the reason was said, or the action alone.
        """
        if kind == "restart_started":
            self._said = []
        if kind not in _OF_AN_END:
            return message
        action, _, reason = message.partition(": ") if kind == "decided" else ("", "", message)
        said, self._said = self._said, [*self._said, reason]
        if reason in said:
            return action
        begun = max((len(one) + 2 for one in said if action and reason.startswith(f"{one}; ")), default=0)
        return f"{action}: {reason[begun:]}" if action else reason
