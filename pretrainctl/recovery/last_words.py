"""Lines that are no error, and still tell of an end: that the training is done, and whose error a rank only passes on.

Programs say that they are done when they have left their loop; what fails after it (a last save, an upload) failed all
the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pretrainctl.recovery.log_lines import split

__all__ = ["LAST_WORDS", "Borrowed", "Done", "GoodEnds"]

LAST_WORDS = ("raining complete", "after training is done", "Trainer.fit", "reached at step", "RANK ", "dict_keys")
"""A line without any of these is none of them."""
_DONE = re.compile(
    # Hugging Face Trainer, torchtitan, OLMo
    r"(?:^|[\s\]:-])Training completed?(?:\. Do not forget to share your model|[.!]?\s*$)"
    r"|\[after training is done\]"  # Megatron-LM
    r"|`Trainer\.fit` stopped: `max_(?:steps|epochs|time)=\S+` reached"  # Lightning
    r"|^(?:\s*\d+: ?)?reached at step \d+: "  # trainer/loop.py
)
_PASSED_ON = re.compile(r"\(RANK (\d+)\)|CheckpointException ranks:dict_keys\(\[(\d+)")
"""How pytorch's torch.distributed.checkpoint (api.py, utils.py) names the rank whose error it raises on all ranks."""
_WARNS = re.compile(r"\[W\d{0,4} ")
_BELOW = 200
"""Lines of a traceback under the line that says whose it is."""


@dataclass(frozen=True)
class Done:
    """The line with which a program said that it had trained to its end."""

    line: str
    file: str = ""
    number: int = 0
    place: int = 0

    @property
    def shown(self) -> str:
        """The line with where it stands."""
        return f"{self.file}:{self.number}: {self.line}" if self.file else self.line


class GoodEnds:
    """In which files the program says that it is done, and nothing bad stands below it."""

    def __init__(self) -> None:
        self._done: dict[str, Done] = {}
        self._bad: dict[str, int] = {}

    def add(self, raw: str, file: str, number: int, place: int) -> None:
        """Take a line that no entry of the table fits."""
        if "raining" in raw or "Trainer.fit" in raw or "reached at" in raw:
            text = split(raw).text
            if _DONE.search(text):
                self._done[file] = Done(text, file, number, place)

    def spoil(self, raw: str, file: str, place: int, *, echo: bool) -> None:
        """A line that tells of something bad stands here; `echo`: a consequence, of which pytorch's warnings are what
        ranks that leave print of those that have left."""
        if not echo or not _WARNS.search(raw):
            self._bad[file] = place

    def begin_anew(self, file: str) -> None:
        """What the file said so far was of an earlier start."""
        self._done.pop(file, None)
        self._bad.pop(file, None)

    def found(self) -> list[Done]:
        """The ends in good order, empty where something bad stands below one, or in a file that tells of none."""
        spoiled = [
            file for file, place in self._bad.items() if file not in self._done or place > self._done[file].place
        ]
        return [] if spoiled else list(self._done.values())


class Borrowed:
    """Whose error ranks pass on: a collective save or load that fails on one rank raises its error on all of them.
    `culprits` are all that were named."""

    def __init__(self) -> None:
        self.culprits: set[int] = set()
        self._last: dict[tuple[str, int | None], tuple[int, int]] = {}

    def hear(self, raw: str, file: str, number: int, rank: int | None) -> None:
        """Take any line; `rank` is that of the file."""
        if "RANK " not in raw and "dict_keys" not in raw:
            return
        said, own = _PASSED_ON.search(raw), split(raw).rank
        if said is not None:
            culprit = int(said[1] or said[2])
            self.culprits.add(culprit)
            self._last[file, own if own is not None else rank] = (culprit, number)

    def culprit(self, file: str, number: int, speaker: int | None) -> int | None:
        """The rank of which a line of `speaker` tells, None where it tells of no other."""
        rank, line = self._last.get((file, speaker), (None, 0))
        return rank if rank is not None and number - line <= _BELOW else None
