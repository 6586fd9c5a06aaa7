"""How a script ends: its exit status, and what a signal before the time limit does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Hit, Rule
from pretrainctl.linting.programs import launcher, program
from pretrainctl.linting.script import Command
from pretrainctl.linting.variables import settings

__all__ = ["RULES", "ends_on_failure", "ends_well", "handler", "long_commands", "traps"]


_TELLING = frozenset({"true", ":", "echo", "printf", "date", "sleep", "logger", "mail", "mailx", "hostname", "tee"})
"""Commands that end well whatever the training did, and leave nothing by which others learn of it."""


def long_commands(batch: Batch) -> tuple[Command, ...]:
    """Commands of the batch shell that may be the training, in order."""
    sruns = tuple(launch.command for launch in batch.trainings)
    if sruns:
        return sruns
    return tuple(
        command
        for command, words in batch.programs
        if not command.place.substitution and (launcher(words) or _python(program(words)))
    )


def _python(words: tuple[str, ...]) -> bool:
    """Whether this is Python with a program, and not with a text or a tool of its own."""
    tool = words[1:2] == ("-m",) and words[2:3] in (("pip",), ("venv",), ("ensurepip",))
    return (
        bool(words)
        and bool(re.fullmatch(r"(.*/)?python[0-9.]*", words[0]))
        and words[1:2] not in (("-c",), ("-V",), ("--version",))
        and not tool
    )


def _shell_option(batch: Batch, letter: str, name: str, line: int) -> bool:
    """Whether `set -<letter>` or `set -o <name>` holds at a line."""
    on = bool(letter and re.search(rf"\s-\w*{letter}", batch.script.shebang))
    for command in batch.settings:
        if command.line > line or command.place.function:
            continue
        values = command.values[1:]
        for index, word in enumerate(values):
            if letter and re.fullmatch(rf"[-+][A-Za-z]*{letter}[A-Za-z]*", word):
                on = word.startswith("-")
            if re.fullmatch(r"[-+][A-Za-z]*o", word) and name in values[index + 1 : index + 2]:
                on = word.startswith("-")
    return on


def ends_on_failure(batch: Batch, line: int) -> bool:
    """Whether a command that fails at a line ends the script: by `set -e`, or a trap of ERR that exits."""
    if _shell_option(batch, "e", "errexit", line):
        return True
    held = [trap for trap in traps(batch, "ERR") if trap.line <= line]
    return bool(held) and re.search(r"\b(exit(?!\s+0)|scancel|kill)\b", handler(batch, held[-1])) is not None


def handler(batch: Batch, trap: Command) -> str:
    """What a trap runs, with the functions that it calls."""
    text, seen = trap.values[2 if trap.values[1] == "--" else 1], set[str]()
    while True:
        called = {name for name in batch.script.functions if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)}
        if called <= seen:
            return text
        text, seen = "\n".join((text, *(batch.script.functions[name] for name in sorted(called - seen)))), called | seen


def _status_hidden_by_pipe(batch: Batch) -> Iterator[Hit]:
    """A pipeline's status is its last command's, which is tee's, unless `pipefail` holds. Source: bash(1)."""
    for command in long_commands(batch):
        places = [place for line, place in batch.runs(command) if not _shell_option(batch, "", "pipefail", line)]
        hidden = [place for place in places if place.piped]
        if not hidden or len(hidden) < len(batch.runs(command)):
            continue
        if "PIPESTATUS" in "".join(each.text for each in batch.script.statements[hidden[0].statement :]):
            continue
        yield (
            command.line,
            (
                "the status of the pipeline is that of its last command: a failed training ends as COMPLETED 0:0, and "
                "jobs that wait for its success start"
            ),
            "set -o pipefail before it",
        )


def _status_lost(batch: Batch) -> Iterator[Hit]:
    """A script's status is its last command's. Source: bash(1); seen as COMPLETED after a failure."""
    yield from _status_excused(batch)
    for command in long_commands(batch)[-1:]:
        place, own = command.place, batch.script.statements[command.place.statement].text
        if place.guarded or place.function or place.loop or place.background or command.name == "exec":
            continue
        after = batch.script.statements[place.statement + 1 :]
        if not after or ends_on_failure(batch, command.line):
            continue
        if re.search(r"\$\{?(\?|PIPESTATUS)|^exit\s*$", after[0].text) or re.search(r"\$\?|PIPESTATUS", own):
            continue
        if _exits_after(batch, command):
            continue
        late = next((each for each in after[1:] if re.search(r"\$\{?\?", each.text)), None)
        what = (
            f"line {late.line} reads $? of line {after[0].line}'s command"
            if late
            else f"line {after[0].line} replaces it"
        )
        yield (
            command.line,
            f"the status of the training is lost, {what}: a failed training ends as COMPLETED 0:0",
            'status=$? right after it, and exit "$status" at the end; or set -e',
        )


def _status_excused(batch: Batch) -> Iterator[Hit]:
    """`||`, `!` or a condition takes the failure of every training, and nothing in or after its statement fails.

    Source: bash(1), Lists and Compound Commands. What a loop tries again, and what others may read, is not judged.
    """
    long = long_commands(batch)
    if not all(command.place.excused for command in long) or any(
        "exit" in handler(batch, t) for t in traps(batch, "EXIT")
    ):
        return
    for command in long[-1:]:
        place, last = command.place, batch.script.statements[-1]
        if place.function or place.loop or place.background:
            continue
        at = batch.commands.index(command)
        after = [each for each in batch.commands[at + 1 :] if not each.place.function and not each.place.substitution]
        noted = any(
            each.place.statement == place.statement and each.line >= command.line for each in batch.script.assignments
        )
        if noted or last.text.startswith(("[", "((", "!")) or not all(map(ends_well, after)):
            continue
        yield (
            command.line,
            "the status of the training is looked at and dropped: a failed training ends as COMPLETED 0:0",
            'srun ... || exit $?; or status=$? there, and exit "$status" at the end',
        )


def ends_well(command: Command) -> bool:
    """Whether a command tells something, or ends the script with the status of what it told."""
    return command.name in _TELLING or command.values in (("wait",), ("exit",), ("exit", "0"), ("exit", "$?"))


def _exits_after(batch: Batch, command: Command) -> bool:
    """Whether the same statement, such as the branch of an `if`, hands the status on with a bare `exit`."""
    same = [each for each in batch.script.commands if each.place.statement == command.place.statement]
    return any(each.values == ("exit",) and each.line >= command.line for each in same)


def _signal(batch: Batch) -> tuple[int, bool, str] | None:
    """Line, whether it goes to the batch shell, and name of `--signal`."""
    given = batch.options.get("signal")
    match = re.match(r"(?:([RB]{1,2}):)?(?:SIG)?(\w+)", given.value.upper()) if given else None
    if given is None or match is None:
        return None
    numbers = {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM"}
    return given.line, "B" in (match[1] or ""), numbers.get(match[2], match[2])


def traps(batch: Batch, name: str) -> list[Command]:
    """Every `trap` of a signal, of ERR or EXIT."""
    numbers = {"HUP": "1", "INT": "2", "USR1": "10", "USR2": "12", "TERM": "15", "EXIT": "0"}
    names = {name, f"SIG{name}", numbers.get(name, name)}
    return [
        command
        for command in batch.script.commands
        if command.name == "trap" and len(command.words) > 2 and names & {word.upper() for word in command.values[2:]}
    ]


def _signal_waits_for_foreground(batch: Batch) -> Iterator[Hit]:
    """Bash runs a trap only after the foreground command has returned. Source: bash(1), SIGNALS; seen."""
    given = _signal(batch)
    runs = {command: batch.runs(command) for command in long_commands(batch)}
    if given is None or not given[1] or any(place.background for places in runs.values() for _, place in places):
        return
    for trap in traps(batch, given[2])[:1]:
        for command, places in runs.items():
            late = any(line > trap.line for line, _ in places)
            if late and command.name != "exec" and trap.values[1] not in ("", "-"):
                yield (
                    command.line,
                    (
                        f"{given[2]} reaches the batch shell, which runs the trap of line {trap.line} only when this "
                        "command has ended: too late"
                    ),
                    "put it into the background (&) and wait for it in a loop until it has really ended",
                )


def _signal_not_trapped(batch: Batch) -> Iterator[Hit]:
    """With `B:` only the batch shell is signalled, and without a trap it dies of it. Source: sbatch(1), bash(1)."""
    given = _signal(batch)
    if given is None or not given[1] or traps(batch, given[2]):
        return
    if any(command.name == "exec" and len(command.words) > 1 for command in batch.script.commands):
        return  # the program is the batch process, and hears it
    named = {word.upper().removeprefix("SIG") for command in batch.script.commands for word in command.values}
    if given[2] in named or not long_commands(batch):
        return  # a function from another file may set the trap
    yield (
        given[0],
        (
            f"B: signals the batch shell only, which has no trap for {given[2]}: it ends at once and the job with it, "
            "and the training hears nothing"
        ),
        f"trap {given[2]} and pass it on, exec the program, or leave B: out",
    )


def _trap_never_called(batch: Batch) -> Iterator[Hit]:
    """Without `B:` the steps are signalled and the batch shell is not. Source: sbatch(1), --signal."""
    given = _signal(batch)
    if given is None or given[1]:
        return
    for trap in traps(batch, given[2])[:1]:
        yield (
            trap.line,
            f"--signal without B: goes to the steps, not to the batch shell: this trap of {given[2]} is never called",
            f"#SBATCH --signal=B:{given[2]}@SECONDS",
        )


def _signal_kills_launcher(batch: Batch) -> Iterator[Hit]:
    """Torchrun passes on TERM, INT, HUP and QUIT; USR1 and USR2 end it by their default action.

    Source: torch/distributed/elastic/multiprocessing/api.py, TORCHELASTIC_SIGNALS_TO_HANDLE.
    """
    given = _signal(batch)
    if given is None or given[1] or given[2] not in ("USR1", "USR2"):
        return
    for launch in batch.launches:
        for words in launch.tasks:
            found = launcher(words)
            handled = any(settings(batch, "TORCHELASTIC_SIGNALS_TO_HANDLE"))
            if found and found[0] == "torchrun" and not handled and _no_option(found[1]):
                yield (
                    launch.command.line,
                    (
                        f"{given[2]} goes to every process of the step, and torchrun has no handler for it: it dies, "
                        "and the ranks with it"
                    ),
                    f"export TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIG{given[2]}, or send TERM",
                )


def _no_option(arguments: tuple[str, ...]) -> bool:
    return not any(word.replace("-", "_").startswith("__signals_to_handle") for word in arguments)


def _wait_ends_on_signal(batch: Batch) -> Iterator[Hit]:
    """`wait` returns above 128 when a trapped signal comes, and the process still runs. Source: bash(1); seen."""
    given = _signal(batch)
    background = [
        command for command in long_commands(batch) if any(place.background for _, place in batch.runs(command))
    ]
    if given is None or not given[1] or not background:
        return
    held = traps(batch, given[2])
    waits = [command for command in batch.script.commands if command.name == "wait" and not command.place.function]
    if not held or not waits or any(_ends_or_waits(batch, trap) for trap in held):
        return
    first = waits[0]
    strict = ends_on_failure(batch, first.line) and not first.place.guarded
    if strict or (len(waits) == 1 and not first.place.loop):
        why = "and set -e or a trap of ERR ends the script there" if strict else "and the script goes on to its end"
        yield (
            first.line,
            f"{given[2]} ends this wait while the training still runs, {why}: the job ends, and the training is killed",
            'until it has ended: while kill -0 "$pid" 2>/dev/null; do wait "$pid" || status=$?; done',
        )


def _ends_or_waits(batch: Batch, trap: Command) -> bool:
    """Whether a trap's handler means to end the script, or itself waits for the training."""
    return re.search(r"\b(exit|wait|requeue)\b", handler(batch, trap)) is not None


RULES = (
    Rule("status-hidden-by-pipe", "error", _status_hidden_by_pipe),
    Rule("status-lost", "error", _status_lost),
    Rule("signal-waits-for-foreground", "warning", _signal_waits_for_foreground),
    Rule("signal-not-trapped", "warning", _signal_not_trapped),
    Rule("trap-never-called", "warning", _trap_never_called),
    Rule("signal-kills-launcher", "warning", _signal_kills_launcher),
    Rule("wait-ends-on-signal", "warning", _wait_ends_on_signal),
)
"""How a script ends."""
