"""A script as a job: its shape, its sruns and what they start, its variables."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from pretrainctl.errors import InputError
from pretrainctl.linting import script as bash
from pretrainctl.linting.allocation import Allocation
from pretrainctl.linting.header import Directive
from pretrainctl.linting.options import read_options
from pretrainctl.linting.programs import unwrapped
from pretrainctl.linting.script import Assignment, Command, Place, Script, Word
from pretrainctl.schema import ClusterProfile
from pretrainctl.units import Limit, parse_requested_time

__all__ = ["Batch", "Launch"]

_TRIVIAL = frozenset(
    {"hostname", "nvidia-smi", "rocm-smi", "date", "echo", "printf", "mkdir", "rm", "cp", "mv", "ls", "cat", "sleep"}
    | {"true", "env", "uname", "df", "free", "head", "tail", "grep", "awk", "sed", "sort", "uniq", "wc", "tr", "cut"}
)
"""What an srun may start that is surely no training."""
_LONGEST = 20_000
"""Characters of a word that is still worth reading; variables of variables can make them without end."""
_MOST_RUNS = 200
"""Runs of a command that are followed; functions that call functions twice make them without end."""
_SHELLS = ("bash", "sh", "dash", "zsh")
_DEFAULT = re.compile(r"\$\{\w+:?[-=]([\w./ -]*)\}")
"""A program that a variable may replace, `${SRUN:-srun}`."""
_SUBSTITUTION = re.compile(r"\$\((?!\()[^()]*(?:\([^()]*\)[^()]*)*\)|`[^`]*`")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?:\[[@*]\])?\}|(\w+))")


@dataclass(frozen=True)
class Launch:
    """An srun."""

    command: Command
    options: dict[str, str]
    opaque: bool
    """Some of its options stand in a variable that the script does not set: an option may be there unseen."""
    program: tuple[str, ...]
    """What it starts, with its arguments."""
    body: Word | None
    """The text of `bash -c TEXT`, or of the here-document."""
    tasks: tuple[tuple[str, ...], ...]
    """Commands that each task runs, as far as the script shows them."""

    @property
    def one_node(self) -> bool:
        """Whether it surely runs on one node."""
        return self.options.get("nodes") in ("1", "1-1") or self.options.get("ntasks") == "1"

    @property
    def trains(self) -> bool:
        """Whether it may be the training: not `hostname` and its like."""
        shown = self.tasks[1:] or self.tasks
        return not all(words[:1] and words[0].rsplit("/", 1)[-1] in _TRIVIAL for words in shown)


@dataclass(frozen=True)
class Batch:
    """A script, and the profile of the cluster it is meant for, if there is one."""

    script: Script
    profile: ClusterProfile | None = None

    @cached_property
    def options(self) -> dict[str, Directive]:
        """The directives that Slurm reads, by long name; the last of two wins."""
        return {directive.name: directive for directive in self.script.header.directives}

    @cached_property
    def allocation(self) -> Allocation:
        """What the directives ask for in numbers."""
        return Allocation({name: directive.value for name, directive in self.options.items()})

    def value(self, name: str) -> str | None:
        """The value of a directive; None where it is not given."""
        return self.options[name].value if name in self.options else None

    @property
    def last_line(self) -> int:
        """Where a directive could be added."""
        return max((directive.line for directive in self.script.header.directives), default=1)

    def number(self, name: str) -> int | None:
        """The value of a directive as a whole number; None where it is not one."""
        return self.allocation.number(name)

    @property
    def nodes(self) -> int | None:
        """Nodes of the job, of `2-4` the fewest; None where the script does not say."""
        return self.allocation.nodes[0] if self.allocation.nodes else None

    @property
    def multi_node(self) -> bool:
        """Whether the job surely has more than one node."""
        return (self.nodes or 1) > 1

    @property
    def tasks_per_node(self) -> int | None:
        """Tasks on each node, None where the script does not say."""
        return self.allocation.tasks_per_node

    @property
    def gpus(self) -> int | None:
        """GPUs on each node, None where the script does not say."""
        return self.allocation.gpus_per_node

    @cached_property
    def seconds(self) -> float | None:
        """The time limit in seconds, infinite where it asks for none; None where it is not given or not readable."""
        if "time" not in self.options:
            return None
        try:
            limit = parse_requested_time(self.options["time"].value)
        except InputError:
            return None
        return math.inf if isinstance(limit, Limit) else limit

    def assigned(self, *names: str) -> Iterator[Assignment]:
        """Assignments of these variables with a value, those in front of commands included."""
        prefixes = (assignment for command in self.script.commands for assignment in command.prefix)
        for assignment in (*self.script.assignments, *prefixes):
            if assignment.name in names and assignment.value is not None:
                yield assignment

    def resolve(self, text: str, line: int) -> str:
        """`text` with the variables that the script set up to `line`; others, and Slurm's, stay."""
        return _filled(text, {name: value for at, name, value in self._values if at <= line})

    @cached_property
    def _values(self) -> tuple[tuple[int, str, str], ...]:
        """Line, variable and its value from there on, in the order of the script."""
        known: dict[str, str] = {}
        values = []
        for each in self.script.assignments:
            if each.value is None or each.name.startswith("SLURM"):
                continue
            value = _filled(each.value.value, known)
            if each.adds and each.name in known:
                value = f"{known[each.name]} {value}"
            known[each.name] = value
            values.append((each.line, each.name, value))
        return tuple(values)

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """The commands of the script, and behind each `eval TEXT` and `bash -c TEXT` those of the text."""
        return tuple(each for command in self.script.commands for each in (command, *self._inner(command)))

    def _inner(self, command: Command) -> Iterator[Command]:
        words = self._after_wrappers(command)
        name = words[0].rsplit("/", 1)[-1] if words else ""
        body = self.body(command) if name in _SHELLS else None
        if body is None and name != "eval":
            return
        text = self.resolve(body.value, command.line) if body else " ".join(words[1:])
        first, inside = body.line if body else command.line, bash.read(text)
        for each in inside.commands:
            place = replace(
                command.place,
                function=command.place.function or each.place.function,
                background=command.place.background or each.place.background,
                piped=command.place.piped or (each.place.piped and "pipefail" not in text),
                guarded=command.place.guarded or each.place.guarded,
                loop=command.place.loop or each.place.loop,
                conditional=command.place.conditional or each.place.conditional,
                substitution=command.place.substitution or each.place.substitution,
            )
            yield replace(each, line=first + each.line - 1, place=place)

    @cached_property
    def settings(self) -> tuple[Command, ...]:
        """Every `set`, in order."""
        return tuple(command for command in self.script.commands if command.name == "set")

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """Every srun outside `$(...)`."""
        found = ((command, self._after_wrappers(command)) for command in self.commands)
        return tuple(
            self._launch(command, words)
            for command, words in found
            if words and words[0].rsplit("/", 1)[-1] == "srun" and not command.place.substitution
        )

    @cached_property
    def programs(self) -> tuple[tuple[Command, tuple[str, ...]], ...]:
        """Every program that the script runs by name, in its tasks too, with its arguments and the command it is in."""
        started = {launch.command: launch.tasks for launch in self.launches}
        return tuple(
            (command, words)
            for command in self.commands
            for words in started.get(command, (tuple(self._after_wrappers(command)),))
            if words
        )

    def runs(self, command: Command) -> tuple[tuple[int, Place], ...]:
        """Line and place of each time that a command runs: those of the calls, where it stands in a function."""
        return tuple(islice(self._runs(command, frozenset()), _MOST_RUNS))

    @cached_property
    def _calls(self) -> dict[str, tuple[Command, ...]]:
        """Calls of each function, those of itself left out."""
        calls: dict[str, list[Command]] = {name: [] for name in self.script.functions}
        for command in self.script.commands:
            if command.name in calls and command.place.function != command.name:
                calls[command.name].append(command)
        return {name: tuple(each) for name, each in calls.items()}

    def _runs(self, command: Command, seen: frozenset[str]) -> Iterator[tuple[int, Place]]:
        name, place = command.place.function, command.place
        calls = self._calls.get(name, ()) if name and name not in seen else ()
        if not calls:
            yield command.line, place
            return
        for call in calls:
            for line, outer in self._runs(call, seen | {name}):
                yield (
                    line,
                    replace(
                        place,
                        statement=outer.statement,
                        function=outer.function,
                        background=place.background or outer.background,
                        piped=place.piped or outer.piped,
                        guarded=place.guarded or outer.guarded,
                        loop=place.loop or outer.loop,
                        conditional=place.conditional or outer.conditional,
                        substitution=place.substitution or outer.substitution,
                    ),
                )

    @property
    def trainings(self) -> tuple[Launch, ...]:
        """The sruns that may be the training."""
        return tuple(launch for launch in self.launches if launch.trains)

    def _after_wrappers(self, command: Command) -> list[str]:
        words = list(unwrapped(self._split(command)))
        default = _DEFAULT.fullmatch(words[0]) if words else None
        return [*_shell_split(default[1]), *words[1:]] if default else words

    def _split(self, command: Command) -> list[str]:
        """The words of a command as the shell makes them of its own variables."""
        words: list[str] = []
        for word in command.words:
            if not word.expands:
                words.append(word.value)
                continue
            value = self.resolve(word.value, command.line)
            split = not word.text.startswith('"') or (word.text.startswith('"${') and "[@]" in word.text)
            words += _shell_split(value) if split else [value]
        return words

    def _launch(self, command: Command, words: list[str]) -> Launch:
        options, first = read_options(words[1:])
        program = words[1 + first :]
        opaque = any(word.startswith("$") for word in program[:1])
        while program and program[0].startswith("$"):
            # Unknown options: what follows may be more of them.
            program = program[1:]
            more, skipped = read_options(program)
            options |= more
            program = program[skipped:]
        body = self.body(command)
        tasks: tuple[tuple[str, ...], ...] = (tuple(program),)
        if body is not None:
            inner = Batch(bash.read(self.resolve(body.value, command.line)))
            tasks += tuple(tuple(inner._after_wrappers(each)) for each in inner.script.commands)
        return Launch(command, options, opaque, tuple(program), body, tasks)

    @staticmethod
    def body(command: Command) -> Word | None:
        """The text that a shell gets as its program, as the batch shell hands it over."""
        names = [word.value.rsplit("/", 1)[-1] for word in command.words]
        for index, name in enumerate(names[:-2]):
            if name in _SHELLS and re.fullmatch(r"-\w*c", names[index + 1]):
                return command.words[index + 2]
        return command.document if any(name in _SHELLS for name in names) else None


def _filled(text: str, known: dict[str, str]) -> str:
    filled = _VARIABLE.sub(lambda match: known.get(match[1] or match[2], match[0]), text)
    return filled if len(filled) <= _LONGEST else text


def _shell_split(text: str) -> list[str]:
    """The words of a text; what `$(...)` puts in is one, however many it is written in."""
    inner = _SUBSTITUTION.findall(text)
    text = _SUBSTITUTION.sub("\0", text)
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    held = iter(inner)
    return [re.sub("\0", lambda _: next(held, ""), word) for word in words]
