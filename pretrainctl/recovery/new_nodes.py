"""Nodes that are new in a start: what fails with them, and did not without, is theirs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pretrainctl.records.run import Diagnosis
from pretrainctl.recovery.placement import Placement
from pretrainctl.recovery.policies import FailureClass

__all__ = ["lay_on_new_nodes"]

_SAME_ON_ALL = {FailureClass.CONFIG.value, FailureClass.ENVIRONMENT.value}
"""Classes of what an attempt does not change: recipe, program, environment."""


def lay_on_new_nodes(
    found: Diagnosis, trained: Collection[str], placement: Placement, last_step: int | None
) -> Diagnosis:
    """`found`, or, where it lays the end on the recipe or the environment, `boot_failure` of the new nodes.

    `trained`: nodes on which this attempt did steps before, with the same of both. A spare that takes over may have
    lost a mount since it was tested, or never have had a library: that must not stop the run.
    """
    new = tuple(node for node in placement.nodes if node not in trained)
    if found.failure_class not in _SAME_ON_ALL or last_step is not None or not trained or not new:
        return found
    blamed = tuple(node for node in new if node in found.nodes) or new
    names = ", ".join(blamed)
    return replace(
        found,
        failure_class=FailureClass.BOOT_FAILURE.value,
        message=f"{found.message}; the run has trained without {names}, so it is laid on that",
        nodes=blamed,
        confidence="medium",
        lasting=False,
        hint=f"see what {names} lacks: a mount, a library, a driver",
    )
