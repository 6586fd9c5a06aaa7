"""The `#SBATCH` lines of a script, as sbatch reads them, and those that it does not read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pretrainctl.linting.options import SBATCH, read_options

__all__ = ["Directive", "Header", "read_header"]

_NEARLY = re.compile(r"\s*#(?:\s*SBATCH|(?i:sbatch))(\s+-.*)")
_MISSPELT = re.compile(
    r"\s*#\s*([A-Z]{3,9}|S(?i:[ab]{1,2}[tch]{1,4})|s(?:b?at?c?h|ba?tch|bac[th]{2}|abtch|batc))(\s+-.*)"
)
"""In capital letters, or small ones that are no English word: `# watch -n 1` and `# patch -p1` are comments."""
_MOST_EDITS = 2


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
    """Options of lines meant as `#SBATCH` that are comments: a blank in front or inside, small letters, misspelt."""


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
        read, close = line.startswith("#SBATCH"), _nearly(line)
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
            words = _words(close)
            if read_options(words, command="sbatch")[1] == len(words):  # else a command that the comment tells of
                nearly += _options(number, words)
    return Header(tuple(directives), tuple(late), tuple(spoken), tuple(nearly))


def _nearly(line: str) -> str | None:
    """The options of a line that was meant as a directive and is a comment; None of another line."""
    if same := _NEARLY.fullmatch(line):
        return same[1]
    misspelt = _MISSPELT.fullmatch(line)
    if misspelt is None or not 0 < _edits(misspelt[1].upper(), "SBATCH") <= _MOST_EDITS:
        return None
    names = read_options(_words(misspelt[2]), command="sbatch")[0]
    return misspelt[2] if names and all(name in SBATCH for name in names) else None


def _edits(word: str, meant: str) -> int:
    """Letters to put in, take out or replace until one word is the other."""
    row = list(range(len(meant) + 1))
    for at, letter in enumerate(word, 1):
        last, row = row, [at]
        for index, other in enumerate(meant):
            row.append(min(last[index] + (letter != other), last[index + 1] + 1, row[index] + 1))
    return row[-1]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote without its pair
        return text.split()


def _options(number: int, words: Sequence[str]) -> Iterator[Directive]:
    options, _ = read_options(words, command="sbatch")
    for name, value in options.items():
        yield Directive(number, name, value)
