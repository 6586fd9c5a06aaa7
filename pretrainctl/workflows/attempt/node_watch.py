"""The nodes of an attempt: beats started on all of them, and which are used next."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from pretrainctl import process
from pretrainctl.errors import SlurmError
from pretrainctl.liveness.beat import TOKEN_VARIABLE
from pretrainctl.liveness.listener import DeadNode, Listener, make_room
from pretrainctl.runs.pulse import Pulse
from pretrainctl.slurm import nodes as node_names
from pretrainctl.slurm import steps
from pretrainctl.slurm.environment import step_environment
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.lookouts import Lookouts
from pretrainctl.workflows.attempt.task_ends import TaskEnds

__all__ = ["NodeWatch"]

_FIRST_BEAT_PATIENCE = 30.0
"""Seconds that the first beat of a node may take; a Slurm step on many nodes starts in a few."""
_FIRST_BEAT_PER_NODE = 0.1
"""Seconds more for each node: where a thousand start Python from one file system at once, the last comes late."""
_BEATS_AGAIN_AFTER = 5.0
"""Seconds between two starts of the beats."""
_ALONE_PATIENCE = 10.0
"""Seconds that a beat may take to come back where it alone had ended; a Slurm step on one node starts in one."""
_ALONE = 3
"""Times that the beat of a node is started anew because it alone had ended; a node on which it ends again is dead."""
_GOODBYE = 1.5
"""Seconds that the beats may take to end once the attempt has said goodbye (0.1 to 0.3 s seen)."""
_TAKEN = "Slurm has taken it from the job"


class NodeWatch:
    """Beats on every node of the allocation, and the nodes found dead so far in this attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        local = attempt.launch.address.kind == "localhost"
        self.listener = Listener(attempt.launch.liveness, host=attempt.record.host, bind="127.0.0.1" if local else "")
        self.listener.serve()
        self._lookouts = Lookouts(attempt, self.listener)
        self.dead: dict[str, str] = {}
        self._child: process.Child | None = None
        self._single: list[process.Child] = []
        self._ends = TaskEnds()
        self._alone: dict[str, float] = {}
        self._times_alone: Counter[str] = Counter()
        self._pulse = Pulse(attempt.run.path, attempt.number)
        self._starts = 0
        self._begun = 0.0

    def poll(self, timeout: float) -> None:
        """Hear the beats for at most `timeout` seconds, and start them anew where their Slurm step has ended.

        One node that does not answer at the start makes srun abort the whole step: without a new one, nobody
        would be watched for the rest of the attempt.
        """
        time.sleep(timeout)
        self._pulse.tick()
        self._replace_ended()
        if not self.attempt.signals.terminated:
            self._lookouts.tick(self.healthy())
        if self._child is None or self._child.poll() is None or self.attempt.signals.terminated:
            return
        if time.monotonic() - self._begun < _BEATS_AGAIN_AFTER:
            return
        self.attempt.event("note", f"the step of the beats ended with status {self._child.poll()}; started again")
        self.listener.forget()
        self._alone.clear()
        self.start()

    def start(self) -> None:
        """Start a beating process on each node that is not known to be dead, and return at once.

        None where this process cannot hold the connections of all: those left out would take it for dead.
        """
        self._begun = time.monotonic()
        if no_room := make_room(len(self.attempt.record.nodes)):
            self.attempt.event("note", f"nodes are not watched: {no_room}")
            return
        self._child = self._start([node for node in self.attempt.record.nodes if node not in self.dead])

    def _replace_ended(self) -> None:
        """Start beats anew on nodes where they alone have ended, killed by a person or for want of memory: the ranks
        there train on."""
        ended = [node for node in self._ends.take() if node in self.attempt.record.nodes and node not in self.dead]
        if not ended or self.attempt.signals.terminated:
            return
        if self._child is None or self._child.poll() is not None:
            return  # the whole step has ended, and is started again
        fresh = [node for node in ended if self._times_alone[node] < _ALONE]
        if not fresh:
            return
        self._times_alone.update(fresh)
        self._alone |= dict.fromkeys(fresh, time.monotonic())
        self.attempt.event("note", f"the beat on {', '.join(fresh)} ended, and the node did not; started again")
        self._single = [child for child in self._single if child.poll() is None]
        self._single.append(self._start(fresh))

    def _is_back_soon(self, node: DeadNode) -> bool:
        began = self._alone.get(node.node)
        return node.how == "closed" and began is not None and time.monotonic() - began < _ALONE_PATIENCE

    def _start(self, nodes: Sequence[str]) -> process.Child:
        launch, record = self.attempt.launch, self.attempt.record
        self._starts += 1
        address = (node_names.master_address(record.host, launch.address), str(self.listener.port))
        return process.start(
            steps.beats_argv(
                nodes,
                step_name=f"beats-{record.attempt}-{self._starts}",
                task=[
                    *(launch.python, "-m", "pretrainctl.liveness.beat", *address),
                    *(str(launch.liveness.interval), str(launch.liveness.silent_after)),
                ],
            ),
            env={**step_environment(os.environ), TOKEN_VARIABLE: self.listener.token},
            stderr=self._ends.fileno(),
        )

    def wait_for_first_beats(self) -> None:
        """Wait, in bounds, until every node has beaten once; a node that has not, where others have, is dead.

        Where nobody beats, that is the network or Slurm: nothing is known, and the training is tried.
        """
        if self._child is None:
            return
        nodes = self.attempt.record.nodes
        deadline = time.monotonic() + _FIRST_BEAT_PATIENCE + _FIRST_BEAT_PER_NODE * len(nodes)
        while not set(nodes) <= self.listener.seen() and time.monotonic() < deadline:
            time.sleep(0.1)
            if self.attempt.signals.terminated or self._child.poll() is not None:
                break
        if not self.listener.seen():
            self.attempt.event("note", "no node beats: nodes are not watched")
            return
        for node in nodes:
            if node not in self.listener.seen() and node != self.attempt.record.host:
                self.dead[node] = "no first beat"
                self.attempt.event(
                    "node_dead", f"node {node} is dead: no first beat", {"node": node, "how": "no first beat"}
                )

    def dead_now(self, *, patient: bool = True) -> tuple[DeadNode, ...]:
        """Nodes that are dead now. Never the batch host: it runs this, whatever became of its beats.

        `patient`: a beat that alone has ended may take its time to come back. Where the training has failed, it did not
        end alone: on a node that dies, Slurm's own process may see the beat end, and die then.
        """
        host = self.attempt.record.host
        dead = (node for node in self.listener.dead() if node.node != host)
        return tuple(node for node in dead if not (patient and self._is_back_soon(node)))

    def note_dead(self, *, patient: bool = True) -> tuple[str, ...]:
        """Write an event for each node found dead since the last call; returns their names."""
        fresh = [node for node in self.dead_now(patient=patient) if node.node not in self.dead]
        for node in fresh:
            self.dead[node.node] = node.how
            since = time.monotonic() - node.last_beat
            self.attempt.event(
                "node_dead",
                f"node {node.node} is dead: {node.how}, last beat {since:.1f} s ago",
                {"node": node.node, "how": node.how, "silent_seconds": round(since, 3)},
            )
        return tuple(node.node for node in fresh)

    def note_taken(self) -> Mapping[str, str]:
        """Write an event for each node that Slurm has newly taken from the job, and return how they are lost, by name.

        Its processes may live on, and beat; Slurm starts nothing there any more, and says so in words that it has for a
        wrong recipe too (seen on 22.05: a slurmd that died alone, a controller that missed a node after its own start).
        Where Slurm does not answer, or ends the job, nothing is known.
        """
        record = self.attempt.record
        try:
            job = self.attempt.slurm.jobs([record.job_id]).get(record.job_id)
        except SlurmError:
            return {}
        if job is None or not job.is_running or not job.nodes:
            return {}
        taken = {node: _TAKEN for node in record.nodes if node not in {*job.nodes, *self.dead}}
        for node, how in taken.items():
            self.dead[node] = how
            self.attempt.event("node_dead", f"node {node} is lost: {how}", {"node": node, "how": how})
        return taken

    def healthy(self) -> tuple[str, ...]:
        """Nodes of the allocation that are not known to be dead. The batch host is last: it is left out where there
        is a spare, since its death ends the attempt whatever runs on it."""
        alive = [node for node in self.attempt.record.nodes if node not in self.dead]
        return tuple(sorted(alive, key=lambda node: node == self.attempt.record.host))

    def stop(self) -> None:
        """End the beats; a step with a dead node is left to Slurm. The listener goes on answering the lookouts, which
        are there until the job ends."""
        self._lookouts.leave()
        self.listener.say_goodbye()
        began = time.monotonic()
        for child in (self._child, *self._single):
            # An srun that is told to end says so in the job's log as of a failure.
            if child is not None and (self.dead or child.wait(max(0.0, began + _GOODBYE - time.monotonic())) is None):
                child.stop(grace=0.5)
        self._ends.close()
