"""Lookouts on a few nodes besides the batch host: they call a witness where the attempt is lost."""

from __future__ import annotations

import contextlib
import os
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
_STARTS = 4
"""Starts of an attempt: where a site lets no srun run on other nodes, it would be one each few seconds."""


class Lookouts:
    """The Slurm step of the lookouts of an attempt. Nobody but Slurm ends it, with the job."""

    def __init__(self, attempt: Attempt, listener: Listener) -> None:
        self.attempt = attempt
        self._listener = listener
        self._child: process.Child | None = None
        self._nodes: tuple[str, ...] = ()
        self._starts = 0
        self._begun = 0.0

    def tick(self, healthy: Sequence[str]) -> None:
        """See that somebody looks out, where a job has more `healthy` nodes than its batch host."""
        ended = self._child is None or self._child.poll() is not None
        if not ended and not set(self._nodes).isdisjoint(healthy):
            return
        others = tuple(node for node in healthy if node != self.attempt.record.host)[:_LOOKOUTS]
        if not others or (self._starts and time.monotonic() - self._begun < _AGAIN_AFTER):
            return
        if self._starts == _STARTS:
            self._starts += 1
            status = "a dead node" if self._child is None else f"status {self._child.poll()}"
            self.attempt.event(
                "note", f"nobody looks out for the batch host: the step ended {_STARTS} times ({status})"
            )
        if self._starts < _STARTS:
            self._start(others)

    def _start(self, nodes: tuple[str, ...]) -> None:
        launch, record, path = self.attempt.launch, self.attempt.record, self.attempt.run.path
        self._starts += 1
        self._nodes, self._begun = nodes, time.monotonic()
        address = (node_names.master_address(record.host, launch.address), str(self._listener.port))
        argv = steps.lookout_argv(
            nodes,
            step_name=f"lookout-{record.attempt}-{self._starts}",
            task=[
                *(launch.python, "-m", "pretrainctl.liveness.lookout", *address),
                *(str(launch.liveness.interval), str(launch.liveness.silent_after)),
                *(launch.python, "-m", "pretrainctl", "witness", str(path), str(record.attempt), *address),
            ],
        )
        with contextlib.ExitStack() as opened:
            log: BinaryIO | None = None
            with contextlib.suppress(OSError):  # what they say is of use, and not needed
                log = opened.enter_context((contract.attempt_dir(path, record.attempt) / "witness.log").open("ab"))
            output = log.fileno() if log is not None else None
            environment = {**step_environment(os.environ), TOKEN_VARIABLE: self._listener.token}
            self._child = process.start(argv, env=environment, stdout=output, stderr=output)
