"""Jobs that submit the next of their chain."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pretrainctl.linting.batch import Batch
from pretrainctl.linting.ending import ends_on_failure, long_commands
from pretrainctl.linting.findings import Hit, Rule
from pretrainctl.linting.options import read_options
from pretrainctl.linting.programs import unwrapped
from pretrainctl.linting.script import Command

__all__ = ["RULES"]

_SAME = re.compile(
    r"\$0|\$\{0|BASH_SOURCE|SLURM_JOB_NAME|scontrol|chain|loop|self|resub|restart|resum|continu|next|train|(^|/)(job|run)\b",
    re.IGNORECASE,
)
"""In the name of a script that is, or may be, the next of a chain of trainings."""
_OTHER = re.compile(
    r"eval|convert|export|post|analy|plot|clean|test|upload|report|merge|copy|sync|valid|bench", re.IGNORECASE
)
"""In the name of one that comes after a training."""
_STOPS_ITSELF = re.compile(
    r"exit[-_](duration|interval|signal)|max[-_]?(time|runtime|duration|hours|minutes|seconds)|time[-_]?(limit|out)"
    r"|wall[-_]?(time|clock)|stop[-_]after|SLURM_JOB_END_TIME",
    re.IGNORECASE,
)
"""In the options of a training that ends before the time limit."""


def _submits(batch: Batch) -> Iterator[tuple[Command, dict[str, str], str]]:
    """Each sbatch of the batch shell that submits a script of the chain, its options, and the script."""
    for command in batch.commands:
        words = unwrapped([batch.resolve(value, command.line) for value in command.values])
        sent = re.fullmatch(r"[^\[(]*\b(sbatch\s[^;&|]*).*", " ".join(words[1:])) if words[:1] == ("ssh",) else None
        words = tuple(sent[1].split()) if sent else words
        if not words or words[0].rsplit("/", 1)[-1] != "sbatch":
            continue
        if command.place.function and all(place.function for _, place in batch.runs(command)):
            continue  # a handler's, or never called
        options, first = read_options(words[1:], command="sbatch")
        script = words[1 + first] if len(words) > 1 + first else ""
        name = script.rsplit("/", 1)[-1]
        if script and _SAME.search(name) and not _OTHER.search(name) and "wrap" not in options:
            yield command, options, script


def _last_of_the_training(batch: Batch) -> int | None:
    """Line of the last training in the foreground."""
    lines = [
        line
        for command in long_commands(batch)
        for line, place in batch.runs(command)
        if not place.background and command.name != "exec"
    ]
    return max(lines, default=None)


def _may_stop_itself(batch: Batch) -> bool:
    """Whether a training may end before the time limit: by a signal, or an option of its own."""
    text = "\n".join(batch.resolve(value, each.line) for each in long_commands(batch) for value in each.values)
    wrapped = any("timeout" in each.values for each in long_commands(batch))
    return "signal" in batch.options or wrapped or bool(_STOPS_ITSELF.search(text))


def _chain_not_reached(batch: Batch) -> Iterator[Hit]:
    """At the time limit Slurm ends the batch script with its steps. Source: sbatch(1), --time; seen as TIMEOUT."""
    last, submits = _last_of_the_training(batch), tuple(_submits(batch))
    if last is None or _may_stop_itself(batch):
        return
    if any(min(line for line, _ in batch.runs(command)) < last for command, _, _ in submits):
        return
    for command, _, script in submits:
        if not command.place.conditional and not command.place.guarded:
            also = ", and one that fails too (set -e)" if ends_on_failure(batch, command.line) else ""
            yield (
                command.line,
                (
                    f"a training that meets the time limit takes the batch script with it{also}: sbatch {script} is "
                    "never reached, and the chain ends"
                ),
                'before the training: sbatch --dependency=afterany:"$SLURM_JOB_ID" SCRIPT; scancel that one when done',
            )
            return


def _may_leave_before(batch: Batch, command: Command, line: int) -> bool:
    """Whether a branch may end the script before it runs `command` on `line`. What comes later leaves the job that is
    queued by then where it is; so does a function that is only called by a signal."""
    own = batch.commands.index(command)
    for index, each in enumerate(batch.commands):
        if each.name not in {"exit", "kill"} or not any(place.conditional for _, place in batch.runs(each)):
            continue
        called = [at for at, place in batch.runs(each) if not place.function]
        if any(at < line or (at == line and index < own) for at in called):
            return True
    return False


def _endless_chain(batch: Batch) -> Iterator[Hit]:
    """With afterany the next job starts whatever became of this one. Source: sbatch(1), --dependency.

    Nothing is said where something may end the chain: an exit in a branch before it, a scancel, a branch around it.
    """
    text = "\n".join((*batch.script.functions.values(), *(" ".join(each.values) for each in batch.commands)))
    if "array" in batch.options or re.search(r"\bscancel\b", text):
        return
    last = _last_of_the_training(batch)
    for command, options, script in _submits(batch):
        line = min(line for line, _ in batch.runs(command))
        behind = last is not None and line >= last
        if _may_leave_before(batch, command, line) or command.place.conditional or command.place.guarded:
            continue
        if behind and (ends_on_failure(batch, line) or not _may_stop_itself(batch)):
            continue  # a failure ends the chain, or chain-not-reached has said it
        if re.search(r"afterany|singleton|after:|^$", options.get("dependency", "")):
            yield (
                command.line,
                f"sbatch {script} whatever becomes of the job: one that fails at once is followed by others for ever",
                "[ -f DONE ] && exit before it, and scancel the next job where this one fails at once",
            )
            return


RULES = (
    Rule("chain-not-reached", "warning", _chain_not_reached),
    Rule("endless-chain", "warning", _endless_chain),
)
"""How jobs follow each other."""
