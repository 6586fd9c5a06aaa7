"""One restart: one srun of the training program, watched until it has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pretrainctl import process
from pretrainctl.errors import SlurmError
from pretrainctl.liveness.listener import DeadNode
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import End, Failure, Request
from pretrainctl.records.progress import Hang
from pretrainctl.runs.fence import raise_fence
from pretrainctl.slurm import nodes as node_names
from pretrainctl.slurm.environment import step_environment
from pretrainctl.workflows.attempt.asking import Asking
from pretrainctl.workflows.attempt.chain import Chain
from pretrainctl.workflows.attempt.checkpoint_watch import CheckpointWatch
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.left_watch import LeftWatch
from pretrainctl.workflows.attempt.node_watch import NodeWatch
from pretrainctl.workflows.attempt.progress_watch import ProgressWatch
from pretrainctl.workflows.attempt.resume_watch import ResumeWatch
from pretrainctl.workflows.training_step import step_name, training_step

__all__ = ["Restart", "RestartEnd"]

_TICK = 0.2
"""Seconds between two looks at the srun, the nodes and the signals."""
_STEP_KNOWN_AFTER = 2.0
"""Seconds after which Slurm lists a step that srun has begun (0.05 to 0.13 s seen); it is asked early, since in
trouble the controller may not answer."""
_END_PATIENCE = 10.0
"""Seconds that srun may take to end after the end record, before the Slurm step is killed."""
_KILL_PATIENCE = 5.0
"""Seconds that srun may take to end after its Slurm step was killed."""
_DEAD_NODE_PATIENCE = 0.3
"""The same where a node is dead: srun would wait until the controller gives that node up. The ranks on the other
nodes are killed within it (0.2 s seen), long before a new rank reaches a port or a GPU."""


@dataclass(frozen=True)
class RestartEnd:
    """How a restart ended, as seen from the batch host: `lost` nodes of it, by name, and how that was noticed.
    `srun_status` is a hint only, None where srun was left."""

    end: End | None
    lost: Mapping[str, str]
    srun_status: int | None
    asked: Request | None
    terminated: bool
    hang: Hang | None = None


class Restart:
    """One srun of the training program on `nodes`, rank 0 on the first."""

    def __init__(
        self,
        attempt: Attempt,
        watch: NodeWatch,
        chain: Chain,
        number: int,
        nodes: Sequence[str],
        resume_tag: str | None,
    ) -> None:
        self.attempt = attempt
        self.watch = watch
        self.chain = chain
        self.number = number
        # Slurm puts rank 0 on the node that comes first in the job's own order.
        self.nodes = tuple(node for node in attempt.record.nodes if node in set(nodes))
        self.resume_tag = resume_tag
        self.folder: Path = contract.restart_dir(attempt.run.path, attempt.number, number)
        self._asking = Asking(attempt, self._find_step)
        self.resumed = ResumeWatch(attempt, self.folder, resume_tag)
        self._step: str | None = None
        self._failed_at: float | None = None
        self._hang: Hang | None = None

    def prepare(self) -> None:
        """Make the folder, and the fence against earlier restarts; after an OSError it can be called again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        raise_fence(self.attempt.run.path, self.attempt.number, self.number)

    def run(self) -> RestartEnd:
        """Start, watch, and return how it ended; on return no task of it runs on a node that answers."""
        with (self.folder / "training.log").open("ab") as log:
            child = process.start(
                training_step(
                    self.attempt.launch,
                    self.attempt.run.path,
                    self.nodes,
                    attempt=self.attempt.number,
                    restart=self.number,
                ),
                env=self._environment(),
                stdout=log.fileno(),
                stderr=log.fileno(),
            )
        self.attempt.event(
            "restart_started",
            f"restart {self.number} on {node_names.fold(self.nodes)}, "
            + (f"from {self.resume_tag}" if self.resume_tag else "from the beginning"),
            {"restart": self.number, "nodes": list(self.nodes), "resume_tag": self.resume_tag},
        )
        progress = ProgressWatch(self.attempt, self.watch.listener, self.folder, self.number, self.nodes)
        dead = self._watch(child, progress)
        status = self._end(child, dead)
        if self._hang is not None:
            progress.record(self._hang)
        end = self._read_end()
        lost = {node.node: node.how for node in dead}
        if end is None:
            lost |= {node: how for node, how in self.watch.note_taken().items() if node in self.nodes}
        return RestartEnd(
            end=end,
            lost=lost,
            srun_status=status,
            asked=self._asking.asked,
            terminated=self.attempt.signals.terminated,
            hang=self._hang,
        )

    def _watch(self, child: process.Child, progress: ProgressWatch) -> tuple[DeadNode, ...]:
        """Until there is something that ends a restart: the end record, a dead node, a failure, the end of srun, or
        no progress."""
        begun: float | None = time.monotonic()
        checkpoints = CheckpointWatch(self.attempt)
        left = LeftWatch(self.folder, self.attempt.launch.target_steps)
        while True:
            self.watch.poll(_TICK)
            self.chain.tick()
            checkpoints.tick()
            self._asking.tick()
            self.resumed.tick()
            if begun is not None and time.monotonic() - begun > _STEP_KNOWN_AFTER:
                self._find_step()
                begun = None
            if self._read_end() is not None or self.resumed.from_scratch is not None:
                return ()
            dead = self._dead()
            if dead:
                return dead
            failure = self._read_failure()
            if child.poll() is None and failure is None:
                self._hang = progress.tick()
                if self._hang is None and left.tick(progress.pace, asked=self._asking.asked is not None):
                    return self._dead()
                if self._hang is None:
                    continue
                return self._dead()
            self._failed_at = self._failed_at or time.monotonic()
            if self._is_settled(failure, self._failed_at):
                return self._dead()

    def _is_settled(self, failure: Failure | None, failed_at: float) -> bool:
        """Whether it can be told by now which nodes were dead when the training failed.

        A peer's death shows first as a failed connection on the ranks that are well: before a failure is laid on a
        rank, each node must have beaten since, or been silent for long enough to be dead if it were the only one. A
        rank that died of a signal is its own cause.
        """
        listener = self.watch.listener
        if (failure is not None and failure.status > 128) or listener.settled_since(failed_at, self.nodes):
            return True
        waited = time.monotonic() - failed_at > self.attempt.launch.liveness.silent_after
        return waited and not listener.undecided()

    def _dead(self) -> tuple[DeadNode, ...]:
        """Nodes of this restart that are dead; a spare that died is noted, and no matter."""
        patient = self._failed_at is None
        self.watch.note_dead(patient=patient)
        return tuple(node for node in self.watch.dead_now(patient=patient) if node.node in self.nodes)

    def _end(self, child: process.Child, dead: Sequence[DeadNode]) -> int | None:
        """End what still runs of the Slurm step, and wait for srun as long as that can help."""
        if self._read_end() is not None and child.wait(_END_PATIENCE) is not None:
            return child.poll()
        if child.poll() is None:
            step = self._find_step()
            if step is not None:
                # Aside: for a step with a dead node, scancel blocks until the controller gives that node up.
                # What it says about the dead node is no news.
                with Path(os.devnull).open("wb") as nowhere:
                    process.start(["scancel", "--signal=KILL", step], env=dict(os.environ), stderr=nowhere)
            else:
                child.signal(signal.SIGTERM)
            child.wait(_DEAD_NODE_PATIENCE if dead else _KILL_PATIENCE)
        status = child.poll()
        if status is None:
            child.signal(signal.SIGKILL)
        return status

    def _find_step(self) -> str | None:
        """The Slurm step's id, asked for once it must be there; None where Slurm does not answer."""
        if self._step is None:
            with contextlib.suppress(SlurmError):
                self._step = self.attempt.slurm.step_ids(self.attempt.record.job_id).get(self._step_name)
        return self._step

    @property
    def _step_name(self) -> str:
        return step_name(self.attempt.number, self.number)

    def _environment(self) -> dict[str, str]:
        launch = self.attempt.launch
        return {
            **step_environment(os.environ),
            **launch.environment,
            contract.RUN_DIR_VARIABLE: str(self.attempt.run.path),
            contract.ATTEMPT_VARIABLE: str(self.attempt.number),
            contract.RESTART_VARIABLE: str(self.number),
            contract.RESUME_TAG_VARIABLE: self.resume_tag or "",
            "MASTER_ADDR": node_names.master_address(self.nodes[0], launch.address, nodes=len(self.nodes)),
            "MASTER_PORT": str(self._master_port()),
        }

    def _master_port(self) -> int:
        """The port that is derived from the job. Where all nodes are this machine, another cluster on it has jobs of
        the same number, and seconds lie between this choice and rank 0's: there the run's id stands for the job's."""
        launch = self.attempt.launch
        if launch.address.kind != "localhost":
            return node_names.master_port(launch.address, self.attempt.record.job_id, self.number)
        port = node_names.master_port(
            launch.address, zlib.crc32(launch.run_id.encode()) + self.attempt.number, self.number
        )
        return next((candidate for candidate in range(port, min(port + 1000, 65536)) if _is_free(candidate)), port)

    def _read_end(self) -> End | None:
        return codec.read_if_whole(End, self.folder / "end.json")

    def _read_failure(self) -> Failure | None:
        return codec.read_if_whole(Failure, self.folder / "failure.json")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
