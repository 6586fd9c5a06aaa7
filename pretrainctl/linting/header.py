"""The `#SBATCH` lines of a script, as sbatch reads them, and those that it does not read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pretrainctl.linting.options import read_options

__all__ = ["Directive", "Header", "read_header"]

_NEARLY = re.compile(r"\s*#(?:\s*SBATCH|(?i:sbatch))(\s+-.*)")


@dataclass(frozen=True)
class Directive:
    """One option of a `#SBATCH` line, by its long name."""

    line: int
    name: str
    value: str


@dataclass(frozen=True)
class Header:
    """What stands at the top of a script."""

    directives: tuple[Directive, ...]
    """What sbatch reads; of a heterogeneous job its first component."""
    late: tuple[int, ...]
    """Lines of `#SBATCH` after the first command."""
    words: tuple[tuple[int, tuple[str, ...]], ...]
    """Every line that sbatch reads, in words."""
    nearly: tuple[Directive, ...]
    """Options of lines that look like `#SBATCH` and are comments: a blank in front or inside, small letters."""


def read_header(lines: Sequence[str], comments: Iterable[int]) -> Header:
    """Read the lines whose numbers, from 1, are those of comments."""
    first = next((number for number, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"), None)
    directives: list[Directive] = []
    late: list[int] = []
    nearly: list[Directive] = []
    spoken: list[tuple[int, tuple[str, ...]]] = []
    component = 0
    for number in comments:
        line = lines[number - 1]
        read, close = line.startswith("#SBATCH"), _NEARLY.fullmatch(line)
        if first is not None and number > first:
            late += [number] if read else []
        elif read:
            words = _words(line[len("#SBATCH") :])
            if words[:1] in (["hetjob"], ["packjob"]):
                component += 1
                continue
            spoken.append((number, tuple(words)))
            directives += [] if component else _options(number, words)
        elif close:
            words = _words(close[1])
            if read_options(words, command="sbatch")[1] == len(words):  # else a command that the comment tells of
                nearly += _options(number, words)
    return Header(tuple(directives), tuple(late), tuple(spoken), tuple(nearly))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote without its pair
        return text.split()


def _options(number: int, words: Sequence[str]) -> Iterator[Directive]:
    options, _ = read_options(words, command="sbatch")
    for name, value in options.items():
        yield Directive(number, name, value)
