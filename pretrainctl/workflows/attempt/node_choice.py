"""Which nodes of the allocation train: those that beat, passed their test, and are blamed for nothing."""

from __future__ import annotations

from collections.abc import Iterable

from pretrainctl.slurm.nodes import fold
from pretrainctl.workflows.attempt.chain import Chain
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.node_listing import NODE_TEST, NodeListing
from pretrainctl.workflows.attempt.node_test import NodesUnderTest, sees_no_checkpoints
from pretrainctl.workflows.attempt.node_watch import NodeWatch

__all__ = ["NodeChoice"]


class NodeChoice:
    """The nodes of one attempt; what is found of them goes onto the list through `listing`."""

    def __init__(self, attempt: Attempt, watch: NodeWatch, chain: Chain) -> None:
        self.attempt = attempt
        self.watch = watch
        self.chain = chain
        self.listing = NodeListing(attempt)
        self._test = NodesUnderTest(attempt, watch)
        self._left_out: set[str] = set()
        self._unfit: set[str] = set()
        self._slow: set[str] = set()
        self._blind = False
        """The batch host does not see the checkpoints: it would take the wrong one, or find none, and stop."""

    def start(self) -> None:
        """Start the test of all nodes, and return at once."""
        self._test.start()

    def settle(self) -> None:
        """Wait, in bounds, for the first beats and the answers to the test."""
        self.watch.wait_for_first_beats()
        tested = self._test.finish()
        if tested is None:
            return
        self._unfit, self._slow = set(tested.unfit), set(tested.slow)
        self._blind = sees_no_checkpoints(self.attempt.record.host, tested)
        self._left_out |= self._unfit
        for node, why in tested.unfit.items():
            self.listing.add(node, NODE_TEST, why)

    def stop(self) -> None:
        """End what is left of the test, and say what was listed last."""
        self._test.stop()
        self.listing.tell(wait=True)

    def usable(self) -> list[str]:
        """The nodes that can train, those last that are left out where there is a spare: the batch host, slow ones."""
        self.listing.add_dead(self.watch.dead)
        self.listing.tell()
        return sorted(self._healthy(), key=lambda node: node in self._slow)

    def count(self) -> int:
        """How many can train."""
        return len(self._healthy())

    def leave_out(self, nodes: Iterable[str]) -> None:
        """Go on without these."""
        self._left_out |= set(nodes)

    def keep_off(self) -> bool:
        """Keep the chained job off the nodes that are dead or left out; False where it may get one of them again."""
        return self.chain.keep_off(tuple(dict.fromkeys((*self.watch.dead, *sorted(self._left_out)))))

    def take_unfit(self, needed: int) -> bool:
        """Train on unfit nodes all the same, where that makes enough of them; for when no other job can do better."""
        if not self._unfit or len(set(self.watch.healthy()) - (self._left_out - self._unfit)) < needed:
            return False
        self.attempt.event("note", f"trains on {fold(sorted(self._unfit))} all the same: no other nodes are left")
        self._left_out -= self._unfit
        self._unfit.clear()
        self._blind = False
        return True

    def lack(self, needed: int) -> str:
        """What is missing, in words."""
        if self._blind:
            return f"the batch host {self.attempt.record.host} does not see the checkpoints, and other nodes do"
        unfit = f"; unfit: {', '.join(sorted(self._unfit))}" if self._unfit else ""
        return f"{self.count()} healthy nodes are left, {needed} are needed{unfit}"

    def _healthy(self) -> list[str]:
        if self._blind:
            return []
        return [node for node in self.watch.healthy() if node not in self._left_out]
