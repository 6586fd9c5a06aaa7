"""Lookouts on a few nodes besides the batch host: they call a witness where the attempt is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from typing import BinaryIO

from pretrainctl import process
from pretrainctl.liveness.beat import TOKEN_VARIABLE
from pretrainctl.liveness.listener import Listener
from pretrainctl.records import contract
from pretrainctl.slurm import nodes as node_names
from pretrainctl.slurm import steps
from pretrainctl.slurm.environment import step_environment
from pretrainctl.workflows.attempt.context import Attempt

__all__ = ["Lookouts"]

_LOOKOUTS = 3
"""Nodes that look out: each later one only acts where the ones before it did not."""
_AGAIN_AFTER = 10.0
"""Seconds between two starts."""
_KILLED_WITHIN = 1.0
"""Seconds that an srun may take to be gone after SIGKILL."""
_FAILURES = 3
"""Steps that may end on nodes that live: where a site lets no srun run on other nodes, each one does at once."""


class Lookouts:
    """The Slurm steps of the lookouts of an attempt. Nobody but Slurm ends them, with the job."""

    def __init__(self, attempt: Attempt, listener: Listener) -> None:
        self.attempt = attempt
        self._listener = listener
        self._steps: list[tuple[process.Child, tuple[str, ...]]] = []
        self._starts = 0
        self._failed = 0
        self._begun = 0.0

    def tick(self, healthy: Sequence[str]) -> None:
        """See that as many look out as can, where a job has more `healthy` nodes than its batch host."""
        if self._failed > _FAILURES or (self._starts and time.monotonic() - self._begun < _AGAIN_AFTER):
            return
        ended = [child for child, nodes in self._steps if child.poll() is not None and set(nodes) <= set(healthy)]
        self._failed += len(ended)
        if self._failed > _FAILURES:
            many = f"the step of the lookouts ended {self._failed} times (status {ended[-1].poll()})"
            self.attempt.event("note", f"nobody looks out for the batch host: {many}")
            return
        self._steps = [step for step in self._steps if step[0].poll() is None]
        looking = {node for _, nodes in self._steps for node in nodes if node in healthy}
        others = [node for node in self.attempt.record.nodes if node in healthy and node != self.attempt.record.host]
        free = [node for node in others if node not in looking]
        missing = min(_LOOKOUTS - len(looking), len(free))
        if missing > 0:
            self._start(_spread(free, missing), first_turn=len(looking))

    def leave(self) -> None:
        """Leave the steps to themselves: without an srun of ours they go on, and end with the job.

        One that outlived the attempt was seen to hang for minutes beside a dead node, and to take no message of Slurm's
        own processes on the others meanwhile (22.05); the chained job did not begin.
        """
        for child, _ in self._steps:
            child.signal(signal.SIGKILL)
            child.wait(_KILLED_WITHIN)

    def _start(self, nodes: tuple[str, ...], first_turn: int) -> None:
        launch, record, path = self.attempt.launch, self.attempt.record, self.attempt.run.path
        self._starts += 1
        self._begun = time.monotonic()
        address = (node_names.master_address(record.host, launch.address), str(self._listener.port))
        argv = steps.lookout_argv(
            nodes,
            step_name=f"lookout-{record.attempt}-{self._starts}",
            task=[
                *(launch.python, "-m", "pretrainctl.liveness.lookout", *address),
                *(str(launch.liveness.interval), str(launch.liveness.silent_after)),
                *(launch.python, "-m", "pretrainctl", "witness"),
                *(str(path), str(record.attempt), *address, str(first_turn)),
            ],
        )
        with contextlib.ExitStack() as opened:
            log: BinaryIO | None = None
            with contextlib.suppress(OSError):  # what their sruns say is of use, and not needed
                log = opened.enter_context((contract.attempt_dir(path, record.attempt) / "lookouts.log").open("ab"))
            output = log.fileno() if log is not None else None
            environment = {**step_environment(os.environ), TOKEN_VARIABLE: self._listener.token}
            self._steps.append((process.start(argv, env=environment, stdout=output, stderr=output), nodes))


def _spread(nodes: Sequence[str], many: int) -> tuple[str, ...]:
    """So many of the nodes, far from each other in the list: neighbours share a rack, its power and its switch."""
    return tuple(nodes[(index * len(nodes) + len(nodes) // 2) // many] for index in range(many))
