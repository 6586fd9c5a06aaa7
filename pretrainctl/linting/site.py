"""What the profile of a cluster knows that a script does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Hit, Rule, source
from pretrainctl.schema import ClusterProfile
from pretrainctl.units import parse_size, show_size

__all__ = ["RULES"]


def _missing_account(batch: Batch) -> Iterator[Hit]:
    """The site refuses jobs without an account. Source: the profile's account rule."""
    profile = batch.profile
    if profile and profile.account.required and "account" not in batch.options:
        name = profile.account.name or "NAME"
        yield (
            batch.last_line,
            f"{profile.name} refuses jobs without an account ({source(profile, profile.account, 'required')})",
            f"#SBATCH --account={name}",
        )


def _memory_not_here(batch: Batch) -> Iterator[Hit]:
    """Sites that give whole nodes, or count no memory, want no memory option. Source: the profile's request.memory."""
    profile = batch.profile
    if profile is None or profile.request.memory != "omit":
        return
    for name in ("mem", "mem-per-cpu", "mem-per-gpu"):
        if name in batch.options:
            yield (
                batch.options[name].line,
                f"{profile.name} wants no --{name} ({source(profile, profile.request, 'memory')})",
                "drop the line",
            )


def _too_large_for_a_node(batch: Batch) -> Iterator[Hit]:
    """More CPUs, GPUs or memory than a node has: Slurm refuses, or never starts it. Source: the profile's node."""
    profile = batch.profile
    if profile is None:
        return
    cpus, tasks, there = batch.allocation.cpus_per_node, batch.tasks_per_node or 1, profile.node
    if cpus is not None and cpus > (there.threads or there.cpus):
        by_gpu = "cpus-per-gpu" in batch.options and "cpus-per-task" not in batch.options
        share = "cpus-per-gpu" if by_gpu else "cpus-per-task"
        times = (batch.gpus or 1) if by_gpu else tasks
        yield (
            _line(batch, share, "ntasks-per-node", "ntasks"),
            (
                f"{times} {'GPUs' if by_gpu else 'tasks'} x {cpus // times} CPUs are more than the "
                f"{there.threads or there.cpus} CPUs of a node ({source(profile, there)})"
            ),
            f"#SBATCH --{share}={max(1, there.cpus // times)}",
        )
    asked = batch.allocation.gpu_option
    if asked and batch.gpus is not None and batch.gpus > there.gpus:
        yield (
            batch.options[asked].line,
            f"{batch.gpus} GPUs are more than the {there.gpus} of a node ({source(profile, there)})",
            f"ask for {there.gpus} at most",
        )
    memory, most = _memory_of_a_node(batch, cpus or 1), _memory_there(profile)
    if memory is not None and most is not None and memory[1] > most:
        name, wanted = memory
        yield (
            batch.options[name].line,
            (
                f"--{name}={batch.options[name].value} is {show_size(wanted)} a node, more than the {show_size(most)} "
                f"that a job can have there ({source(profile, profile.node)})"
            ),
            "drop the line" if profile.request.memory == "omit" else f"#SBATCH --mem={profile.request.memory}",
        )


def _memory_of_a_node(batch: Batch, cpus: int) -> tuple[str, int] | None:
    """The memory option of the script, and the bytes of each node that it asks for. Plain numbers are MiB."""
    for name, times in (("mem", 1), ("mem-per-cpu", cpus), ("mem-per-gpu", batch.gpus or 1)):
        given = batch.options.get(name)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", given.value, re.IGNORECASE) if given else None
        if match:
            return name, times * parse_size(match[1] + (match[2] or "M"))
    return None


def _memory_there(profile: ClusterProfile) -> int | None:
    """What Slurm counts; where that is unknown the node's own, unless the site counts none."""
    node = profile.node
    counts = profile.request.memory != "omit"
    known = node.memory if node.slurm_memory == "unknown" and counts else node.slurm_memory
    return None if known == "unknown" else known


def _line(batch: Batch, *names: str) -> int:
    """Where the first of these options stands that is given."""
    return next((batch.options[name].line for name in names if name in batch.options), 1)


def _threads_meant(batch: Batch) -> bool:
    """Whether the script itself says that it counts hardware threads."""
    return (batch.number("threads-per-core") or 1) > 1 or "multithread" in (batch.value("hint") or "").split(",")


def _cores_or_threads(batch: Batch) -> Iterator[Hit]:
    """More CPUs than a node has cores, no more than it has threads, where sources disagree which Slurm counts.

    Source: the profile's node.threads.
    """
    profile, cpus = batch.profile, batch.allocation.cpus_per_node
    node = profile.node if profile else None
    if profile is None or node is None or node.threads is None or _threads_meant(batch):
        return
    ratio, asked = profile.request.cpus_per_gpu, batch.allocation.cpus_per_gpu
    many = cpus is not None and node.cpus < cpus <= node.threads
    share = ratio is not None and asked == Fraction(ratio * node.threads, node.cpus)
    if share or (many and (ratio is None or asked is None)):
        what = f"{cpus} CPUs a node" if many else f"{asked} CPUs a GPU"
        yield (
            _line(batch, "cpus-per-task", "cpus-per-gpu", "ntasks-per-node", "ntasks", "gres"),
            (
                f"{what}: right only where Slurm counts the {node.threads} threads of a node, not its {node.cpus} "
                f"cores, and sources disagree ({source(profile, node)})"
            ),
            "see CPUTot in `scontrol show node`; --threads-per-core=2 says that threads are meant",
        )


def _cpus_per_gpu(batch: Batch) -> Iterator[Hit]:
    """Sites that give CPUs by the GPU: another ratio is refused, or waits for ever. Source: the profile's request.

    Whole nodes bring their CPUs, so with --exclusive fewer are not judged: published scripts ask so.
    """
    profile, job = batch.profile, batch.allocation
    ratio = profile.request.cpus_per_gpu if profile else None
    if profile is None or ratio is None or not job.gpu_option or (job.gpus_per_node or 0) > profile.node.gpus:
        return
    asked, most, node = job.cpus_per_gpu, job.most_cpus_per_gpu, profile.node
    if asked is None and most is not None and most < ratio:
        asked = most  # on more nodes it is less still
    if asked is None or ("exclusive" in job.options and asked < ratio):
        return
    if asked in (ratio, Fraction(ratio * (node.threads or node.cpus), node.cpus)):
        return
    by_gpu = "cpus-per-gpu" in job.options and "cpus-per-task" not in job.options
    fix = Fraction(ratio) if by_gpu else ratio * (job.cpus_per_task or 1) / asked
    option = "cpus-per-gpu" if by_gpu else "cpus-per-task"
    yield (
        _line(batch, option, "gres", "gpus-per-node", "gpus", "gpus-per-task"),
        (
            f"{_plain(asked)} {'CPU' if asked == 1 else 'CPUs'} beside each GPU: {profile.name} wants {ratio} "
            f"({source(profile, profile.request)})"
        ),
        f"#SBATCH --{option}={fix}" if fix.denominator == 1 else f"ask for {ratio} CPUs with each GPU",
    )


def _plain(number: Fraction) -> str:
    return str(number) if number.denominator == 1 else f"{float(number):.3g}"


def _launcher_not_here(batch: Batch) -> Iterator[Hit]:
    """Where srun alone starts tasks, mpirun starts none, or all on one node. Source: the profile's tasks.mpiexec."""
    profile = batch.profile
    if profile is None or profile.tasks.mpiexec != "no":
        return
    inside = {launch.command for launch in batch.launches}
    for command, words in batch.programs:
        name = words[0].rsplit("/", 1)[-1]
        if name in ("mpirun", "mpiexec", "orterun") and command not in inside:
            yield (
                command.line,
                f"{name} starts no tasks on {profile.name} ({source(profile, profile.tasks)})",
                f"srun, with --ntasks and --cpus-per-task, in place of {name}",
            )


RULES = (
    Rule("missing-account", "error", _missing_account),
    Rule("memory-not-here", "warning", _memory_not_here),
    Rule("too-large-for-a-node", "error", _too_large_for_a_node),
    Rule("cores-or-threads", "warning", _cores_or_threads),
    Rule("cpus-per-gpu", "error", _cpus_per_gpu),
    Rule("launcher-not-here", "error", _launcher_not_here),
)
"""What the site refuses."""
