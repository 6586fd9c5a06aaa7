"""How ranks find each other, and when they give up."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Hit, Rule
from pretrainctl.linting.programs import launcher
from pretrainctl.linting.script import Word
from pretrainctl.linting.variables import Setting, settings
from pretrainctl.units import show_duration

__all__ = ["RULES"]

_LOCAL = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|::1)(:|$)")


def _numbers(batch: Batch, *names: str) -> Iterator[tuple[int, str, int]]:
    """Line, name and value of settings of a whole number, defaults too."""
    for each in settings(batch, *names):
        if re.fullmatch(r"-?\d{1,18}", each.value):
            yield each.line, each.name, int(each.value)


def _sure(batch: Batch, *names: str) -> Iterator[Setting]:
    """Settings that the tasks surely see, and on more than one node."""
    one = {launch.command for launch in batch.launches if launch.one_node}
    for each in settings(batch, *names):
        if each.sure and each.command not in one:
            yield each


def _one_machine(batch: Batch) -> bool:
    """Whether no training of the job has more than one node, or all nodes are one machine."""
    one = bool(batch.trainings) and all(launch.one_node for launch in batch.trainings)
    local = batch.profile is not None and batch.profile.rendezvous.address == "localhost"
    return one or local or not batch.multi_node


def _arguments(batch: Batch, *names: str) -> Iterator[tuple[int, str]]:
    """Line and value of options of launchers."""
    for command, words in batch.programs:
        found = launcher(words)
        for index, word in enumerate(found[1] if found else ()):
            name, equals, value = word.partition("=")
            if name.startswith("-") and name.lstrip("-").replace("-", "_") in names and found:
                yield command.line, value if equals else (*found[1], "")[index + 1]


def _master_is_local(batch: Batch) -> Iterator[Hit]:
    """On every node localhost is that node. Source: the meaning of MASTER_ADDR in torch.distributed."""
    if _one_machine(batch):
        return
    values = [(each.line, each.value) for each in _sure(batch, "MASTER_ADDR")]
    for line, value in (*values, *_arguments(batch, "master_addr", "rdzv_endpoint")):
        if _LOCAL.match(value):
            yield (
                line,
                f"{batch.nodes} nodes, and {value} is another machine on each of them: they never meet",
                'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            )


def _master_is_a_list(batch: Batch) -> Iterator[Hit]:
    """SLURM_JOB_NODELIST is folded (`gn[001-004]`), no name of a host. Source: sbatch(1)."""
    for each in _sure(batch, "MASTER_ADDR"):
        if re.fullmatch(r"\$\{?SLURM_(JOB_)?NODELIST\}?", each.value) and batch.nodes != 1:
            yield (
                each.line,
                "the node list of several nodes is folded, such as gn[001-004]: that is no host",
                'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            )


def _master_per_task(batch: Batch) -> Iterator[Hit]:
    """`hostname` in a task is that task's node. Source: the meaning of MASTER_ADDR in torch.distributed."""
    if _one_machine(batch):
        return
    for launch in batch.launches:
        if launch.body and re.search(
            r"(MASTER_ADDR=|--master[_-]addr[= ])[\"']?(\$\(hostname|`hostname)", launch.body.text
        ):
            written = launch.body.text.startswith('"') and r"\$(" not in launch.body.text
            if not written:  # in double quotes the batch shell puts its own name in, which is right
                yield (
                    launch.command.line,
                    "hostname runs in each task: every node waits at its own address",
                    "set MASTER_ADDR in the batch script, from the first host of $SLURM_JOB_NODELIST, and export it",
                )


_MOST_GPUS = 8
"""GPUs of the largest nodes in common use: where the site is unknown, who asks for as many has no neighbour."""


_EACH = r"S?RANDOM|BASHPID|PPID|HOSTNAME|EPOCHSECONDS|EPOCHREALTIME|SLURM_(?:PROCID|NODEID|LOCALID)|SLURMD_NODENAME|\$"
"""Variables that differ from task to task."""
_DRAWN = r"\((?:date|uuidgen|hostname|shuf|openssl|mktemp|od|head|tr)\b|\(\([^)]*\b(?:RANDOM|SRANDOM)\b"
"""Substitutions that do."""


def _rendezvous_per_task(batch: Batch) -> Iterator[Hit]:
    """Nodes meet under one id and one port: those that a task draws for itself are another on each node.

    Source: torch/distributed/run.py, --rdzv-id and --rdzv-endpoint; bash(1), RANDOM.
    """
    for launch in batch.launches:
        body = launch.body
        if body is None or launch.one_node or not batch.multi_node or "--standalone" in body.value:
            continue
        in_task = r"\\" if _put_in_here(body) else ""
        drawn = rf"{in_task}\$(?:(?:{_EACH})(?!\w)|\{{(?:{_EACH})\b|{_DRAWN})"
        text = re.sub(r"(?m)(^|\s)#.*", "", body.text)
        named = re.findall(rf"(?<![\w-])(\w+)=[\"'\\]*[\w.:-]*{drawn}", text)
        held = "".join(rf"|{in_task}\$\{{?{re.escape(name)}\b" for name in named)
        option = r"--(rdzv[-_](?:id|endpoint)|master[-_]port)(?:=|\s+)|(?<![\w-])(MASTER_PORT|PET_RDZV_ID)="
        found = re.search(rf"(?:{option})[\"'\\]*(?:[^\s\"']*?)(?:{drawn}{held})", text)
        if found:
            yield (
                launch.command.line,
                f"{found[1] or found[2]} is drawn in each task: the nodes wait for each other under different ones",
                "one that all share, such as $SLURM_JOB_ID",
            )


def _put_in_here(body: Word) -> bool:
    """Whether the batch shell puts variables into a body: double quotes, or a here-document with a plain end word."""
    return not body.text.startswith("'") and (body.text.startswith(('"', "$")) or bool(body.expands))


def _fixed_port(batch: Batch) -> Iterator[Hit]:
    """Two jobs whose first node is the same collide, where nodes are shared. Source: seen with fixed rendezvous ids."""
    profile = batch.profile
    gpus = profile.node.gpus if profile else _MOST_GPUS
    if "exclusive" in batch.options or (profile and profile.request.exclusive) or (batch.gpus or 0) >= gpus > 0:
        return
    ports = [(line, value) for line, _, value in _numbers(batch, "MASTER_PORT")]
    told = {value for _, value in ports}
    for line, given in _arguments(batch, "rdzv_endpoint", "master_port", "main_process_port"):
        port = re.fullmatch(r"(?:.*:)?(\d{1,5})", given)
        ports += [(line, int(port[1]))] if port and int(port[1]) not in told | {0} else []
    for line, value in ports:
        yield (
            line,
            f"port {value} for every job: two that share their first node collide",
            "MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)), or #SBATCH --exclusive",
        )


def _ib_timeout_never(batch: Batch) -> Iterator[Hit]:
    """0 and everything from 32 on mean no time-out at all. Source: NCCL user guide, NCCL_IB_TIMEOUT.

    Otherwise it is an exponent: 4.096 us * 2 ** value, NCCL_IB_RETRY_CNT times.
    """
    for line, name, value in _numbers(batch, "NCCL_IB_TIMEOUT"):
        if value == 0 or value >= 32:
            yield (
                line,
                (
                    f"{name}={value} means never: NCCL takes an exponent, and 0 or 32 and above as none at all: a "
                    "dead link hangs for ever"
                ),
                f"{name}=22 (17 s a try, 2 minutes in all)",
            )


def _ib_retry_range(batch: Batch) -> Iterator[Hit]:
    """Valid from 0 to 7, default 7. Source: NCCL user guide, NCCL_IB_RETRY_CNT."""
    for line, name, value in _numbers(batch, "NCCL_IB_RETRY_CNT"):
        if not 0 <= value <= 7:
            yield line, f"{name}={value}: NCCL knows 0 to 7, and 7 is the default", "drop it"


_OFF = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "a collective that failed or timed out ends no process: the ranks hang",
    "NCCL_ASYNC_ERROR_HANDLING": "a collective that failed or timed out ends no process: the ranks hang",
    "TORCH_NCCL_ENABLE_MONITORING": "nothing ends a process whose NCCL watchdog is stuck",
}


def _nccl_protection_off(batch: Batch) -> Iterator[Hit]:
    """Values that switch a protection off which is on by default.

    Source: PyTorch's page on ProcessGroupNCCL's variables. The old name without TORCH_ is still read
    (ProcessGroupNCCL.hpp of torch 2.13).
    """
    for line, name, value in _numbers(batch, *_OFF):
        if value == 0:
            yield line, f"{name}=0 switches a protection off: {_OFF[name]}", "drop it; the default is on"


def _longer_than_the_job(batch: Batch) -> Iterator[Hit]:
    """A time-out beyond the time limit never comes.

    Source: PyTorch's page on ProcessGroupNCCL's variables (seconds); deepspeed/constants.py (minutes).
    """
    for line, name, value in _numbers(batch, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "DEEPSPEED_TIMEOUT"):
        seconds = value * (60 if name == "DEEPSPEED_TIMEOUT" else 1)
        if batch.seconds is not None and seconds >= batch.seconds:
            unit = "minutes" if name == "DEEPSPEED_TIMEOUT" else "seconds"
            yield (
                line,
                (
                    f"{name}={value} is in {unit}, {show_duration(seconds)}: longer than the job's "
                    f"{show_duration(batch.seconds)}, so it never comes"
                ),
                "a time-out well below the time limit",
            )


def _loopback_interface(batch: Batch) -> Iterator[Hit]:
    """Only the loopback interface: other nodes cannot be reached. Source: NCCL user guide, NCCL_SOCKET_IFNAME."""
    if _one_machine(batch):
        return
    for each in _sure(batch, "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        if re.fullmatch(r"=?lo", each.value):
            yield (
                each.line,
                f"{each.name}={each.value} is the loopback interface: {batch.nodes} nodes cannot meet on it",
                "name the interface of the fast network, such as ib0",
            )


def _log_level_case(batch: Batch) -> Iterator[Hit]:
    """Torchrun ends with "Unknown level: 'info'". Source: seen."""
    starts = [launcher(words) for launch in batch.launches for words in launch.tasks]
    starts += [launcher(command.values) for command in batch.script.commands]
    if not any(found and found[0] == "torchrun" for found in starts):
        return
    for each in settings(batch, "LOGLEVEL"):
        if each.sure and re.fullmatch(r"[a-z]+", each.value):
            value = each.value
            yield each.line, f"torchrun ends at once: it does not know the level {value!r}", f"LOGLEVEL={value.upper()}"


RULES = (
    Rule("master-is-local", "error", _master_is_local),
    Rule("master-is-a-list", "error", _master_is_a_list),
    Rule("master-per-task", "error", _master_per_task),
    Rule("rendezvous-per-task", "error", _rendezvous_per_task),
    Rule("fixed-port", "warning", _fixed_port),
    Rule("ib-timeout-never", "warning", _ib_timeout_never),
    Rule("ib-retry-range", "warning", _ib_retry_range),
    Rule("nccl-protection-off", "warning", _nccl_protection_off),
    Rule("longer-than-the-job", "warning", _longer_than_the_job),
    Rule("loopback-interface", "error", _loopback_interface),
    Rule("log-level-case", "error", _log_level_case),
)
"""How ranks meet, and when they give up."""
