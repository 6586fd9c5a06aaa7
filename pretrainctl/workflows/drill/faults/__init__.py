"""The faults of the drill: one table, in the order in which they are played."""

from __future__ import annotations

from pretrainctl.workflows.drill.fault import Fault
from pretrainctl.workflows.drill.faults import files, nodes, outages, people, processes, programs, takings, weak_nodes

__all__ = ["FAULTS"]

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for part in (processes, nodes, weak_nodes, takings, files, outages, programs, people)
    for fault in part.FAULTS
}
