"""The node exclusion list of a run's cluster: which nodes its jobs keep off, and what is found of nodes."""

from __future__ import annotations

import contextlib
import getpass
import os
import queue
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pretrainctl.catalog import expand_home
from pretrainctl.errors import InputError
from pretrainctl.health.entries import LIST_VARIABLE, ExclusionList
from pretrainctl.health.exclusion import LONGEST_REASON, ListedNode, lifetime, listed, scrub, to_avoid
from pretrainctl.records.launch import Launch
from pretrainctl.records.nodes import ExclusionEntry
from pretrainctl.recovery.node_evidence import about_node
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.schema import ClusterProfile
from pretrainctl.slurm.avoidance import choose
from pretrainctl.slurm.client import Slurm
from pretrainctl.slurm.nodes import expand, fold

__all__ = [
    "Avoided",
    "add_found",
    "avoid",
    "avoid_at_submit",
    "found_now",
    "list_folder",
    "list_of",
    "push",
    "release",
    "script_excludes",
]

_FOLDER = ".nodes"
_MOST_EVIDENCE = 8
_MOST_SHOWN = 5
_PATIENCE = 10.0
"""Seconds that a job waits for the list, which may lie in a file system that does not answer."""
_NODES_OF = {
    **dict.fromkeys(("node_dead", "batch_host_lost", "node_listed"), "node"),
    "job_lost": "nodes",
    "decided": "exclude",
}
"""Events of a run that say which nodes its jobs are kept off, and under which key."""


def list_folder(profile: ClusterProfile, runs: Path) -> Path:
    """Where the node exclusion lists lie: what PRETRAINCTL_NODES names, the profile's `node_list`, or in the folder of
    the runs."""
    named = os.environ.get(LIST_VARIABLE) or profile.node_list
    return expand_home(named).absolute() if named else runs / _FOLDER


def list_of(run: RunFolder) -> ExclusionList:
    """The list that the jobs of a run obey, and write."""
    record = run.record
    folder = Path(record.node_list) if record.node_list else run.path.parent / _FOLDER
    return ExclusionList(folder, record.cluster, record.slurm_cluster)


@dataclass(frozen=True)
class Avoided:
    """What a new job keeps off: options for sbatch, the nodes, and what is to be said of it, "" for nothing."""

    options: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    message: str = ""


def avoid_at_submit(run: RunFolder, launch: Launch, slurm: Slurm) -> Avoided:
    """What a new job of a run keeps off."""
    plan = run.record.plan
    own = script_excludes(plan.get("directives", {}))
    return avoid(slurm, list_of(run), launch, partition=plan.get("queue", {}).get("partition"), own=own)


def avoid(slurm: Slurm, nodes: ExclusionList, launch: Launch, *, partition: str | None, own: str) -> Avoided:
    """What a new job keeps off by a list.

    `own` is the script's own list of nodes to exclude, which stays: sbatch takes one list only. As many nodes are
    avoided as others in service are left for the job; where that cannot be known, none. A list is a preference: nothing
    that is wrong with it ends a launch or an attempt, or keeps it for long.
    """
    try:
        entries, problems = _read(nodes)
        wanted = to_avoid(listed(entries), time.time())
        script = expand(own)  # stays, whatever is left
        if not wanted:
            return Avoided(message=_few(problems))
        if "/" in own:
            return Avoided(
                message=f"the node exclusion list is not used: the script excludes the nodes of a file, {own}"
            )
        names = [node.node for node in wanted if node.node not in script]
        states, partitions = slurm.partition_nodes(partition or "")
        possible = choose(states, partitions, launch.srun.nodes + launch.spares, script, names)
    except Exception as error:  # noqa: BLE001 - whatever it is: no attempt dies before it has a successor
        return Avoided(message=f"the node exclusion list is not used: {str(error) or type(error).__name__}")
    kept = tuple(node for node in wanted if node.node in possible)
    here = {node.name for node in states}
    left = [node.node for node in wanted if node.node in here and node.node not in (*possible, *script)]
    said = [_few(problems)] if problems else []
    if kept:
        more = f" and {len(kept) - _MOST_SHOWN} more" if len(kept) > _MOST_SHOWN else ""
        said.append(f"kept off {', '.join(map(_show, kept[:_MOST_SHOWN]))}{more}")
    if left:
        said.append(f"may get {fold(left)} of the node exclusion list: too few others are in service")
    option = fold(sorted({*script, *possible}))
    return Avoided((f"--exclude={option}",) if kept else (), possible, "; ".join(said))


def _read(nodes: ExclusionList) -> tuple[dict[str, ExclusionEntry], tuple[str, ...]]:
    """The list, as its `read` returns it; TimeoutError, an OSError, where the file system does not answer."""
    answer: queue.SimpleQueue[tuple[dict[str, ExclusionEntry], tuple[str, ...]] | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            answer.put(nodes.read())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            answer.put(error)

    threading.Thread(target=work, name="list", daemon=True).start()
    try:
        found = answer.get(timeout=_PATIENCE)
    except queue.Empty:
        raise TimeoutError(f"{nodes.path} did not answer within {_PATIENCE:g} s") from None
    if isinstance(found, Exception):
        raise found
    return found


def _few(problems: Sequence[str]) -> str:
    """One in full, and how to see the others: jobs say this each time."""
    if len(problems) < 2:
        return "".join(problems)
    return f"{len(problems)} files of the node exclusion list cannot be used: `pretrainctl nodes list` says why"


def _show(node: ListedNode) -> str:
    """A node of the list in a few words."""
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(node.expires))
    return f"{node.node} ({node.newest.cause}, until {until})"


def script_excludes(directives: Mapping[str, str]) -> str:
    """The nodes that a batch script excludes by itself, as its options have them."""
    return directives.get("exclude") or directives.get("x") or ""


def _marked_by(run: RunFolder) -> frozenset[str]:
    """Nodes that this run's own ledger says it kept off."""
    found: set[str] = set()
    for event in ledger.read_events(run.path):
        value = event.data.get(_NODES_OF.get(event.kind, ""), ())
        found |= {value} if isinstance(value, str) else set(value)
    return frozenset(found)


def push(run: RunFolder, slurm: Slurm, job_ids: Iterable[int], first: Sequence[str] = ()) -> tuple[str, ...]:
    """Keep pending jobs of a run off `first`, then off what the list says now, and off nothing that only the list said
    before: what a person set on the job stays. Returns those of `first` that a job may get all the same."""
    jobs = list(job_ids)
    wanted, ours = _now_and_ever(run, first)
    missed: list[str] = []
    for job in jobs if first or ours else ():
        missed += slurm.exclude(job, wanted, ours=ours)
    return tuple(dict.fromkeys(node for node in missed if node in first))


def release(run: RunFolder, slurm: Slurm, job_id: int) -> None:
    """Let a job that Slurm holds for its nodes start: it avoids only what it can do without, what a person set first.

    What this run or the list excluded gives way to that.
    """
    wanted, ours = _now_and_ever(run)
    slurm.exclude(job_id, wanted, ours=ours | _marked_by(run), held=True)


def _now_and_ever(run: RunFolder, first: Sequence[str] = ()) -> tuple[tuple[str, ...], frozenset[str]]:
    """Nodes to keep off now: those that people listed, then `first`, then the others. And all that the list ever named
    and the script does not. Where the list cannot be read, `first` is all that is known."""
    try:
        entries, _ = _read(list_of(run))
        nodes = to_avoid(listed(entries), time.time())
    except Exception:  # noqa: BLE001 - as in `avoid`, which says what it was
        return tuple(first), frozenset()
    by_people = [node.node for node in nodes if node.by_person]
    wanted = tuple(dict.fromkeys((*by_people, *first, *(node.node for node in nodes))))
    own: tuple[str, ...] = ()
    with contextlib.suppress(InputError):  # sbatch takes the name of a file there too
        own = expand(script_excludes(run.record.plan.get("directives", {})))
    return wanted, frozenset(entry.node for entry in entries.values() if entry.node not in own)


def found_now(nodes: ExclusionList, node: str, cause: str, reason: str, **more: Any) -> ExclusionEntry:
    """An entry of this list for what this user has found of a node now; `more` are other fields of it."""
    return ExclusionEntry(
        kind="exclude",
        cluster=nodes.cluster,
        slurm_cluster=nodes.slurm_cluster,
        node=node,
        cause=cause,
        reason=reason,
        user=getpass.getuser(),
        time=time.time(),
        **more,
    )


def add_found(nodes: ExclusionList, found: ExclusionEntry) -> ExclusionEntry:
    """Add what was found of a node, less what others need not read; returns the entry as it was written.

    Without an end of its own it holds longer each time that something is found of the node.
    """
    entries, _ = nodes.read()
    expires = found.expires or found.time + lifetime(found.cause, listed(entries).get(found.node), found.time)
    entry = replace(
        found,
        reason=scrub([found.reason], LONGEST_REASON)[0],
        evidence=scrub(about_node(found.node, found.evidence)[:_MOST_EVIDENCE]),
        expires=expires,
    )
    nodes.add(entry)
    return entry
