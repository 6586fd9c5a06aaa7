"""How much work lies between two checkpoints: the most that one fault can cost."""

from __future__ import annotations

from pretrainctl import sizing
from pretrainctl.schema import ClusterProfile, Geometry, Recipe, Risk
from pretrainctl.units import show_duration, show_estimate

__all__ = ["FAULTS", "MOST_AT_RISK", "warn_of_risk", "work_at_risk"]

MOST_AT_RISK = 2 * 3600
"""Seconds of work between two checkpoints above which `plan` warns: about an hour is usual on large machines."""
FAULTS = 6.5e-3
"""Faults of a node and day: Meta's RSC-1, 16,000 A100 in 11 months (Kokolis et al. 2024, arXiv:2410.21680)."""
_USUAL = 3600


def work_at_risk(recipe: Recipe, profile: ClusterProfile, geometry: Geometry, seconds_per_step: float) -> Risk:
    """All steps between two checkpoints. A job saves at its end too, whatever the recipe says."""
    a_job = sizing.steps_per_job(seconds_per_step, recipe.resources.walltime, profile.signals.lead)
    steps = min(recipe.checkpoint.every_steps, geometry.total_steps, a_job)
    seconds = steps * seconds_per_step
    return Risk(steps=steps, seconds=seconds, node_hours=(geometry.nodes + geometry.spares) * seconds / 3600)


def warn_of_risk(risk: Risk, geometry: Geometry, save_seconds: float, warnings: list[str]) -> None:
    """Say where one fault can cost more than MOST_AT_RISK, and which interval costs the least in all."""
    if risk.seconds <= MOST_AT_RISK:
        return
    nodes = geometry.nodes + geometry.spares
    best = sizing.save_interval(save_seconds, nodes, FAULTS)
    warnings.append(
        f"one fault may cost {risk.steps} steps, {show_duration(risk.seconds)} of {nodes} nodes or "
        f"{show_estimate(risk.node_hours)} node-hours, more than {show_duration(MOST_AT_RISK)}: set "
        f"checkpoint.every_steps={_round_down(_USUAL * risk.steps / risk.seconds)} for about an hour; with "
        f"{FAULTS * 1000:g} faults in 1000 node-days, as on Meta's RSC-1 (arXiv:2410.21680), the least time is lost by "
        f"a checkpoint every {show_duration(best)} (Young and Daly)"
    )


def _round_down(steps: float) -> int:
    """The largest of 1, 2, 5, 10, 20, 50 and so on that is no more, at least 1."""
    largest = unit = 1
    while unit <= steps:
        largest = max(step for step in (unit, 2 * unit, 5 * unit) if step <= steps)
        unit *= 10
    return largest
