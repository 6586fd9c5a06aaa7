"""Slips of the pen that bash takes for something else."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Hit, Rule

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


_TYPESET = re.compile("[\u2010-\u2015\u2212]+[A-Za-z]|[\u201c\u201d\u2018\u2019]")


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
    for line, text in sorted({(word.line, word.text) for word in words if _TYPESET.match(word.text)}):
        yield (
            line,
            f"{text.split()[0]} begins with a sign of a word processor, which is a letter like any other to bash",
            "a plain hyphen or quote",
        )


_TEXT = frozenset({"echo", "printf", "grep", "sed", "awk", "logger", "mail"})
"""Commands whose words are text."""

RULES = (
    Rule("blank-after-backslash", "error", _blank_after_backslash),
    Rule("blanks-around-equals", "error", _blanks_around_equals),
    Rule("typeset-sign", "error", _typeset_sign),
)
"""Slips of the pen."""
