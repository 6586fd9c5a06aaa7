"""How much a line of a log explains: what a program went on after, handled or only quoted explains little."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable

from pretrainctl.recovery.aftermath import Aftermath
from pretrainctl.recovery.chatter import Manner, attempts_in, manner_of
from pretrainctl.recovery.log_lines import bare, read_time
from pretrainctl.recovery.signatures import Signature
from pretrainctl.recovery.signatures.program import LOSS_IS_NAN, SAYS_LOSS_IS_NAN

__all__ = ["OF_SLURM", "RESTART_WORDS", "Standing", "Survival"]

RESTART_WORDS = (
    *("equeue", "estart count", "RESTART_COUNT", "restart worker group"),
    *("oading checkpoint", "esuming", "esumed from", "sing world size"),
)
"""A line without any of these does not say that the program begins anew."""
_RESTART = re.compile(
    r"SLURM_RESTART_COUNT[=: ]+[1-9]|\b[Rr]estart count[=: ]+[1-9]|restarted after (?:a )?requeue"
    r"|will restart worker group|\b(?:[Jj]ob|run) (?:\S+ )?(?:was |has been )?requeued\b(?!.*CANCELLED)"
)
_BEGINS = re.compile(r"[Ll]oading checkpoint|\b[Rr]esum(?:ing|ed) (?:\S+ )?from\b|\busing world size")
"""How programs begin and load; where Slurm has ended a start above, and steps follow, it is the next start."""
OF_SLURM = {"time_limit", "preempted", "node_failure", "user_cancel"}
"""Classes that Slurm tells before it kills: the program may make a few more steps."""
_LASTS = {"quota"}
"""Classes of which the next starts die too, in other words: of a pointer that could not be moved, a file half there."""
_CLOCKS = 5.0
"""Seconds by which the clocks of nodes may differ."""
_MOST_SHAPES = 4096


class Standing(enum.IntEnum):
    """How much a line explains: the less, the higher.

    FIRM: nothing says that it was survived. LINGERING: hardware failed a few steps before the end. HANDLED: the line
    itself says that it is dealt with. SURVIVED: two steps came after it. EARLIER: of an earlier start of the program,
    and so until a person acts. PASSING: no cause at all; survived and handled, quoted, or of an earlier start.
    """

    FIRM = 0
    LINGERING = 1
    HANDLED = 2
    SURVIVED = 3
    EARLIER = 4
    PASSING = 5

    @classmethod
    def of_an_earlier_start(cls, signature: Signature) -> Standing:
        """That of a line which an earlier start of the program printed."""
        return cls.EARLIER if signature.failure_class in _LASTS and signature.weight == "root" else cls.PASSING


class Survival:
    """What became of the program after the lines of its logs. `year` is that of times which tell none.

    `restarts` are the times that lines have said so far that the program begins anew.
    """

    def __init__(self, year: int) -> None:
        self.year = year
        self.restarts = 0
        self._watched: dict[str, Callable[[], Aftermath]] = {}
        self._known: dict[str, Aftermath] = {}
        self._begun: dict[str, int] = {}
        self._killed: set[str] = set()
        self._manners: dict[tuple[Signature, str, tuple[bool, ...]], Manner] = {}

    def watch(self, file: str, aftermath: Callable[[], Aftermath]) -> None:
        """Say how to learn what the program did after the lines of a file; asked for at most once, and only if needed.

        Where nobody says it, nothing counts as survived.
        """
        self._watched[file] = aftermath

    def after(self, file: str) -> Aftermath:
        """What the program did after the lines of a file."""
        if file not in self._known:
            self._known[file] = self._watched[file]() if file in self._watched else Aftermath()
        return self._known[file]

    def is_restart(self, raw: str, file: str, place: int) -> bool:
        """Whether a line says that the program begins anew: what its file said before is of an earlier start."""
        again = ("estart" in raw or "equeue" in raw or "RESTART" in raw) and _RESTART.search(raw)
        if not again and not (file in self._killed and _BEGINS.search(raw) and self.after(file).settled > place):
            return False
        self._killed.discard(file)
        self.restarts += 1
        self._begun[file] = place
        return True

    def killed(self, file: str) -> None:
        """Slurm says here that it ends the program."""
        self._killed.add(file)

    def stepped_before(self, file: str, place: int) -> bool:
        """Whether this start of the program is known to have made a step before a place in a file."""
        return self._begun.get(file, -1) < self.after(file).stepped < place

    def standing(self, signature: Signature, raw: str, shape: str, file: str, place: int) -> Standing:
        """How much a line explains, by what it says itself and by what its file says below it. `shape` is the line
        without its digits."""
        if signature.weight == "echo":
            return Standing.FIRM
        after = self.after(file)
        if place < after.begun:
            return Standing.of_an_earlier_start(signature)
        if signature.meaning in LOSS_IS_NAN:
            return Standing.PASSING if place < after.sound else Standing.FIRM
        manner = self._manner(signature, raw, shape)
        if manner is Manner.QUOTED or (signature.meaning == SAYS_LOSS_IS_NAN and place < after.sound):
            return Standing.PASSING
        if signature.meaning == SAYS_LOSS_IS_NAN:  # steps below it whose loss is none either do not survive it
            return Standing.HANDLED if manner is Manner.HANDLED else Standing.FIRM
        of_slurm = signature.failure_class in OF_SLURM
        before = place < (after.long_settled if of_slurm else after.settled)
        if before and (signature.weight == "error" or not self._is_later(raw, after.time)):
            if manner is Manner.HANDLED or signature.start_only or of_slurm:
                return Standing.PASSING
            lingers = signature.failure_class == "gpu_hardware" and place > after.long_settled
            return Standing.LINGERING if lingers else Standing.SURVIVED
        return Standing.HANDLED if manner is Manner.HANDLED else Standing.FIRM

    def beside_all(self, signature: Signature, line: str, standing: Standing) -> Standing:
        """The same, by what all the other files say, too."""
        if standing is not Standing.FIRM or signature.weight == "echo" or self.restarts:
            return standing
        if signature.failure_class in OF_SLURM or len(self._watched) < 2:
            return standing
        if signature.start_only and any(self.after(file).settled >= 0 for file in self._watched):
            # What only fails before a first step has not ended a program that made steps, in whichever file.
            return Standing.SURVIVED
        own = read_time(line, self.year)
        if own is not None and any((self.after(file).time or 0.0) > own + _CLOCKS for file in self._watched):
            return Standing.SURVIVED
        return standing

    def _is_later(self, raw: str, steps: float | None) -> bool:
        """Whether a line tells a later time than the steps below it: those lay in a buffer."""
        own = read_time(raw, self.year) if steps is not None else None
        return own is not None and steps is not None and own > steps

    def _manner(self, signature: Signature, raw: str, shape: str) -> Manner:
        """A cascade is one line in a thousand copies, but for its numbers: it is looked at once."""
        attempts = tuple(int(which) < int(most) for which, most in attempts_in(raw))
        key = (signature, shape, attempts)
        if key not in self._manners:
            if len(self._manners) >= _MOST_SHAPES:
                self._manners.clear()
            text = bare(raw)
            match = signature.pattern.search(text)
            self._manners[key] = manner_of(text, *match.span()) if match else Manner.OUTRIGHT
        return self._manners[key]
