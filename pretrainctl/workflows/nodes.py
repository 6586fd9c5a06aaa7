"""Nodes: what people ask of a cluster's node exclusion list, and tell it."""

from __future__ import annotations

import getpass
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pretrainctl import catalog
from pretrainctl.errors import InputError, MissingError, PretrainctlError
from pretrainctl.health.entries import ExclusionList
from pretrainctl.health.exclusion import LONGEST_REASON, PERSON, ListedNode, forgiven, listed
from pretrainctl.records.nodes import ExclusionEntry
from pretrainctl.recovery.node_evidence import about_node
from pretrainctl.runs import folder
from pretrainctl.schema import ClusterProfile
from pretrainctl.slurm.nodes import expand, fold
from pretrainctl.workflows.exclusions import add_found, list_folder, list_of, push
from pretrainctl.workflows.place import this_cluster
from pretrainctl.workflows.reach import find_slurm_conf, find_slurm_name, reach_own, slurm_at

__all__ = ["Told", "exclude", "forgive", "report", "survey"]

_FORGIVEN = "forgiven"
"""The reason of a forgiving for which none was given."""
_LONGEST = 365 * 86400.0
_SKEW = 3600.0
"""Seconds by which the clocks of two hosts may differ: what is dated later was written by one that was wrong."""
_STAMP = "%Y-%m-%d %H:%M:%S %z"


@dataclass(frozen=True)
class NodeView:
    """A node of the list as it is shown. `active`: jobs keep off it now; `expires` is epoch seconds.

    `forgiven`: when somebody said that jobs may go there again, the last time, None for never; `forgiven_by` who, and
    `forgiven_for` why. Of a node that nothing counts against any more the rest is what was found of it last.
    """

    node: str
    active: bool
    expires: float
    count: int
    cause: str
    reason: str
    found: float
    run: str
    job_id: int
    user: str
    forgiven: float | None = None
    forgiven_by: str = ""
    forgiven_for: str = ""


@dataclass(frozen=True)
class Survey:
    """The list of one Slurm cluster: where it lies, its nodes, and files in it that cannot be used."""

    cluster: str
    slurm_cluster: str
    path: str
    nodes: tuple[NodeView, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Told:
    """What was written of which nodes, and what it did to jobs that wait."""

    slurm_cluster: str
    nodes: tuple[str, ...]
    message: str
    notes: tuple[str, ...]


def survey(cluster: str | None, *, everything: bool = False) -> Survey:
    """The nodes that jobs keep off, with `everything` those whose time is over, or that were forgiven, too."""
    nodes, _ = _open(cluster)
    entries, problems = nodes.read()
    now = time.time()
    known, past = listed(entries), forgiven(entries)
    views = tuple(
        view
        for view in (_view(node, known.get(node), past.get(node), now) for node in sorted({*known, *past}))
        if view is not None and (view.active or everything)
    )
    return Survey(nodes.cluster, nodes.slurm_cluster, str(nodes.path), views, problems)


def exclude(names: Sequence[str], cluster: str | None, *, reason: str, seconds: float) -> Told:
    """Keep jobs off nodes for `seconds`, or as long as they were kept off before, whichever is longer.

    InputError without a reason, and for a node that Slurm does not know.
    """
    if not reason.strip():
        raise InputError("--reason is empty", hint="say why, for those who read the list")
    _refuse_long(reason)
    if not 1 <= seconds <= _LONGEST:
        raise InputError(f"--for {seconds:g} s is not between 1 s and 365 days", hint="write it as 12h or 7d")
    nodes, profile = _open(cluster)
    chosen = _expand(names)
    known = slurm_at(find_slurm_conf(profile)).node_states(chosen)
    unknown = [node for node in chosen if node not in known]
    if unknown:
        raise InputError(
            f"the Slurm cluster {nodes.slurm_cluster} has no node {fold(unknown)}", hint="`sinfo -N` lists them"
        )
    now = time.time()
    for node in chosen:
        add_found(nodes, replace(_entry(nodes, node, "exclude", reason, now), expires=now + seconds))
    kept = listed(nodes.read()[0])
    ends = {node: max(now + seconds, kept[node].expires if node in kept else 0.0) for node in chosen}
    longer = [node for node in chosen if ends[node] > now + seconds]
    told = [
        f"{fold([node for node in chosen if ends[node] == end])} until {_minute(end)}"
        for end in dict.fromkeys(ends.values())
    ]
    said = f"jobs on {nodes.shown} keep off {', '.join(told)}"
    if longer:
        said += (
            f"; {fold(longer)} was excluded for longer before: `pretrainctl nodes forgive {fold(longer)}` shortens that"
        )
    return Told(nodes.slurm_cluster, chosen, said, _push(nodes))


def forgive(names: Sequence[str], cluster: str | None, *, reason: str) -> Told:
    """Let jobs go to nodes again: what was found of them counts no more. Nothing is deleted.

    InputError for a node of which the list says nothing.
    """
    _refuse_long(reason)
    nodes, _ = _open(cluster)
    chosen = _expand(names)
    known = listed(nodes.read()[0])
    unknown = [node for node in chosen if node not in known]
    if unknown:
        raise _unlisted(unknown, nodes)
    now = time.time()
    for node in chosen:
        entry = _entry(nodes, node, "forgive", reason or _FORGIVEN, now)
        add_found(nodes, replace(entry, forgives=known[node].names, expires=now))
    said = f"jobs on {nodes.shown} may go to {fold(chosen)} again"
    return Told(nodes.slurm_cluster, chosen, said, _push(nodes))


def report(names: Sequence[str], cluster: str | None) -> str:
    """What was found of nodes, as text for the site's help desk: no path, run or user of ours is named.

    Without names, of all nodes that jobs keep off now.
    """
    nodes, _ = _open(cluster)
    entries, _ = nodes.read()
    known, past = listed(entries), forgiven(entries)
    now = time.time()
    chosen = _expand(names) if names else tuple(node for node in known if known[node].expires > now)
    unknown = [node for node in chosen if node not in known and node not in past]
    if unknown:
        raise _unlisted(unknown, nodes)
    lines = [f"Nodes of {nodes.shown}, written {_stamp(now)}"]
    for node in chosen:
        found = [entry for kept in (past.get(node), known.get(node)) for entry in (kept.entries if kept else ())]
        told = sorted((entry for entry in found if entry.time <= now + _SKEW), key=lambda entry: entry.time)
        count = sum(entry.kind == "exclude" for entry in told)
        left = len(found) - len(told)
        lines += ["", f"{node}: {_findings(count)}{f', and {left} of a time that is to come' if left else ''}"]
        for entry in told:
            job = f", job {entry.job_id}" if entry.job_id else ""
            cause = "forgiven by hand" if entry.kind == "forgive" else entry.cause
            reason = "" if entry.kind == "forgive" and entry.reason == _FORGIVEN else f": {entry.reason}"
            lines.append(f"  {_stamp(entry.time)}{job}: {cause}{reason}")
            lines += [f"    | {line}" for line in about_node(node, entry.evidence)]
        until = (
            f"our jobs keep off it until {_stamp(known[node].expires)}" if node in known else "our jobs may go there"
        )
        lines.append(f"  {until}")
    if not chosen:
        lines += ["", "nothing is listed"]
    return "\n".join(lines)


def _open(cluster: str | None) -> tuple[ExclusionList, ClusterProfile]:
    """The list of the Slurm cluster that a profile means, and that profile."""
    profile = catalog.load_profile(cluster or this_cluster())
    place = list_folder(profile, folder.roots()[0])
    return ExclusionList(place, profile.name, find_slurm_name(profile)), profile


def _findings(count: int) -> str:
    return f"{count} finding{'s' * (count != 1)}"


def _expand(names: Sequence[str]) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(node for text in names for node in expand(text)))
    if not chosen:
        raise InputError("no node is named", hint="write them as node[02-03],node07")
    return chosen


def _refuse_long(reason: str) -> None:
    lines = len(reason.splitlines())
    if len(reason) > LONGEST_REASON or lines > 1:
        raise InputError(
            f"--reason has {len(reason)} characters in {lines} line{'s' * (lines != 1)}, at most "
            f"{LONGEST_REASON} in one line are kept",
            hint="say it in fewer words",
        )


def _unlisted(names: Sequence[str], nodes: ExclusionList) -> InputError:
    return InputError(
        f"nothing is listed of {fold(names)} on {nodes.shown}", hint="`pretrainctl nodes list --all` shows what is"
    )


def _entry(nodes: ExclusionList, node: str, kind: str, reason: str, now: float) -> ExclusionEntry:
    return ExclusionEntry(
        kind="forgive" if kind == "forgive" else "exclude",
        cluster=nodes.cluster,
        slurm_cluster=nodes.slurm_cluster,
        node=node,
        cause=PERSON,
        reason=reason,
        user=getpass.getuser(),
        time=now,
    )


def _push(nodes: ExclusionList) -> tuple[str, ...]:
    """Tell the jobs of this user's runs that wait; what went wrong with one is a note."""
    runs, unreadable = folder.all_runs()
    notes = [f"jobs of a run were not told, if it is yours: {error}" for error in unreadable]
    for run in runs:
        if not run.is_own() or list_of(run).path != nodes.path:
            continue
        try:
            slurm = reach_own(run)
            waiting = [job.job_id for job in slurm.queued(run.record.job_name) if job.is_waiting]
            if waiting:
                push(run, slurm, waiting)
                notes.append(f"told job {', '.join(map(str, waiting))} of {run.record.name}")
        except MissingError as error:  # the same for each run of that Slurm
            notes.append(f"jobs that wait were not told: {error}")
        except (PretrainctlError, OSError) as error:
            notes.append(f"the jobs of {run.record.name} were not told: {error}")
    return tuple(dict.fromkeys(notes))


def _view(node: str, kept: ListedNode | None, past: ListedNode | None, now: float) -> NodeView | None:
    """None where nothing was ever found of a node."""
    forgivings = [entry for entry in past.entries if entry.kind == "forgive"] if past is not None else []
    found = [entry for entry in past.entries if entry.kind == "exclude"] if past is not None else []
    newest = kept.newest if kept is not None else found[-1] if found else None
    if newest is None:
        return None
    last = forgivings[-1] if forgivings else None
    return NodeView(
        node=node,
        active=kept is not None and kept.expires > now,
        expires=kept.expires if kept is not None else newest.expires,
        count=kept.count if kept is not None else len(found),
        cause=newest.cause,
        reason=newest.reason,
        found=newest.time,
        run=newest.run,
        job_id=newest.job_id,
        user=newest.user,
        forgiven=last.time if last is not None else None,
        forgiven_by=last.user if last is not None else "",
        forgiven_for=last.reason if last is not None and last.reason != _FORGIVEN else "",
    )


def _minute(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M %z", time.localtime(moment))


def _stamp(moment: float) -> str:
    return time.strftime(_STAMP, time.localtime(moment))
