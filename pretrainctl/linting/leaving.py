"""Trainings that a script leaves: in the background at its end, or after tries that all failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pretrainctl.linting import script as bash
from pretrainctl.linting.batch import Batch
from pretrainctl.linting.ending import ends_on_failure, ends_well, handler, long_commands, traps
from pretrainctl.linting.findings import Hit, Rule
from pretrainctl.linting.programs import launcher, python_script
from pretrainctl.linting.script import Command, Place

__all__ = ["RULES"]

_TELLS_OR_SETS = (
    "true : echo printf date hostname disown exit set export mkdir cp mv rm ln touch cat ls module ulimit cd source . "
    "trap jobs squeue scontrol sacct tee logger nvidia-smi [ test env pwd unset umask popd pushd declare local"
)
_SHORT = frozenset(_TELLS_OR_SETS.split())
"""Commands that hold no script until a training ends."""


def _ends_soon(command: Command) -> bool:
    if command.name == "sleep":
        return len(command.values) == 2 and bool(re.fullmatch(r"\d{1,3}s?", command.values[1]))
    redirects = command.values == ("exec",)
    return command.name in _SHORT or redirects or command.place.substitution or _detached(command)


def _detached(command: Command) -> bool:
    """Whether the shell goes on while the command still runs."""
    values = command.values
    screen = command.name == "screen" and any(re.match(r"-\w*d\w*m|-\w*m\w*d", each) for each in values)
    tmux = command.name == "tmux" and values[1:2] in (("new",), ("new-session",)) and "-d" in values
    return command.place.background or screen or tmux


def _training_left_behind(batch: Batch) -> Iterator[Hit]:
    """Slurm ends a job when its batch script ends, and everything in it. Source: sbatch(1); seen as COMPLETED.

    Nothing is said where anything may wait: `wait`, a trap at the end, a loop, a command in front that takes long.
    """
    yield from _left_by_task(batch)
    if any(command.name in ("wait", "fg") for command in batch.commands) or any(
        re.search(r"\bwait\b", handler(batch, trap)) for trap in traps(batch, "EXIT")
    ):
        return
    long = long_commands(batch)
    runs = {command: batch.runs(command) for command in long}
    if any(not place.background for command in long for _, place in runs[command]):
        return
    last = long[-1:] or _last_in_background(batch)
    for command in last:
        end = max(line for line, _ in batch.runs(command))
        after = [each for each in batch.commands if each.line > end or (each.line == end and each is not command)]
        after = [each for each in after if not _within(batch, each, command)]
        if all(_ends_soon(each) and not each.place.loop for each in after):
            yield (
                command.line,
                (
                    "nothing waits for what runs in the background here: the batch script ends at once, the job ends "
                    "as COMPLETED 0:0 and the training is killed"
                ),
                "wait for it: wait $! as the last command, or no & behind it",
            )


def _within(batch: Batch, each: Command, training: Command) -> bool:
    """Whether a command is part of the same background statement, or of a function that runs nowhere else."""
    background = each.place.background and each.place.statement == training.place.statement
    return background or bool(each.place.function) or each in batch.settings


def _last_in_background(batch: Batch) -> tuple[Command, ...]:
    """The last command of the script, where it is in the background and nothing else may be the training."""
    outer = [each for each in batch.commands if not each.place.function and not each.place.substitution]
    busy = any(not _ends_soon(each) for each in outer)
    return () if busy else tuple(each for each in outer if _detached(each) and each.name not in _SHORT)[-1:]


def _left_by_task(batch: Batch) -> Iterator[Hit]:
    """The body of `bash -c` in a task: the task ends with its shell."""
    for launch in batch.launches:
        if launch.body is None:
            continue
        inner = bash.read(batch.resolve(launch.body.value, launch.command.line)).commands
        if not inner or any(each.name == "wait" for each in inner):
            continue
        last = inner[-1]
        if last.place.background and (launcher(last.values) or python_script(last.values)):
            yield (
                launch.command.line,
                "the task's shell ends behind the &, and its step with it: the training is killed at once",
                "no & behind the last command of the body, or wait there",
            )


def _tries_lost(batch: Batch) -> Iterator[Hit]:
    """A loop ends with the status of its last command, such as `sleep`. Source: bash(1), Compound Commands.

    Nothing is said where the loop or what follows notes, tests or exits.
    """
    long = long_commands(batch)[-1:]
    if any("exit" in handler(batch, trap) for trap in traps(batch, "EXIT")):
        return
    for command, (line, place) in ((each, batch.runs(each)[-1]) for each in long):
        if not place.loop or place.function or place.background or place.substitution:
            continue
        text = batch.script.statements[place.statement].text
        if not re.match(r"(for|while|until)\b", text) or _notes(batch, place, line, text, command.place.function):
            continue
        inside = [each for each in batch.commands if each.place.statement == place.statement]
        after = [
            each
            for each in batch.commands
            if each.place.statement > place.statement and not each.place.function and not each.place.substitution
        ]
        tried = place.guarded and any(each.name == "break" for each in inside)
        passed = not place.guarded and text.startswith("for") and not ends_on_failure(batch, line)
        more = bool(after) or (inside[-1] is not command and ends_well(inside[-1]) and not inside[-1].place.conditional)
        if (tried or passed) and more and all(map(ends_well, after)):
            yield (
                command.line,
                f"when {'every try' if tried else 'one of them'} has failed the script goes on, to COMPLETED 0:0",
                "srun ... && exit 0 in the loop, and exit 1 behind it"
                if tried
                else "srun ... || failed=1, and exit $failed",
            )


def _notes(batch: Batch, place: Place, line: int, text: str, function: str) -> bool:
    """Whether a loop keeps what became of the training, or something behind it tests it."""
    counter = re.match(r"for\s*\(\(\s*(\w+)", text)
    kept = any(
        each.place.statement == place.statement and each.line >= line and each.place.loop
        for each in batch.script.assignments
        if not (counter and each.name == counter[1])
        and not re.fullmatch(r"\$\(\(.*\)\)", each.value.text if each.value else "")
    )
    whole = text + batch.script.functions.get(function, "")
    rest = batch.script.statements[place.statement + 1 :]
    tested = any(each.text.startswith(("[", "((", "!", "test", "if", "case")) for each in rest)
    return kept or tested or re.search(r"\$\{?\?|PIPESTATUS|\b(exit|return|scancel)\b", whole) is not None


RULES = (
    Rule("training-left-behind", "error", _training_left_behind),
    Rule("tries-lost", "error", _tries_lost),
)
"""How trainings are left."""
