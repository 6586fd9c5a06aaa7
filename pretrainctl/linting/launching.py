"""How a script starts its tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pretrainctl.linting.allocation import Allocation
from pretrainctl.linting.batch import Batch, Launch
from pretrainctl.linting.findings import Hit, Rule, source
from pretrainctl.linting.programs import launcher, program, python_script
from pretrainctl.linting.variables import settings

__all__ = ["RULES", "launches_per_node", "option", "reaches_others"]

_REACH = frozenset(
    {"srun", "ssh", "pdsh", "clush", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "prun", "parallel"}
    | {"xargs", "horovodrun", "ray", "dask", "flux", "sbatch"}
)
"""Programs that start others on more nodes, or may."""
_OPAQUE = re.compile(r"(.*/)?(bash|sh|zsh|dash)$|eval$|(?!.*/python[0-9.]*$).*[/$]|.*\.(sh|bash)$")
"""Programs that may start others unseen: shells with a text or a file, and those of the user's own."""
_STARTS_OTHERS = re.compile(r"launch|submit|supervis|orchestr|schedul|driver|slurm|srun|host|node_?list", re.IGNORECASE)
"""In the file name of a Python program that may itself start others."""
_OTHERS_ASKED = re.compile(
    r"(--?)?(hydra[/.])?(launcher|launch[-_]mode|executor|cluster|scheduler|backend|driver)[= ]\W*\w*"
    r"(slurm|srun|submitit|ssh|pdsh|mpi|ray|dask)"
    r"|--?(host[-_]?(file|list)|hosts|worker[-_]hosts|node[-_]?list|submit)(?![\w-])",
    re.IGNORECASE,
)
"""Options with which a Python program is told to start others."""


def _srun_cpus_per_task(batch: Batch) -> Iterator[Hit]:
    """Srun of 22.05 and 23.02 does not take `--cpus-per-task` from the job: each task gets one core.

    Source: Slurm's changelogs of 22.05 and 23.11. With the variable exported it is right on every version:
    those two read SRUN_CPUS_PER_TASK, older and newer ones SLURM_CPUS_PER_TASK.
    """
    if (batch.number("cpus-per-task") or 1) <= 1 or any(settings(batch, "SRUN_CPUS_PER_TASK")):
        return
    for launch in batch.trainings:
        if "cpus-per-task" not in launch.options and not launch.opaque:
            yield (
                launch.command.line,
                (
                    f"srun does not take --cpus-per-task={batch.number('cpus-per-task')} from the job on Slurm 22.05 "
                    "and 23.02: each task gets one core, and data loading starves"
                ),
                'srun --cpus-per-task="$SLURM_CPUS_PER_TASK" ...',
            )


def _cpus_per_task_conflict(batch: Batch) -> Iterator[Hit]:
    """srun: "fatal: cpus-per-task set by two different environment variables". Source: srun's own words."""
    asked = batch.number("cpus-per-task")
    for assignment in settings(batch, "SLURM_TRES_PER_TASK"):
        given = re.search(r"cpu[=:](\d+)", assignment.value)
        if assignment.sure and asked is not None and given and int(given[1]) != asked:
            yield (
                assignment.line,
                f"srun ends at once when SLURM_TRES_PER_TASK says cpu={given[1]} and SLURM_CPUS_PER_TASK {asked}",
                'drop the variable; srun --cpus-per-task="$SLURM_CPUS_PER_TASK" ...',
            )


def launches_per_node(batch: Batch, launch: Launch) -> int | None:
    """Tasks of an srun on each node, None where the script does not say."""
    each, tasks, nodes = (launch.options.get(name) for name in ("ntasks-per-node", "ntasks", "nodes"))
    if tasks is not None and tasks.isdecimal():
        spread = int(nodes) if nodes and nodes.isdecimal() else batch.nodes
        return -(-int(tasks) // spread) if spread else None
    if each is not None:
        return int(each) if each.isdecimal() else None
    if tasks is not None:
        return 1 if re.fullmatch(r"\$\{?SLURM_(NNODES|JOB_NUM_NODES)\}?", tasks) else None
    if "ntasks-per-gpu" in launch.options:
        job = {name: value for name, value in batch.allocation.options.items() if not name.startswith("ntasks")}
        return Allocation(job | launch.options).tasks_per_node
    return batch.tasks_per_node


def option(arguments: tuple[str, ...], *names: str) -> str | None:
    """The value of an option, by any of its names with `_` for `-`, None where it is not given."""
    for index, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name.lstrip("-").replace("-", "_") in names and name.startswith("-"):
            return value if equals else (*arguments, "")[index + 1]
    return None


def _double_launch(batch: Batch) -> Iterator[Hit]:
    """A launcher that starts a rank a GPU, started once a GPU by srun: ranks by the square of the GPUs.

    Source: the launch forms of torchrun (one a node), mpirun (one a job) and deepspeed (one a job, or one a node
    with --no_ssh) in their own documentation.
    """
    for launch in batch.launches:
        each = launches_per_node(batch, launch) or 1
        for words in launch.tasks:
            found = launcher(words)
            if found is None:
                continue
            name, arguments = found
            line = launch.command.line
            whole = name in ("mpirun", "mpiexec") or (name == "deepspeed" and option(arguments, "no_ssh") is None)
            if whole and (each > 1 or batch.multi_node):
                yield (
                    line,
                    f"srun starts {name} in every task, and each of them starts ranks for the whole job",
                    "srun the program itself, one task a GPU, with RANK and its like set in the task",
                )
            elif each > 1 and option(arguments, "nproc_per_node", "num_processes") != "1":
                yield (
                    line,
                    f"srun starts {each} tasks a node, and in each of them {name} starts a rank for every GPU",
                    f"one {name} a node: srun --ntasks-per-node=1; or one task a GPU without {name}",
                )


def _deepspeed_ssh(batch: Batch) -> Iterator[Hit]:
    """Deepspeed's own launcher reaches other nodes by pdsh and ssh: mostly forbidden, and outside the Slurm step.

    Source: DeepSpeed launcher/runner.py and multinode_runner.py.
    """
    inside = {launch.command for launch in batch.launches}
    for command, words in batch.programs:
        found = launcher(words)
        if not batch.multi_node or command in inside or found is None or found[0] != "deepspeed":
            continue
        if (option(found[1], "launcher") or "pdsh") == "pdsh" and option(found[1], "no_ssh") is None:
            yield (
                command.line,
                (
                    "deepspeed starts the other nodes by pdsh and ssh, which most clusters refuse; what it starts is "
                    "outside the Slurm step, so Slurm does not end it. Without a hostfile it trains on one node only"
                ),
                "srun the program itself, one task a GPU, or srun one torchrun a node",
            )


def reaches_others(batch: Batch) -> bool:
    """Whether anything in the script may start programs on other nodes."""
    values = [command.values for command in batch.script.commands]
    values += [tuple(each.value.value.split()) for each in batch.script.assignments if each.value]
    return bool(batch.launches) or any(_REACH & {word.rsplit("/", 1)[-1] for word in words} for words in values)


def _by_other_means(found: tuple[str, tuple[str, ...]] | None) -> bool:
    """Whether accelerate may start other nodes through deepspeed, as its options or a file of them may say."""
    words = found[1] if found and found[0] == "accelerate" else ()
    return any("deepspeed" in word or re.match(r"--config[-_]file", word) for word in words)


def _one_node_launch(batch: Batch) -> Iterator[Hit]:
    """The batch script runs on the first node only. Source: sbatch(1).

    Torchrun and `accelerate launch` start the ranks of their own node. Source: their own documentation.
    """
    if not batch.multi_node or reaches_others(batch):
        return
    for command, words in batch.programs:
        found = launcher(words)
        if found and found[0] in ("torchrun", "accelerate") and not _by_other_means(found):
            name = "torchrun" if found[0] == "torchrun" else "accelerate launch"
            yield (
                command.line,
                (
                    f"the batch script runs on the first of {batch.nodes} nodes only: this {name} waits for the "
                    "others in vain, or trains alone"
                ),
                f"srun --ntasks-per-node=1 {name} ...",
            )


def _starts_others(script: tuple[str, ...]) -> bool:
    """Whether a Python program may start others: by its name, or by an option; `--rank $SLURM_PROCID` says nothing."""
    pairs = zip(script[1:], (*script[2:], ""), strict=False)
    asked = any(_OTHERS_ASKED.match(word if "=" in word else f"{word} {value}") for word, value in pairs)
    return asked or bool(_STARTS_OTHERS.search(script[0].rsplit("/", 1)[-1]))


def _one_node_training(batch: Batch) -> Iterator[Hit]:
    """Nothing of the script leaves the first node. Source: sbatch(1).

    Nothing is said where it runs what may start the others: a launcher, another script, a program not seen here.
    """
    if not batch.multi_node or reaches_others(batch):
        return
    last = None
    for command, words in batch.programs:
        found, script, started = launcher(words), python_script(words), program(words)
        if _by_other_means(found) and not any("deepspeed" in word for word in words):
            last = command
        elif found or (started and not script and _OPAQUE.match(started[0])):
            return
        elif script:
            if _starts_others(script):
                return
            last = command
    if last is not None:
        yield (
            last.line,
            (
                f"the batch script runs on the first of {batch.nodes} nodes only, and nothing in it starts anything on "
                "the others: they idle, or are waited for"
            ),
            "srun python ..., or one node",
        )


def _survivors_wait(batch: Batch) -> Iterator[Hit]:
    """Slurm's KillOnBadExit is 0 by default: when a task dies the others wait, or one trains on alone.

    Source: slurm.conf(5), and the profile's tasks.kill_on_bad_exit; survivors that trained alone were seen.
    """
    known = batch.profile.tasks.kill_on_bad_exit if batch.profile else "unknown"
    if known == "yes" or any(settings(batch, "SLURM_KILL_BAD_EXIT")):
        return
    default = "0 unless the site changed it"
    if batch.profile and known == "no":
        default = f"0 on {batch.profile.name} ({source(batch.profile, batch.profile.tasks)})"
    for launch in batch.trainings:
        many = (batch.multi_node and not launch.one_node) or (launches_per_node(batch, launch) or 1) > 1
        if many and not launch.opaque and "kill-on-bad-exit" not in launch.options:
            yield (
                launch.command.line,
                (
                    "when a task dies the others wait for it until the time limit, or one trains on alone: "
                    f"KillOnBadExit is {default}"
                ),
                "srun --kill-on-bad-exit=1 --wait=60 ...",
            )


RULES = (
    Rule("srun-cpus-per-task", "warning", _srun_cpus_per_task),
    Rule("cpus-per-task-conflict", "error", _cpus_per_task_conflict),
    Rule("double-launch", "error", _double_launch),
    Rule("deepspeed-ssh", "warning", _deepspeed_ssh),
    Rule("one-node-launch", "error", _one_node_launch),
    Rule("one-node-training", "warning", _one_node_training),
    Rule("survivors-wait", "warning", _survivors_wait),
)
"""How tasks are started."""
