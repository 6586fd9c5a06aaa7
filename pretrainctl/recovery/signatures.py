"""What log lines say about why a program ended. One table: a new failure is one entry and a case beside it.

A root names a cause. An echo is what peers and tools print *because* something else went wrong (a collective
that times out, a connection that closes): it is never the cause. An error is any exception line: it may have
been caught and printed, so it only explains a failure that something else proves. In one log the earliest root
wins, then the earliest error, then the earliest echo.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["SIGNATURES", "Finding", "Signature", "find_cause"]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK = re.compile(r"\[[Rr]ank ?(\d+)\]")


@dataclass(frozen=True)
class Signature:
    """A pattern searched in a line, the class it means, and the line for people. `start_only`: it counts only
    before the first step (later the same words mean something else)."""

    pattern: re.Pattern[str]
    failure_class: str
    meaning: str
    weight: Literal["root", "error", "echo"] = "root"
    start_only: bool = False


@dataclass(frozen=True)
class Finding:
    """The line that tells the cause: `nodes` and `ranks` only where the line itself names the culprit."""

    signature: Signature
    line: str
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()


def _root(pattern: str, failure_class: str, meaning: str, *, start_only: bool = False) -> Signature:
    return Signature(re.compile(pattern), failure_class, meaning, start_only=start_only)


def _echo(pattern: str) -> Signature:
    return Signature(re.compile(pattern), "unknown", "a consequence of another failure", "echo")


SIGNATURES: tuple[Signature, ...] = (
    # Slurm
    _root(r"DUE TO TIME LIMIT", "time_limit", "the time limit was reached"),
    _root(r"DUE TO PREEMPTION", "preempted", "a job of higher priority took the nodes"),
    _root(r"srun: error: Node failure on (?P<node>[\w.-]+)", "node_failure", "Slurm says that a node failed"),
    _root(r"DUE TO NODE FAILURE", "node_failure", "Slurm says that a node failed"),
    _root(r"oom[-_]kill event", "host_oom", "the host's memory ran out"),
    _root(r"error: (?P<node>[\w.-]+): tasks? [\d,-]+: Out Of Memory", "host_oom", "the host's memory ran out"),
    # the training's own numbers and settings
    _root(r"loss scale already at minimum", "divergence", "the loss scale is exhausted"),
    _root(r"Check batch related parameters", "config", "the batch sizes do not divide"),
    _root(r"used a DP world size of \d+ but the current", "config", "the checkpoint has another world size"),
    _root(r"unrecognized arguments:|ModuleNotFoundError:", "config", "the program cannot start", start_only=True),
    # checkpoints
    _root(r"zero checkpoints paths are missing", "checkpoint_incomplete", "shards of the checkpoint are missing"),
    _root(r"load path: \S+ does not exist", "checkpoint_incomplete", "files of the checkpoint are missing"),
    _root(
        r"PytorchStreamReader failed|failed finding central directory",
        "checkpoint_incomplete",
        "a shard of the checkpoint is torn",
    ),
    # machine
    _root(r"CUDA out of memory|torch\.OutOfMemoryError", "application_error", "the GPU's memory ran out"),
    _root(r"No space left on device: '?/dev/shm", "application_error", "shared memory is used up"),
    _root(r"\[Errno 28\]|No space left on device", "file_system", "a file system is full"),
    _root(r"\[Errno 122\]|Disk quota exceeded", "file_system", "a disk quota is used up"),
    _root(r"EADDRINUSE|[Aa]ddress already in use", "application_error", "the port was in use"),
    # what others print when a peer is gone
    _echo(r"Watchdog caught collective operation timeout"),
    _echo(r"NCCL error: remote process exited|ncclRemoteError"),
    _echo(r"Connection (?:reset|closed|refused)|Broken pipe|gloo/transport/tcp"),
    _echo(r"failed to send a keep-alive heartbeat"),
    _echo(r"Job step aborted|Force Terminated|DUE TO TASK FAILURE|DUE TO JOB REQUEUE"),
    _echo(r"srun: error: \S+: tasks? [\d,-]+: (?:Terminated|Killed|Exited|Aborted|Segmentation)"),
    # the last resort, after all echoes
    Signature(
        re.compile(r"(?:^|[\s\]:])(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): \S"),
        "application_error",
        "the program raised an error",
        "error",
    ),
)


def find_cause(lines: Iterable[str], *, stepped: bool) -> Finding | None:
    """The earliest root in a log, else the earliest error, else the earliest echo, else None.

    `stepped`: this start of the program did at least one optimizer step.
    """
    lighter: dict[str, Finding] = {}
    for raw in lines:
        line = _ANSI.sub("", raw).strip()
        finding = _read_line(line, stepped=stepped)
        if finding is None:
            continue
        if finding.signature.weight == "root":
            return finding
        lighter.setdefault(finding.signature.weight, finding)
    return lighter.get("error") or lighter.get("echo")


def _read_line(line: str, *, stepped: bool) -> Finding | None:
    for signature in SIGNATURES:
        match = None if signature.start_only and stepped else signature.pattern.search(line)
        if match is None:
            continue
        node = match.groupdict().get("node")
        rank = _RANK.search(line) if signature.weight != "echo" else None
        return Finding(signature, line, (node,) if node else (), (int(rank[1]),) if rank else ())
    return None
