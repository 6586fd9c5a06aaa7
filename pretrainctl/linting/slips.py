"""Slips of the pen that bash takes for something else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from pretrainctl.linting import script as bash
from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Hit, Rule
from pretrainctl.linting.script import Word

__all__ = ["RULES"]


def _blank_after_backslash(batch: Batch) -> Iterator[Hit]:
    """A backslash quotes the character behind it: only at the very end of a line does the line go on.

    Source: bash(1), QUOTING.
    """
    for line in batch.script.broken:
        yield (
            line,
            (
                "a blank behind the backslash: the command ends here with a blank as its last word, and the next line "
                "is a command of its own"
            ),
            "sed -i 's/\\\\[[:blank:]]*$/\\\\/' SCRIPT",
        )


def _blanks_around_equals(batch: Batch) -> Iterator[Hit]:
    """`NAME = value` calls a program NAME, `export NAME = value` exports names `=` and `value`. Source: bash(1)."""
    found: dict[int, str] = {}
    for word in batch.script.strays:
        found.setdefault(word.line, "'export' takes NAME=VALUE only: the variable does not get this value")
    for command in batch.script.commands:
        words = [word.text for word in command.words]
        if len(words) > 1 and re.fullmatch(r"[A-Za-z_]\w*", words[0]) and re.match(r"\+?=(?!=)", words[1]):
            found.setdefault(command.line, f"bash looks for a program named {words[0]}: the variable stays as it was")
    for line, reason in sorted(found.items()):
        yield line, reason, "NAME=VALUE without blanks around ="


_DASHED = re.compile("-*[\u2010-\u2015\u2212][-\u2010-\u2015\u2212]*[A-Za-z]")
_TYPESET = re.compile(_DASHED.pattern + "|[\u201c\u201d\u2018\u2019]")


def _typeset_sign(batch: Batch) -> Iterator[Hit]:
    """Dashes and quotes of a word processor are letters to bash. Source: bash(1), QUOTING."""
    words = [
        word
        for command in batch.commands
        if command.name not in _TEXT
        for word in command.words
        if not word.text.startswith(("'", '"')) and word is not batch.body(command)
    ]
    words += [each.value for each in batch.script.assignments if each.value]
    found = {(word.line, word.text) for word in (*words, *_in_bodies(batch)) if _TYPESET.match(word.text)}
    for line, text in sorted(found | set(_in_lists(batch))):
        yield (
            line,
            f"{text.split()[0]} begins with a sign of a word processor, which is a letter like any other to bash",
            "a plain hyphen or quote",
        )


def _in_bodies(batch: Batch) -> Iterator[Word]:
    """Words of the text that a task's shell reads."""
    for launch in batch.launches:
        if launch.body is not None:
            for command in bash.read(launch.body.value).commands:
                if command.name not in _TEXT:
                    yield from (replace(each, line=launch.body.line + each.line - 1) for each in command.words)


def _in_lists(batch: Batch) -> Iterator[tuple[int, str]]:
    """Words of a variable that the shell puts into a command as words of their own: line and text."""
    split = {
        name
        for command in batch.script.commands
        for word in command.words
        if command.name not in _TEXT and (not word.text.startswith('"') or "[@]" in word.text)
        for name in word.expands
    }
    for each in batch.script.assignments:
        if each.value and each.name in split and each.value.text.startswith(("(", '"', "'")):
            for number, line in enumerate(each.value.text[1:-1].split("\n"), each.value.line):
                plain = re.sub(r"\"[^\"]*\"|'[^']*'|(^|\s)#.*", " ", line)
                yield from ((number, word) for word in plain.split() if _DASHED.match(word))


_TEXT = frozenset({"echo", "printf", "grep", "sed", "awk", "logger", "mail"})
"""Commands whose words are text."""

RULES = (
    Rule("blank-after-backslash", "error", _blank_after_backslash),
    Rule("blanks-around-equals", "error", _blanks_around_equals),
    Rule("typeset-sign", "error", _typeset_sign),
)
"""Slips of the pen."""
