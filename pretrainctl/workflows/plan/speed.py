"""How fast one GPU trains: what the recipe says, what was measured on such a model, else a share of its peak."""

from __future__ import annotations

import math
import re
from typing import Literal

from pretrainctl.schema import ClusterProfile, Geometry, Recipe, Speed
from pretrainctl.schema.cluster import Throughput
from pretrainctl.units import show_count

__all__ = ["ASSUMED_SHARE", "PEAKS", "choose_speed"]

PEAKS = {
    "A100": 312 * 10**12,
    "H100": 989 * 10**12,
    "H200": 989 * 10**12,
    "GH200": 989 * 10**12,
    "MI250X": 191_500 * 10**9,
}
"""Operations a second in dense bf16, by the makers' data sheets of the SXM modules; of an MI250X one of its two halves,
which Slurm counts as a GPU each."""
ASSUMED_SHARE = 0.3
"""Share of the peak that a training without recomputation is assumed to reach where nothing measured fits. Published
trainings of dense models reach 24 to 38 % on 8 to 2048 H100, 32 to 69 % on 8 to 256 A100 (Modalities/modalities)."""
_UNKNOWN_TYPE = "A100"
_FITS = 2.0
"""How many times larger or smaller a model may be than the one that was measured."""
_FAR = 8
"""How many times as many GPUs as were measured make each of them so much slower that it is said."""


def choose_speed(
    recipe: Recipe, profile: ClusterProfile, geometry: Geometry, gpus: int, parameters: int, notes: list[str]
) -> Speed | None:
    """What the time of a step rests on; None on CPUs. What is not the recipe's own measurement goes to `notes`."""
    if recipe.resources.seconds_per_step is not None:
        source = "the recipe's resources.seconds_per_step"
        return Speed(basis="given", gpu_flops=None, recompute="none", model=None, source=source, as_of=None)
    if not gpus:
        return None
    known, here, far = profile.node.gpu_flops, recipe.training.recompute, ""
    if isinstance(known, int):
        source = f"node.gpu_flops of the profile {profile.name}"
        speed = Speed(
            basis="given",
            gpu_flops=known,
            recompute=_recompute(there=False, here=here),
            model=None,
            source=source,
            as_of=None,
        )
    else:
        found = [known] if isinstance(known, Throughput) else [] if isinstance(known, str) else list(known)
        fit = [one for one in found if _fits(one, recipe, parameters)]
        # Of two that are as near, the slower for this training.
        nearest = min(
            fit,
            key=lambda one: (
                _distance(one, parameters, geometry.world_size),
                one.gpu_flops / _measured(one, here=here).longer,
            ),
            default=None,
        )
        speed = _measured(nearest, here=here) if nearest else _assumed(profile, here=here, measured=bool(found))
        if nearest and nearest.gpus and geometry.world_size >= _FAR * nearest.gpus:
            far = f"; each of {geometry.world_size} GPUs mostly reaches less than each of {nearest.gpus}"
    notes.append(
        f"jobs and node-hours to the target rest on {speed}{far}; measure a step of this model, and set "
        "resources.seconds_per_step"
    )
    return speed


def _fits(one: Throughput, recipe: Recipe, parameters: int) -> bool:
    if one.parameters is None:
        return True
    return recipe.model.experts is None and 1 / _FITS <= parameters / one.parameters <= _FITS


def _distance(one: Throughput, parameters: int, gpus: int) -> float:
    """How far another training is, in doublings of its GPUs and of its weights together."""
    if one.gpus is None:
        return math.inf
    size = 0.0 if one.parameters is None else abs(math.log2(one.parameters / parameters))
    return round(abs(math.log2(one.gpus / gpus)) + size, 3)


def _measured(one: Throughput, *, here: bool) -> Speed:
    return Speed(
        basis="measured",
        gpu_flops=one.gpu_flops,
        recompute=_recompute(there=one.recompute == "yes", here=here),
        model=one.model,
        source=one.source,
        as_of=one.as_of,
    )


def _assumed(profile: ClusterProfile, *, here: bool, measured: bool) -> Speed:
    words = re.findall(r"[A-Z0-9]+", (profile.node.gpu_type or "").upper())
    kind = next((word for word in words if word in PEAKS), None)
    peak = PEAKS[kind or _UNKNOWN_TYPE]
    of = (
        f"what one {kind} can" if kind else f"what an {_UNKNOWN_TYPE} can, since the peak of the GPUs here is not known"
    )
    why = "nothing measured there is of such a model" if measured else "nothing measured is known"
    source = (
        f"a choice of pretrainctl, since {why}: {ASSUMED_SHARE:.0%} of the {show_count(peak)} in dense bf16 of {of}"
    )
    return Speed(
        basis="assumed",
        gpu_flops=round(ASSUMED_SHARE * peak),
        recompute=_recompute(there=False, here=here),
        model=None,
        source=source,
        as_of="2026-11",
    )


def _recompute(*, there: bool, here: bool) -> Literal["counted", "contained", "removed", "none"]:
    """`there` = blocks were recomputed where the figure comes from, `here` = in this training."""
    if there:
        return "contained" if here else "removed"
    return "counted" if here else "none"
