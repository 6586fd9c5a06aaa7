"""Names of the files in a DeepSpeed checkpoint tag, and what they tell. Pure; nothing is read here.

| ZeRO stage | files of a complete tag, for D data-parallel ranks and M model-parallel slices |
|---|---|
| 0 | `mp_rank_<m>_model_states.pt` x M, which hold the optimizer too |
| 1, 2 | the above, and `[bf16_]zero_pp_rank_<d>_mp_rank_<m>_optim_states.pt` x D*M |
| 3 | `zero_pp_rank_<d>_mp_rank_<m>_model_states.pt` and the optimizer files, x D*M each |

(Read in deepspeed/runtime/engine.py, `_get_ckpt_name` and `_get_zero_ckpt_name`, and listed from real saves.
The prefix `bf16_` is there exactly when bf16 is enabled.) Files of pipeline layers (`layer_*`), of experts and of
offloaded tensors are not asked for: no layout of ours describes them yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from pretrainctl.records.launch import CheckpointLayout

__all__ = ["Geometry", "Shard", "describe_missing", "fold", "parse_shard", "saved_geometry"]

_NAME = re.compile(
    r"(?P<bf16>bf16_)?(?:zero_pp_rank_(?P<rank>\d+)_)?mp_rank_(?P<slice>\d+)_(?P<kind>model|optim)_states\.pt"
)
_MOST_RANGES = 12


class Shard(NamedTuple):
    """One file of a tag. `rank` is the data-parallel rank, None for a file that all of them share."""

    kind: Literal["model", "optim"]
    rank: int | None
    slice: int
    bf16: bool = False

    @property
    def name(self) -> str:
        """The file's name."""
        rank = "" if self.rank is None else f"zero_pp_rank_{self.rank}_"
        return f"{'bf16_' if self.bf16 else ''}{rank}mp_rank_{self.slice:02d}_{self.kind}_states.pt"


def parse_shard(name: str) -> Shard | None:
    """The shard that a file name means, None for any other file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    rank = match["rank"]
    kind: Literal["model", "optim"] = "model" if match["kind"] == "model" else "optim"
    shard = Shard(kind, None if rank is None else int(rank), int(match["slice"]), match["bf16"] is not None)
    return shard if shard.name == name else None


@dataclass(frozen=True)
class Geometry:
    """What decides the files of a tag."""

    data_ranks: int
    slices: int
    sharded_weights: bool
    sharded_optimizer: bool
    bf16: bool

    @classmethod
    def of(cls, layout: CheckpointLayout) -> Geometry:
        """The geometry that a layout asks for."""
        stage = layout.zero_stage
        return cls(layout.world_size, layout.model_parallel, stage == 3, stage >= 1, layout.precision == "bf16")

    def shards(self) -> list[Shard]:
        """Every file of a complete tag, in the order of slices and ranks."""
        ranks: Sequence[int | None] = range(self.data_ranks) if self.sharded_weights else (None,)
        found = [Shard("model", rank, index) for index in range(self.slices) for rank in ranks]
        if self.sharded_optimizer:
            found += [
                Shard("optim", rank, index, self.bf16)
                for index in range(self.slices)
                for rank in range(self.data_ranks)
            ]
        return found

    def against(self, asked: Geometry) -> str:
        """How this geometry differs from the one asked for, as people read it; empty if it does not."""
        parts = []
        if self.sharded_optimizer and (self.data_ranks, self.slices) != (asked.data_ranks, asked.slices):
            if self.slices == asked.slices == 1:
                parts.append(f"by {self.data_ranks} data-parallel ranks, the run has {asked.data_ranks}")
            else:
                parts.append(
                    f"by {self.data_ranks} data-parallel ranks x {self.slices} model-parallel slices, "
                    f"the run has {asked.data_ranks} x {asked.slices}"
                )
        stage, wanted = self._stage(), asked._stage()
        if stage != wanted:
            parts.append(f"with ZeRO stage {stage}, the run has {wanted}")
        elif self.bf16 != asked.bf16 and self.sharded_optimizer:
            kinds = ("bf16", "fp32 or fp16")
            parts.append(f"in {kinds[not self.bf16]}, the run has {kinds[not asked.bf16]}")
        return "saved " + "; ".join(parts) if parts else ""

    def _stage(self) -> str:
        return "3" if self.sharded_weights else "1 or 2" if self.sharded_optimizer else "0"


def saved_geometry(present: Iterable[Shard], asked: Geometry, recorded_ranks: int | None) -> Geometry:
    """The geometry that wrote a tag: `asked` unless the files say clearly that it was another one.

    `recorded_ranks` is the data-parallel world size inside the tag's first model file, None where that file
    is not there or cannot be read; it decides. Without the file, optimizer shards without a gap from rank 0
    to rank k-1 mean k ranks: a save cut short cannot look so, because rank 0 writes its model file before its
    optimizer shard. With the file there but silent, only ranks beyond those asked for mean another size.
    """
    shards = set(present)
    if recorded_ranks in (None, asked.data_ranks) and shards == set(asked.shards()):
        return asked
    optim = {shard for shard in shards if shard.kind == "optim"}
    found = asked
    if optim and not any(shard.bf16 == asked.bf16 for shard in optim):
        found = replace(found, bf16=not asked.bf16)
    weights = {shard.rank is not None for shard in shards if shard.kind == "model"}
    if weights and asked.sharded_weights not in weights:
        found = replace(found, sharded_weights=not asked.sharded_weights, sharded_optimizer=bool(optim))
    if not asked.sharded_optimizer and optim:
        found = replace(found, sharded_optimizer=True)
    if not found.sharded_optimizer:
        return found
    slices = 1 + max((shard.slice for shard in shards), default=0)
    ranks = recorded_ranks
    if ranks is None:
        highest = 1 + max((shard.rank or 0 for shard in optim), default=-1)
        gap_free = len({shard for shard in optim if shard.bf16 == found.bf16}) == highest * slices > 0
        unsaid = not any(shard.kind == "model" and not shard.rank and shard.slice == 0 for shard in shards)
        ranks = highest if gap_free and (unsaid or highest > asked.data_ranks) else asked.data_ranks
    if slices > asked.slices or (ranks != asked.data_ranks and optim):
        found = replace(found, slices=slices)
    return replace(found, data_ranks=ranks)


def describe_missing(missing: Iterable[Shard], geometry: Geometry, tasks_per_node: int | None) -> str:
    """Which files are missing, by rank; and which nodes wrote nothing, where that is what it looks like."""
    absent = set(missing)
    every = geometry.shards()
    parts = []
    for kind, word in (("optim", "optimizer"), ("model", "model")):
        gone = [shard for shard in absent if shard.kind == kind]
        if not gone:
            continue
        text = f"{len(gone)} of {sum(shard.kind == kind for shard in every)} {word} shards missing: "
        if len(gone) == 1:
            text += gone[0].name
        elif gone[0].rank is None:
            text += f"slices {fold(shard.slice for shard in gone)}"
        elif geometry.slices == 1:
            text += f"ranks {fold(shard.rank for shard in gone if shard.rank is not None)}"
        else:
            by_slice: dict[int, list[int]] = {}
            for shard in gone:
                by_slice.setdefault(shard.slice, []).append(shard.rank or 0)
            text += ", ".join(f"ranks {fold(ranks)} of slice {index}" for index, ranks in sorted(by_slice.items()))
        parts.append(text)
    nodes = _silent_nodes(absent, geometry, tasks_per_node)
    if nodes:
        word = "node" if len(nodes) == 1 else "nodes"
        parts.append(f"the directory is not on a shared file system, or {word} {fold(nodes)} did not write")
    return "; ".join(parts)


def _silent_nodes(absent: set[Shard], geometry: Geometry, tasks_per_node: int | None) -> list[int]:
    # With model-parallel slices the rank of a file is not the rank of a task, so no node can be named.
    if tasks_per_node is None or geometry.slices != 1 or not geometry.sharded_optimizer:
        return []
    gone = {shard.rank for shard in absent if shard.kind == "optim"}
    nodes = []
    for index, first in enumerate(range(0, geometry.data_ranks, tasks_per_node)):
        ranks = set(range(first, min(first + tasks_per_node, geometry.data_ranks)))
        if ranks <= gone:
            nodes.append(index + 1)
            gone -= ranks
    return nodes if not gone and len(nodes) * tasks_per_node < geometry.data_ranks else []


def fold(numbers: Iterable[int]) -> str:
    """Numbers as people write them: 3,8-15. A long list is cut, and says so."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    if len(shown) > _MOST_RANGES:
        return ",".join(shown[:_MOST_RANGES]) + f" and {len(shown) - _MOST_RANGES} more ranges"
    return ",".join(shown)
