"""What an attempt finds of nodes goes onto the cluster's node exclusion list, beside its work."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Mapping, Sequence

from pretrainctl.errors import LedgerError, PretrainctlError
from pretrainctl.health.exclusion import scrub
from pretrainctl.records.nodes import ExclusionEntry
from pretrainctl.records.run import Diagnosis
from pretrainctl.recovery.decision import RestartSummary, left_out
from pretrainctl.recovery.policies import FailureClass
from pretrainctl.runs import ledger
from pretrainctl.runs.state import fold
from pretrainctl.units import show_duration
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.exclusions import add_found, found_now, list_of

__all__ = ["NODE_TEST", "NodeListing"]

NODE_TEST = "node_test"
"""The cause of an entry that the test at the start of an attempt made."""
_PATIENCE = 3.0
"""Seconds that the end of an attempt waits for entries that are being written."""


class NodeListing:
    """Lists each node at most once an attempt. Entries are written in a thread: the list may lie in a file system that
    does not answer, and no restart waits for it."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self._list = list_of(attempt.run)
        self._named: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._said: queue.SimpleQueue[ExclusionEntry | str] = queue.SimpleQueue()

    def add(self, node: str, cause: str, reason: str, evidence: Sequence[str] = (), confidence: str = "high") -> None:
        """List a node, unless this attempt has done so. The event follows with the next `tell`."""
        self._add(node, self.attempt.record.nodes, cause, reason, evidence, confidence)

    def _add(
        self, node: str, nodes: Sequence[str], cause: str, reason: str, evidence: Sequence[str], confidence: str
    ) -> None:
        """The same for an attempt on `nodes`: what is none of them is no node that it could have found out about."""
        record = self.attempt.record
        if node not in nodes or node in self._named or self.attempt.signals.terminated:
            return
        self._named.add(node)
        entry = found_now(
            self._list,
            node,
            cause,
            reason,
            confidence="low" if confidence == "low" else "medium" if confidence == "medium" else "high",
            run=self.attempt.run.record.name,
            attempt=record.attempt,
            job_id=record.job_id,
            evidence=tuple(evidence),
        )
        thread = threading.Thread(target=self._write, args=(entry,), name=f"list-{node}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def add_dead(self, dead: Mapping[str, str]) -> None:
        """List nodes that are dead, each with how that was noticed."""
        for node, how in dead.items():
            self.add(node, FailureClass.NODE_FAILURE.value, f"it did not answer in a job any more ({how})")

    def add_past(self, attempt: int, diagnosis: Diagnosis) -> None:
        """List the nodes of an attempt that died before it could."""
        with contextlib.suppress(OSError, LedgerError):
            events = ledger.read_events(self.attempt.run.path)
            ended = any(event.attempt == attempt and event.kind == "attempt_ended" for event in events)
            lost = any(known.attempt == attempt and known.lost_host for known in fold(events).attempts)
            if not ended and not lost:
                past = next((one for one in self.attempt.run.attempts() if one.attempt == attempt), None)
                self._add_diagnosed(diagnosis, (), past.nodes if past is not None else ())

    def add_diagnosed(self, diagnosis: Diagnosis, history: Sequence[RestartSummary]) -> None:
        """List the nodes on which a diagnosis lays the end of a restart, the last of `history`."""
        self._add_diagnosed(diagnosis, history, self.attempt.record.nodes)

    def _add_diagnosed(self, diagnosis: Diagnosis, history: Sequence[RestartSummary], nodes: Sequence[str]) -> None:
        for node in left_out(diagnosis, history, self.attempt.launch.recovery):
            self._add(node, nodes, diagnosis.failure_class, diagnosis.message, diagnosis.evidence, diagnosis.confidence)

    def tell(self, *, wait: bool = False) -> None:
        """Write an event for each node that has been listed since; `wait` gives those that are under way some time."""
        deadline = time.monotonic() + (_PATIENCE if wait else 0.0)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        while not self._said.empty():
            entry = self._said.get()
            if isinstance(entry, str):
                self.attempt.event("note", entry)
                continue
            how_long = show_duration(entry.expires - entry.time)
            self.attempt.event(
                "node_listed",
                f"jobs keep off {entry.node} for {how_long}: {entry.cause}",
                {"node": entry.node, "cause": entry.cause, "expires": entry.expires},
            )

    def _write(self, entry: ExclusionEntry) -> None:
        try:
            if entry.cause == FailureClass.NODE_FAILURE.value and not self._keeps_its_nodes():
                return
            self._said.put(add_found(self._list, entry))
        except (PretrainctlError, OSError, ValueError) as error:
            self._said.put(f"{entry.node} could not be listed: {scrub([str(error)])[0]}")

    def _keeps_its_nodes(self) -> bool:
        """Whether Slurm still says that this job runs: where it takes the nodes away, their silence is no fault."""
        slurm, job_id = self.attempt.slurm, self.attempt.record.job_id
        job = slurm.jobs([job_id]).get(job_id)
        return job is not None and job.is_running and not slurm.is_preempted(job_id)
