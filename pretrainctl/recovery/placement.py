"""Which node a rank was on: from the run's own record, or from what a log says of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["Placement", "could_be_node", "read_placement"]

_NO_NODE = re.compile(
    r"(?:python|pip|conda|torch|torchrun|urllib|httplib|boto|botocore|h5py|mpi4py|cupy|numba|jax|"
    r"gpu|cuda|hip|device|accelerator|dev|mlx\d_|ib|eth|eno|ens|hsn|hfi|nvme|sd[a-z]|bond|"
    r"fp|bf|tf|float|bfloat|int|uint|sha|md|utf-|base|crc|"
    r"rank|local_rank|task|worker|process|pid|thread|proc|step|iter|iteration|epoch|layer|block|stage|chunk|shard|part|"
    r"batch|group|pg|test|case|line|level|error|errno|code|default|trainer|v)[-_.]?\d[\w.]*",
    re.IGNORECASE,
)
"""Programs, modules, devices, formats and counted things that stand where a host may stand."""

_RANGE = re.compile(r"\branks? (\d+)(?:\s*-\s*(\d+))? (?:on|at) (?:node )?([A-Za-z][\w.-]*\d)")
_NODES = re.compile(r"SLURM_(?:JOB_|STEP_)?NODELIST[=: ]+[\"']?([^\s\"']+)")
_SPAN = re.compile(r"\bnodes? ([A-Za-z][\w-]*?)(\d+)\.\.\1?(\d+)")
_PER_NODE = re.compile(r"SLURM_N?TASKS_PER_NODE[=: ]+[\"']?(\d+)|\b(\d+) ranks each|\b(\d+) ranks (?:a|per) node")
_NUMBER = re.compile(r"\d+")
_WORLD = re.compile(r"\b(?:world[ _]size|WORLD_SIZE)(?:[=: ]+)(\d+)")


@dataclass(frozen=True)
class Placement:
    """Ranks lie on `nodes` in order, `ranks_per_node` on each; `stated` overrules it for single ranks.

    `world_size` is None where it is not known. `guessed`: `nodes` were read from a log, which may tell of other jobs,
    too: what is called as they are, but for the numbers, is a node as well.
    """

    nodes: tuple[str, ...] = ()
    ranks_per_node: int = 0
    stated: dict[int, str] = field(default_factory=dict)
    world_size: int | None = None
    guessed: bool = False

    @property
    def ranks(self) -> int | None:
        """How many ranks there are, None where it is not known."""
        return self.world_size or (len(self.nodes) * self.ranks_per_node or None)

    def node_of(self, rank: int) -> str | None:
        """The node of a rank, None where it is not known."""
        if rank in self.stated and (stated := self.named([self.stated[rank]])):
            return stated[0]
        index = rank // self.ranks_per_node if self.ranks_per_node else len(self.nodes)
        return self.nodes[index] if index < len(self.nodes) else None

    def nodes_of(self, ranks: Sequence[int]) -> tuple[str, ...]:
        """The nodes of ranks, each once, in their order."""
        return tuple(dict.fromkeys(node for node in map(self.node_of, ranks) if node is not None))

    def named(self, words: Sequence[str]) -> tuple[str, ...]:
        """The nodes of the job that lines of a log mean by `words`, each once; a word that is none is left out.

        Where the nodes are not known, all of them.
        """
        if not self.nodes:
            return tuple(dict.fromkeys(words))
        known = {node.partition(".")[0]: node for node in self.nodes} | {node: node for node in self.nodes}
        shapes = {_NUMBER.sub("0", node) for node in self.nodes} if self.guessed else set()
        found = (
            known.get(word) or known.get(word.partition(".")[0]) or (word if _NUMBER.sub("0", word) in shapes else None)
            for word in words
        )
        return tuple(dict.fromkeys(node for node in found if node is not None))


def could_be_node(word: str) -> bool:
    """Whether a word with a number, where a host may stand, is not plainly a module, a device or a format."""
    return not _NO_NODE.fullmatch(word)


def read_placement(lines: Iterable[str], expand: Callable[[str], Sequence[str]]) -> Placement:
    """What the head and the end of a log say: Slurm's variables as scripts print them, `ranks 0-3 on node1`,
    `world size 8`. `expand` turns Slurm's short node list into names."""
    nodes: tuple[str, ...] = ()
    per_node = 0
    stated: dict[int, str] = {}
    world: int | None = None
    for line in lines:
        for first, last, node in _RANGE.findall(line):
            if could_be_node(node):
                stated |= dict.fromkeys(range(int(first), min(int(last or first), int(first) + 1024) + 1), node)
        listed, span, each, size = (pattern.search(line) for pattern in (_NODES, _SPAN, _PER_NODE, _WORLD))
        if listed:
            nodes = tuple(expand(listed[1]))
        elif span:
            nodes = tuple(expand(f"{span[1]}[{span[2]}-{span[3]}]"))
        if each:
            per_node = int(next(filter(None, each.groups())))
        if size:
            world = int(size[1])
    return Placement(nodes, per_node, stated, world, guessed=True)
