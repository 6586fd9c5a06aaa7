"""How tasks learn which one they are, and what the batch shell tells them instead."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pretrainctl.linting import script as bash
from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Hit, Rule
from pretrainctl.linting.launching import launches_per_node, option, reaches_others
from pretrainctl.linting.programs import launcher, program, python_script
from pretrainctl.linting.script import Command
from pretrainctl.linting.variables import settings

__all__ = ["RULES"]

_PER_TASK = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")
"""Differ from task to task; in the batch shell they are those of the batch task: 0."""


def _same_node_rank(batch: Batch) -> Iterator[Hit]:
    """Torchrun's rendezvous is static by default, and there only `--node_rank`, 0 by default, tells nodes apart.

    Source: torch/distributed/run.py of 2.13 (defaults of `--rdzv-backend` and `--node-rank`; config_from_args hands
    the node rank to the static rendezvous, whatever `--rdzv-conf` says; each option is read from PET_* too).
    """
    if any(settings(batch, "PET_NODE_RANK", "PET_RDZV_BACKEND", "PET_STANDALONE")):
        return
    for launch in batch.launches:
        if launch.one_node or {"nodelist", "relative", "het-group"} & set(launch.options):
            continue
        for name, arguments in filter(None, map(launcher, launch.tasks)):
            own = _of_torchrun(arguments)
            nodes, backend = option(own, "nnodes"), option(arguments, "rdzv_backend")
            several = batch.multi_node or (nodes or "").isdecimal()
            if name != "torchrun" or nodes in (None, "1", "1:1") or not several:
                continue
            rank = option(arguments, "node_rank")
            if backend not in (None, "static") or option(arguments, "standalone") is not None or _unseen(own):
                continue
            if rank is None or rank.isdecimal():
                yield (
                    launch.command.line,
                    (
                        f"torchrun's rendezvous is {'' if backend else 'by default '}static, and every node is rank "
                        f"{rank or 0} in it: it cannot tell the nodes apart"
                    ),
                    "--rdzv_backend=c10d; or srun bash -c 'torchrun --node_rank=$SLURM_NODEID ...' in single quotes",
                )


def _of_torchrun(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Its own options: what stands in front of the file or module that it runs."""
    for index, word in enumerate(arguments):
        if word.endswith(".py") or word in ("-m", "--module"):
            return arguments[:index]
    return arguments


def _unseen(options: tuple[str, ...]) -> bool:
    """Whether a variable that the script does not set may hold more options."""
    before = ("", *options)
    return any(
        word.startswith("$") and ("=" in last or not last.startswith("-"))
        for last, word in zip(before, options, strict=False)
    )


def _task_variable_on_batch_host(batch: Batch) -> Iterator[Hit]:
    """Put in by the batch shell, SLURM_PROCID is 0 for every task. Source: seen; "1/4 clients joined"."""
    hit = (
        "is put in by the batch shell, once: every task sees 0",
        "let the task put it in: single quotes around the body of bash -c, \\$ in double ones, or a script of its own",
    )
    if not batch.launches:
        yield from _task_variable_without_tasks(batch)
        return
    for launch in batch.launches:
        prefix = [each.value for each in launch.command.prefix if each.value]
        words = (*launch.command.words, *prefix, *([launch.command.document] if launch.command.document else []))
        names = sorted({name for word in words for name in word.expands if name in _PER_TASK})
        if names:
            yield launch.command.line, f"{', '.join(names)} {hit[0]}", hit[1]
    if any("$0" in launch.command.values or "${BASH_SOURCE[0]}" in launch.command.values for launch in batch.launches):
        return  # the script is its own task
    for assignment in batch.script.assignments:
        names = sorted(set(assignment.value.expands if assignment.value else ()) & set(_PER_TASK))
        if names and not assignment.place.function and assignment.name in _reaching_tasks(batch):
            yield assignment.line, f"{assignment.name}: {', '.join(names)} {hit[0]}", hit[1]
    for command in batch.script.commands:
        names = sorted(set(command.document.expands if command.document else ()) & set(_PER_TASK))
        if names and command.name in ("cat", "tee"):
            yield (
                command.document.line if command.document else command.line,
                f"{', '.join(names)} in this here-document {hit[0]}",
                "quote the end word: <<'EOF'",
            )


def _task_variable_without_tasks(batch: Batch) -> Iterator[Hit]:
    """A training that is told its rank by Slurm, in a script that starts no tasks: it is rank 0, and the only one."""
    if reaches_others(batch) or not (batch.multi_node or (batch.tasks_per_node or 1) > 1):
        return
    for command in batch.script.commands:
        names = sorted({name for word in command.words for name in word.expands if name in _PER_TASK})
        if names and not command.place.substitution and python_script(program(command.values)):
            yield (
                command.line,
                f"{', '.join(names)} is 0 in the batch script, which starts this program once: there are no others",
                "srun bash -c 'python ...' in single quotes, so that each task puts in its own",
            )


def _reaching_tasks(batch: Batch) -> set[str]:
    """Variables of the batch shell that tasks see: exported ones, and those in the words of an srun."""
    names = {each.name for each in batch.script.assignments if each.exported}
    names |= {name for launch in batch.launches for word in launch.command.words for name in word.expands}
    while True:
        more = {
            name
            for each in batch.script.assignments
            if each.name in names and each.value
            for name in each.value.expands
        }
        if more <= names:
            return names
        names |= more


def _unexported_variable(batch: Batch) -> Iterator[Hit]:
    """A body in single quotes is read in the task, which has exported variables only.

    Source: bash(1); seen as "integer expression expected".
    """
    if any(
        command.values[:2] in (("set", "-a"), ("set", "-o"))
        for command in batch.script.commands
        if _allexport(command.values)
    ):
        return
    exported = {each.name for each in batch.script.assignments if each.exported}
    for launch in batch.launches:
        if launch.body is None:
            continue
        inner = bash.read(launch.body.value)
        own = {each.name for each in inner.assignments} | {each.name for each in launch.command.prefix}
        passed = re.findall(r"\w+", launch.options.get("export", ""))
        for name in sorted(inner.expands):
            known = [each for each in batch.assigned(name) if each.line <= launch.command.line]
            if known and name not in exported | own | set(passed) | set(launch.body.expands):
                yield (
                    launch.command.line,
                    f"{name} is read in the task, but line {known[-1].line} does not export it: it is empty there",
                    f"export {name}",
                )


def _allexport(values: tuple[str, ...]) -> bool:
    return values[:1] == ("set",) and ("allexport" in values or any(re.fullmatch(r"-\w*a\w*", each) for each in values))


_MEETING = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
"""Variables from which ranks learn how to meet; PyTorch reads them from the environment."""
_TELLING = frozenset({"echo", "printf", "logger", "test", "["})
"""Commands to which a variable is text."""


def _unexported_rendezvous(batch: Batch) -> Iterator[Hit]:
    """PyTorch's `env://` reads these from the environment, where a variable that is not exported is not.

    Source: torch/distributed/rendezvous.py (_env_rendezvous_handler); bash(1), ENVIRONMENT. Nothing is said where the
    shell puts the variable in somewhere, nor where a file that is read in may export it.
    """
    if any(_allexport(command.values) or _reads_in(command) for command in batch.script.commands):
        return
    exported = {each.name for each in batch.script.assignments if each.exported}
    for launch in batch.trainings:
        shown = " ".join((launch.options.get("export", ""), launch.body.value if launch.body else ""))
        told = {each.name for each in launch.command.prefix} | set(re.findall(r"\w+", shown))
        several = (batch.multi_node and not launch.one_node) or (launches_per_node(batch, launch) or 1) > 1
        if not several or not any(map(_runs_python, launch.tasks)):
            continue
        for name in sorted(set(_MEETING) - exported - told - _put_in(batch)):
            lone = [
                each
                for each in batch.script.assignments
                if each.name == name and each.value and each.line <= launch.command.line and not each.exported
            ]
            if lone and not any(name in each.value.expands for each in lone if each.value):
                yield (
                    lone[-1].line,
                    f"{name} is not exported, and no word of the script uses it: the tasks do not have it",
                    f"export {name}",
                )


def _runs_python(words: tuple[str, ...]) -> bool:
    """Whether a task is a Python program that nothing but its environment tells how to meet."""
    started = program(words)
    module = started[1:2] == ("-m",) and bool(re.match(r"(.*/)?python[0-9.]*$", started[0]))
    return launcher(words) is None and (module or python_script(words) is not None)


def _put_in(batch: Batch) -> set[str]:
    """Variables that this shell puts into a word of a command, or into another variable."""
    commands = [each for each in batch.script.commands if each.name not in _TELLING]
    words = [word for each in commands for word in (*each.words, *([each.document] if each.document else []))]
    words += [each.value for command in batch.script.commands for each in command.prefix if each.value]
    words += [each.value for each in batch.script.assignments if each.value and each.name not in each.value.expands]
    return {name for word in words for name in word.expands}


def _reads_in(command: Command) -> bool:
    """Whether it reads in a file that may export what the script then sets."""
    return command.name in ("source", ".", "eval") and not re.search(
        r"/activate$|conda|module|bashrc|profile", " ".join(command.values[1:2])
    )


RULES = (
    Rule("same-node-rank", "error", _same_node_rank),
    Rule("task-variable-on-batch-host", "error", _task_variable_on_batch_host),
    Rule("unexported-variable", "error", _unexported_variable),
    Rule("unexported-rendezvous", "warning", _unexported_rendezvous),
)
"""How tasks learn which one they are."""
