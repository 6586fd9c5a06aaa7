"""Variables that a script sets for its tasks, by whatever means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pretrainctl.linting import script as bash
from pretrainctl.linting.batch import Batch
from pretrainctl.linting.script import Assignment, Command, Word

__all__ = ["Setting", "settings"]

_TELLING = frozenset({"echo", "printf", "grep", "sed", "awk", "test", "["})
"""Commands whose words are text."""
_DEFAULT = re.compile(r"\$\{(\w+):?[-=](.*)\}", re.DOTALL)


@dataclass(frozen=True)
class Setting:
    """A variable that gets a value."""

    line: int
    name: str
    value: str
    """With the variables that the script itself set; others stay as written."""
    sure: bool = True
    """False in a branch, for a default that whoever submits may replace, and in a file that may be another job's."""
    command: Command | None = None
    """The command that it is set for, where it is set for one only."""


def settings(batch: Batch, *names: str) -> Iterator[Setting]:
    """Every place that gives one of these a value for tasks.

    Assignments; words of a command such as `env NAME=VALUE`, `--export=ALL,NAME=VALUE`, `--env NAME=VALUE`; a body of
    `bash -c` or a here-document, also one that becomes a file.
    """
    for directive in batch.script.header.directives:
        for name, value in _pairs(directive.value, names) if directive.name == "export" else ():
            yield Setting(directive.line, name, value)
    for assignment in batch.script.assignments:
        yield from _assigned(batch, assignment, names, None)
    for command in batch.script.commands:
        for assignment in command.prefix:
            yield from _assigned(batch, assignment, names, command)
        body = batch.body(command)
        for word in () if command.name in _TELLING else command.words:
            if word is not body:
                yield from _in_word(batch, word, names, command)
        if body is not None:
            yield from _in_text(batch, body, names, command)
        elif command.document and command.name in ("cat", "tee"):
            for each in _in_text(batch, command.document, names, command):
                yield replace(each, sure=False)


def _assigned(batch: Batch, each: Assignment, names: tuple[str, ...], command: Command | None) -> Iterator[Setting]:
    name = re.sub(r"^(SINGULARITY|APPTAINER)ENV_", "", each.name)
    if name in names and each.value is not None:
        value, sure = _value(batch, each.value.value, each.line)
        yield Setting(each.line, name, value, sure and not each.place.conditional, command)


def _in_word(batch: Batch, word: Word, names: tuple[str, ...], command: Command) -> Iterator[Setting]:
    text = re.sub(r"^-[\w-]*[= ]", "", word.value)
    default = re.fullmatch(r"\$\{(\w+):?=(.*)\}", text, re.DOTALL)
    if default and default[1] in names:
        yield Setting(word.line, default[1], *_value(batch, text, word.line))
    for name, value in _pairs(text, names):
        yield Setting(word.line, name, *_value(batch, value, word.line), command)


def _in_text(batch: Batch, body: Word, names: tuple[str, ...], command: Command) -> Iterator[Setting]:
    if not any(name in body.value for name in names):
        return
    inner = Batch(bash.read(batch.resolve(body.value, command.line)))
    for each in settings(inner, *names):
        yield replace(each, line=body.line + each.line - 1, command=command)


def _pairs(text: str, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and name in names:
            yield name, value.strip("'\"")


def _value(batch: Batch, text: str, line: int) -> tuple[str, bool]:
    """The value as the tasks see it, and whether nothing outside the script can change it."""
    value, sure = batch.resolve(text, line), True
    while default := _DEFAULT.fullmatch(value):
        set_before = batch.resolve(f"${{{default[1]}}}", line - 1)
        if not set_before.startswith("$"):
            return set_before, sure
        value, sure = default[2], False
    return value, sure
