"""What a program did after a line of its log: steps that it still made, and losses that were numbers.

A program that makes two further steps has survived what it printed before. Step lines are those of this package's
trainer and of Megatron-LM, Hugging Face Trainer, NeMo and Lightning, torchtitan, nanotron, DeepSpeed, OLMo and
llm-foundry.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pretrainctl.recovery.log_lines import STAMP, bare, read_time
from pretrainctl.recovery.signatures.program import LOSS

__all__ = ["STEP_WORDS", "Aftermath", "look_after", "read_step"]

STEP_WORDS = ("loss", "Loss", "step", "Step", "iter", "Iter", "[batch=")
"""A line without any of these is no step line."""
_SURVIVED = 2
"""Steps of different numbers after a line that say that it did not end the program."""
_LONG_SURVIVED = 20
"""The same for what Slurm prints: the program may go on until it is killed, some thirty seconds later."""
_LOOKED_AT = 4000
"""Lines that are looked at for the longer stretch, once the shorter one is found."""
_FARTHER = 1000
"""Lines after those in which the numbers may still go back; Slurm's line tells a later time than steps beside it, where
the clocks differ."""
_WENT_BACK = 5
"""Steps that the numbers go back where a program began anew; ranks print theirs a little out of order."""

_NUMBER = r"([\d,_]*\d(?:\.\d+)?(?:e[+-]?\d+)?)"
_STEP = re.compile(rf"(?:step|iteration|iter|batch)s?['\"]?\s*[:=#]?\s*['\"]?{_NUMBER}", re.IGNORECASE)
_EPOCH = re.compile(rf"epoch['\"]?\s*[:=]?\s*['\"]?{_NUMBER}", re.IGNORECASE)
_BARE = re.compile(
    rf"(?:\s*(?:{STAMP}|INFO:?))*\s*"
    r"(?:(?:global[ _])?(?:step|iteration|iter)[ :=#]+\d|\[step=\d)",
    re.IGNORECASE,
)
"""Begins with its step."""
_SURE = re.compile(r"\[step=\d|\bstep=\d+, skipped=|\[batch=\d+/\d|\d+/\d+ \[[^\]]*loss|\{['\"]loss['\"]:")
_NO_STEP = re.compile(r"rror|xception|raceback|[Ff]ailed|[Ss]av(?:ed|ing)|[Rr]esum|[Ll]oad(?:ed|ing)")
_ASIDE = re.compile(r"(?i)\b(?:eval|valid|val|test)[a-z]*\b[^=:|]{0,20}\b(?:step|iter|batch)")
"""A step of an evaluation, whose numbers begin anew each time."""
_LOSS = re.compile(rf"(?i){LOSS}['\"]?(?:\s*[:=]\s*|\s+)['\"]?(nan|[+-]?inf(?:inity)?|[+-]?\d[\d.]*(?:e[+-]?\d+)?)\b")
_GRADIENT = re.compile(r"(?i)\bgrad[ _]?norm['\"]?(?:\s*[:=]\s*|\s+)['\"]?(?:nan|inf)\b")


@dataclass(frozen=True)
class Step:
    """A step line: what tells its step from others, its number and its epoch where it has one, and whether its loss is
    a number (None where it names no loss)."""

    key: str
    number: float | None
    sound: bool | None
    epoch: float | None = None

    def is_past(self, later: Step) -> bool:
        """Whether its numbers are so far ahead of those of a later line that a program began anew between them.

        Steps may be counted within an epoch; epochs alone tell it where they come in fractions, from one rank.
        """
        if self.number is not None and later.number is not None:
            ahead = self.number > later.number + _WENT_BACK
            return ahead and (self.epoch is None or later.epoch is None or self.epoch >= later.epoch)
        if self.number is not None or later.number is not None or self.epoch is None or later.epoch is None:
            return False
        return self.epoch > later.epoch and self.epoch % 1 > 0


@dataclass(frozen=True)
class Aftermath:
    """Places in one file, -1 for none; the places are numbers that grow, of lines or of bytes.

    What stands before `settled` was survived by two steps, before `long_settled` by twenty; `time` is that of the first
    of the two. Before `begun` another start of the program wrote. `stepped` is the first step known, and `sound` the
    last one with a loss that is a number.
    """

    settled: int = -1
    long_settled: int = -1
    time: float | None = None
    begun: int = -1
    stepped: int = -1
    sound: int = -1


def read_step(text: str) -> Step | None:
    """A line that tells of a step, None for any other."""
    text = bare(text)
    sure = _SURE.search(text) is not None
    loss = _LOSS.search(text)
    found = _STEP.search(text)
    told = found is not None and (loss is not None or "loss" in text.lower() or _BARE.match(text) is not None)
    epoch = _EPOCH.search(text)
    told = told or (epoch is not None and loss is not None)
    if not (sure or told) or (_NO_STEP.search(text) and not sure):
        return None
    number = _to_number(found[1]) if found is not None else None
    key = str(number) if number is not None else f"epoch {epoch[1]}" if epoch is not None else text
    sound = _is_sound(loss[1], text) if loss is not None else None
    return Step(key, number, sound, _to_number(epoch[1]) if epoch is not None else None)


def _to_number(text: str) -> float | None:
    try:
        return float(text.replace(",", "").replace("_", ""))
    except ValueError:
        return None


def _is_sound(loss: str, text: str) -> bool:
    value = float(loss) if loss.count(".") < 2 else 1.0
    # Hugging Face Trainer leaves losses that are NaN out of its mean, and prints 0.
    return math.isfinite(value) and not (value == 0 and _GRADIENT.search(text) is not None)


def look_after(backward: Iterable[tuple[int, str]], year: int) -> Aftermath:
    """What the step lines say, given as places and texts from the end of a file to its beginning."""
    keys: set[str] = set()
    settled, long_settled, begun, stepped, sound = -1, -1, -1, -1, -1
    time: float | None = None
    later: Step | None = None
    looked, farther, unsound = 0, 0, False
    for place, text in backward:
        looked += settled >= 0
        farther += long_settled >= 0
        if (looked > _LOOKED_AT or farther > _FARTHER) and (sound >= 0 or not unsound):
            break
        step = read_step(text)
        if step is None:
            continue
        if not _ASIDE.search(text):
            if later is not None and step.is_past(later):
                begun = stepped
                break
            later = step
        stepped = place
        keys.add(step.key)
        if sound < 0 and step.sound:
            sound = place
        unsound = unsound or step.sound is False
        if settled < 0 and len(keys) >= _SURVIVED:
            settled, time = place, read_time(text, year)
        if long_settled < 0 and len(keys) >= _LONG_SURVIVED:
            long_settled = place
    return Aftermath(settled, long_settled, time, begun, stepped, sound)
