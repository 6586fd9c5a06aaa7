"""Which entry of the table a line fits, looked up once for lines that differ only in their numbers."""

from __future__ import annotations

import re

from pretrainctl.recovery.signatures import SIGNATURES, Signature

__all__ = ["Lookup", "shape_of"]

_MOST_SHAPES = 4096
_DIGITS = dict.fromkeys(map(ord, "0123456789"))
_TELLING = re.compile(
    r"(?:rrno\D{0,8}|exitcode *: -|return code = -?|[Ss]ignal |SIGNAL: |NCCL Error |'loss': '?)(\d+)|\b(429)\b"
)
_TELL = ("rrno", "exitcode", "return code", "ignal ", "SIGNAL", "NCCL Error", "uota", "'loss'")
"""What stands before numbers that tell what a line means: errors of the system, exit statuses, signals."""

_SAME = {(one.pattern.pattern, one.failure_class, one.meaning): one for one in reversed(SIGNATURES)}
"""The first of the entries that differ only in their clue."""


def shape_of(raw: str) -> str:
    """A line without its numbers, but for those that tell what it means."""
    if "Xid" in raw:
        return raw
    shape = raw.translate(_DIGITS)
    return f"{shape} {_TELLING.findall(raw)}" if any(word in raw for word in _TELL) else shape


class Lookup:
    """The table, with what was found in it so far."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool], Signature | None] = {}

    def find(self, raw: str, shape: str, *, stepped: bool) -> Signature | None:
        """The first entry that fits a line of this shape; of entries that differ only in their clue the first one, so
        that lines which say the same in another form count together.

        `stepped`: a first step was done, so that entries of the start do not count.
        """
        key = (shape, stepped)
        if key not in self._known:
            if len(self._known) >= _MOST_SHAPES:
                self._known.clear()
            found = (
                one
                for one in SIGNATURES
                if one.clue in raw and not (one.start_only and stepped) and one.pattern.search(raw)
            )
            self._known[key] = next((_SAME[one.pattern.pattern, one.failure_class, one.meaning] for one in found), None)
        return self._known[key]
