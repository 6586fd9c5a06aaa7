"""What a script asks of Slurm, wherever it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pretrainctl.linting.allocation import node_counts
from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Hit, Rule

__all__ = ["RULES"]


def _no_shebang(batch: Batch) -> Iterator[Hit]:
    """sbatch: "This does not look like a batch script" without `#!` in the first line.

    Source: sbatch of Slurm 22.05.
    """
    if not batch.script.shebang:
        yield 1, "sbatch refuses a script whose first line does not begin with #!", "begin with #!/bin/bash"


def _dos_line_breaks(batch: Batch) -> Iterator[Hit]:
    """Sbatch refuses lines that end in CR LF. Source: sbatch of Slurm 22.05 ("DOS line breaks")."""
    if batch.script.dos:
        yield 1, "lines end in CR LF, and sbatch refuses a script with DOS line breaks", "sed -i 's/\\r$//' SCRIPT"


def _late_directive(batch: Batch) -> Iterator[Hit]:
    """Sbatch stops reading directives at the first line that is neither empty nor a comment. Source: sbatch(1)."""
    for line in batch.script.header.late:
        yield (
            line,
            "Slurm reads no #SBATCH line after the first command: this one is a comment",
            "move it above the first command",
        )


def _not_a_directive(batch: Batch) -> Iterator[Hit]:
    """Sbatch reads lines that begin with `#SBATCH`; a blank in front or inside, or
    another spelling, makes a comment. Source: sbatch(1).

    `##SBATCH` is how people switch one off, and an option that is given elsewhere is one that was replaced.
    """
    lines = {each.line: each.name for each in reversed(batch.script.header.nearly) if each.name not in batch.options}
    for line, name in sorted(lines.items()):
        yield (
            line,
            f"not #SBATCH at the beginning of the line, so a comment: Slurm sees no --{name}",
            "begin the line with #SBATCH; with ##SBATCH where it is meant to be off",
        )


def _variable_in_directive(batch: Batch) -> Iterator[Hit]:
    """Sbatch reads directives itself; no shell has seen them. Source: sbatch(1): to the shell they are comments."""
    for directive in batch.script.header.directives:
        if re.search(r"\$[A-Za-z_{(]|`|^~", directive.value):
            yield (
                directive.line,
                f"no shell reads a #SBATCH line: --{directive.name} is literally {directive.value!r}",
                "write the value out, use sbatch's own %j, %x, %u in file names, or give the option to sbatch itself",
            )


def _memory_options(batch: Batch) -> Iterator[Hit]:
    """sbatch: "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive". Source: sbatch's own words."""
    given = [batch.options[name] for name in ("mem", "mem-per-cpu", "mem-per-gpu") if name in batch.options]
    if len(given) > 1:
        names = " and ".join(f"--{directive.name}" for directive in given)
        yield max(directive.line for directive in given), f"{names} exclude each other; sbatch refuses", "keep one"


def _missing_time(batch: Batch) -> Iterator[Hit]:
    """Without `--time` the partition's default holds: 1 h on JUPITER, 10 minutes on Jean Zay; MareNostrum 5 refuses.

    Source: the sites' user guides.
    """
    if "time" not in batch.options:
        yield (
            1,
            "no --time: the partition's default holds (10 minutes on Jean Zay, 1 h on JUPITER), or the job is refused",
            "#SBATCH --time=D-HH:MM:SS",
        )


def _unreadable_time(batch: Batch) -> Iterator[Hit]:
    """Sbatch takes M, M:S, H:M:S, D-H, D-H:M, D-H:M:S. Source: sbatch(1), --time."""
    given = batch.options.get("time")
    if given and batch.seconds is None and not _PUT_IN.search(given.value):
        yield given.line, f"sbatch cannot read the time {given.value!r}", "#SBATCH --time=D-HH:MM:SS"


_PUT_IN = re.compile(r"[$`{}<>@%]")
"""In a value that a shell or a template is to put in; the rule on variables judges the first."""
_COUNTS = ("ntasks", "ntasks-per-node", "ntasks-per-gpu", "cpus-per-task", "cpus-per-gpu")


def _unreadable_count(batch: Batch) -> Iterator[Hit]:
    """sbatch: "is not a valid node count", "Invalid numeric value". Source: sbatch of Slurm 22.05."""
    for name in ("nodes", *_COUNTS):
        given = batch.options.get(name)
        if given is None or _PUT_IN.search(given.value):
            continue
        read = node_counts(given.value) is not None if name == "nodes" else re.fullmatch(r"\+?\d+", given.value)
        if not read:
            yield given.line, f"sbatch cannot read --{name}={given.value}", "write a whole number"


def _node_sizes(batch: Batch) -> Iterator[Hit]:
    """A list or steps of node counts: sbatch of 22.05 says "is not a valid node count", newer ones choose one of them.

    Source: sbatch(1) of later versions, --nodes (size_string); sbatch of Slurm 22.05.
    """
    given = batch.options.get("nodes")
    if given and re.search(r"[,:]", given.value) and node_counts(given.value):
        yield (
            given.line,
            f"--nodes={given.value} is several sizes: older sbatch refuses it, newer takes any of them",
            "write the one number of nodes that the training is set up for",
        )


def _requeue_truncates_log(batch: Batch) -> Iterator[Hit]:
    """A requeued job keeps its id and starts from the beginning, so its log is opened anew.

    Source: sbatch(1), --requeue and --open-mode; Leonardo's and LUMI's users lost logs so.
    """
    asked = batch.options.get("requeue")
    line = asked.line if asked else None
    for command in batch.script.commands:
        if line is None and command.values[:2] == ("scontrol", "requeue"):
            line = command.line
    for trap in batch.script.commands:
        if line is None and trap.name == "trap" and "scontrol requeue" in " ".join(trap.values):
            line = trap.line
    mode = batch.options.get("open-mode")
    if line is not None and (mode is None or not mode.value.startswith("a")):
        yield (
            line,
            "a requeued job keeps its id and its log's name: the log of the first start is overwritten",
            "#SBATCH --open-mode=append",
        )


def _requeue_and_singleton(batch: Batch) -> Iterator[Hit]:
    """A requeued job that waits for its begin time keeps the singleton behind it waiting. Source: seen on 22.05."""
    requeue, dependency = batch.options.get("requeue"), batch.options.get("dependency")
    if requeue and dependency and "singleton" in dependency.value:
        yield (
            requeue.line,
            (
                "after a node's death the requeued job waits two minutes for its begin time, and the singleton behind "
                "it waits too"
            ),
            "#SBATCH --no-requeue, where a chain of singleton jobs goes on anyway",
        )


def _unread(batch: Batch) -> Iterator[Hit]:
    """What the grammar cannot read is not checked; better said than hidden. Source: tree-sitter-bash."""
    for line in batch.script.unread[:1]:
        yield line, "lint cannot read this as bash, so what stands here was not checked", "see `bash -n SCRIPT`"


RULES = (
    Rule("no-shebang", "error", _no_shebang),
    Rule("dos-line-breaks", "error", _dos_line_breaks),
    Rule("late-directive", "error", _late_directive),
    Rule("not-a-directive", "warning", _not_a_directive),
    Rule("variable-in-directive", "error", _variable_in_directive),
    Rule("memory-options", "error", _memory_options),
    Rule("missing-time", "warning", _missing_time),
    Rule("unreadable-time", "error", _unreadable_time),
    Rule("unreadable-count", "error", _unreadable_count),
    Rule("node-sizes", "warning", _node_sizes),
    Rule("requeue-truncates-log", "warning", _requeue_truncates_log),
    Rule("requeue-and-singleton", "warning", _requeue_and_singleton),
    Rule("unread", "warning", _unread),
)
"""What is asked of Slurm."""
