"""Trainings that a script leaves: in the background at its end, after tries that failed, or without their status."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pretrainctl.linting import script as bash
from pretrainctl.linting.batch import Batch
from pretrainctl.linting.ending import ends_on_failure, ends_well, handler, long_commands, traps
from pretrainctl.linting.findings import Hit, Rule
from pretrainctl.linting.programs import launcher, python_script
from pretrainctl.linting.script import Assignment, Command, Place

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


_MOVING = frozenset(
    {"sbatch", "cp", "mv", "rm", "mkdir", "ln", "touch", "cat", "ls", "tar", "rsync", "sync", "chmod", "cd", "disown"}
    | {"squeue", "sacct", "sstat", "seff", "nvidia-smi"}
)
"""Commands that follow a training and end well whatever became of it; the next job is no sign of success."""


def _drops(command: Command) -> bool:
    """Whether a command hands on no status of a training that ended before the one in front of it."""
    return ends_well(command) or command.name in _MOVING or command.place.substitution


def _bare_wait(batch: Batch) -> Iterator[Hit]:
    """A bare `wait` returns 0 whatever became of the processes. Source: bash(1), wait; seen as COMPLETED.

    Nothing is said of a loop that starts several, nor where a status is noted or anything behind it may fail.
    """
    yield from _bare_wait_of_task(batch)
    long = long_commands(batch)
    runs = [place for command in long for _, place in batch.runs(command)]
    if not runs or any(not place.background or place.loop or place.guarded for place in runs):
        return
    held = (*traps(batch, "EXIT"), *traps(batch, "CHLD"))
    if any(re.search(r"\b(exit|wait)\b", handler(batch, trap)) for trap in held):
        return
    waits = [each for each in batch.commands if each.name == "wait"]
    behind = batch.commands[batch.commands.index(long[-1]) :]
    functions = {"", long[-1].place.function}
    bare = next((each for each in behind if each.values == ("wait",) and each.place.function in functions), None)
    if bare is None or any(len(each.values) > 1 for each in waits):
        return
    started, waited = min(place.statement for place in runs), bare.place.statement
    noted = "\n".join(each.text for each in batch.script.statements[started : waited + 1])
    others = [each for each, words in batch.programs if each not in long and (launcher(words) or python_script(words))]
    if re.search(r"\$\{?\?.*>|\w=\$\{?\?|PIPESTATUS", noted) or any(not each.place.background for each in others):
        return
    zero = {f"${each.name}" for each in batch.script.assignments if each.place.statement == waited + 1 and _reads(each)}
    after = behind[behind.index(bare) + 1 :]
    ends = [re.sub(r"[{}]", "", " ".join(each.values[1:])) in zero and each.name == "exit" for each in after]
    rest = batch.script.statements[waited + 1 :]
    lost = all(end or _drops(each) for end, each in zip(ends, after, strict=True) if not each.place.function)
    if lost and not any(each.text.startswith(_TESTS) for each in rest):
        yield (
            bare.line,
            "a bare wait returns 0 whatever became of the training: a failed one ends as COMPLETED 0:0",
            'wait "$pid" with the pid of each from $!, and exit with the status that it returns',
        )


def _bare_wait_of_task(batch: Batch) -> Iterator[Hit]:
    """The body of `bash -c` in a task, whose last command it is."""
    for launch in batch.launches:
        if launch.body is None or "$?" in launch.body.value:
            continue
        inner = bash.read(batch.resolve(launch.body.value, launch.command.line)).commands
        trainings = [each for each in inner if launcher(each.values) or python_script(each.values)]
        waits = [each.values for each in inner if each.name == "wait"]
        kept = any(not each.place.background or each.place.guarded or each.place.loop for each in trainings)
        if trainings and not kept and inner[-1].values == ("wait",) and set(waits) == {("wait",)}:
            yield (
                launch.command.line,
                "a bare wait returns 0 whatever became of the training: a task that failed ends well, and its step too",
                'wait "$pid" with the pid from $! as the last command of the body',
            )


def _reads(assignment: Assignment) -> bool:
    return assignment.value is not None and assignment.value.value == "$?"


_TESTS = ("[", "((", "!", "test ", "(", "case")
"""How a statement begins that may fail by what it finds."""


def _status_only_read(batch: Batch) -> Iterator[Hit]:
    """An `if` whose branch is not taken ends with 0, and a taken one as its last command. Source: bash(1).

    Nothing is said where anything behind the training may fail, leaves the script or notes the status in a file.
    """
    if any("exit" in handler(batch, trap) for trap in traps(batch, "EXIT")):
        return
    long = long_commands(batch)
    follow = [each for each in long if _ON_SUCCESS.match(batch.script.statements[each.place.statement].text)]
    for command in [each for each in long if each not in follow][-1:]:
        place = command.place
        inner = place.guarded or place.function or place.loop or place.background or place.conditional
        rest = batch.script.statements[place.statement + 1 :]
        if inner or command.name == "exec" or not rest or ends_on_failure(batch, command.line):
            continue
        after = [each for each in batch.commands if each.place.statement > place.statement]
        first = next((each for each in after if each.place.statement == place.statement + 1), None)
        read = re.search(r"\$\{?(\?|PIPESTATUS)", rest[0].text)
        if not read or (first and first.name == "exit"):
            continue
        text = re.sub(r"(\d|&)?>+\s*(/dev/null|&\d)", "", "\n".join(each.text for each in rest))
        tests = any(each.text.startswith(_TESTS) for each in rest)
        leaves = any(_exits_by_branch(each) for each in after)
        if (
            not tests
            and not leaves
            and ">" not in text
            and all(_drops(each) or _in_condition(each) or each in follow for each in after)
        ):
            yield (
                command.line,
                (
                    f"line {rest[0].line} reads the status of the training and nothing ends the script with it: a "
                    "failed training ends as COMPLETED 0:0"
                ),
                'status=$? right after it, and exit "$status" at the end',
            )


_ON_SUCCESS = re.compile(
    r"if\s+(?:\[\[?|\(\(|test)\s+[\"']?\$?\{?[\w?]+\}?[\"']?\s+(?:-eq|==?)\s+0\b(?!.*\b(?:else|elif)\b)", re.DOTALL
)
"""An `if` whose only branch follows a success."""


def _exits_by_branch(command: Command) -> bool:
    return command.name == "exit" and command.place.conditional and command.values != ("exit", "0")


def _in_condition(command: Command) -> bool:
    return command.name == "test" and command.place.excused


RULES = (
    Rule("training-left-behind", "error", _training_left_behind),
    Rule("tries-lost", "error", _tries_lost),
    Rule("bare-wait", "error", _bare_wait),
    Rule("status-only-read", "error", _status_only_read),
)
"""How trainings are left."""
