"""Which queue a job goes to, by its nodes, its hours and what the user's allocation may use."""

from __future__ import annotations

from collections.abc import Sequence

from pretrainctl.errors import InputError
from pretrainctl.schema import ClusterProfile, Queue, Recipe
from pretrainctl.units import slurm_time

__all__ = ["check_chain", "choose_queue"]


def choose_queue(recipe: Recipe, profile: ClusterProfile, notes: list[str]) -> Queue:
    """The row that the recipe names, or the first production row that fits. What is unknown of it goes to `notes`."""
    resources = recipe.resources
    nodes = resources.nodes + resources.spares
    if resources.queue is not None:
        rows = [row for row in profile.queues if row.name == resources.queue]
        if not rows:
            known = ", ".join(row.name for row in profile.queues)
            raise InputError(f"{profile.name} has no queue {resources.queue!r}", hint=f"its queues: {known}")
    else:
        rows = [row for row in profile.queues if row.purpose == "production"]
    reasons, closed = [], []
    for row in rows:
        if not _open(row, profile):
            closed.append(row)
            continue
        excess = _too_much(row, nodes, resources.walltime)
        if excess is None:
            notes += [
                f"{what} of queue {row.name} on {profile.name} is unknown and was not checked"
                for what, value in (("max_nodes", row.max_nodes), ("max_walltime", row.max_walltime))
                if value == "unknown"
            ]
            return row
        key, reason = excess
        reasons.append(f"{row.name}: {reason} ({profile.source_of(row, key)})")
    if closed and not reasons and not profile.families:
        raise _families_not_said(profile, closed)
    yours = ", ".join(profile.families) or "none"
    reasons += [f"{row.name}: for the family {row.family}, yours: {yours}" for row in closed]
    others = [row for row in profile.queues if row not in rows and _open(row, profile)]
    fitting = [row for row in others if _too_much(row, nodes, resources.walltime) is None]
    hint = " or ".join(f"resources.queue={row.name} ({row.purpose})" for row in fitting)
    spares = ", resources.spares" if resources.spares else ""
    hint = f"{hint} takes it" if fitting else f"change resources.nodes{spares}, resources.walltime or resources.queue"
    if closed:
        families = ", ".join(sorted({str(row.family) for row in closed}))
        hint += f"; or say which queues your allocation may use: --set cluster.families='[NAME]' of {families}"
    raise InputError(
        f"no queue of {profile.name} takes {nodes} nodes"
        + (f" ({resources.nodes} and {resources.spares} spare)" if resources.spares else "")
        + f" for {slurm_time(resources.walltime)}: "
        + ("; ".join(reasons) or "it has no production queue"),
        hint=hint,
    )


def _open(row: Queue, profile: ClusterProfile) -> bool:
    return row.family is None or row.family in profile.families


def _families_not_said(profile: ClusterProfile, closed: Sequence[Queue]) -> InputError:
    rows = ", ".join(f"{row.name} ({row.family})" for row in closed)
    others = [f"resources.queue={row.name} ({row.purpose})" for row in profile.queues if row.family is None]
    return InputError(
        f"each of these queues of {profile.name} is for one kind of allocation, and the profile does not say of which "
        f"kind yours is: {rows} ({profile.source_of(closed[0], 'family')})",
        hint="say `families: [NAME]` in your profile, or --set cluster.families='[NAME]', with the name in brackets"
        + (f"; for every account: {', '.join(others)}" if others else ""),
    )


def _too_much(row: Queue, nodes: int, walltime: int) -> tuple[str, str] | None:
    """The limit that is passed, by its key, and how."""
    if nodes < row.min_nodes:
        return "min_nodes", f"{nodes} nodes, at least {row.min_nodes}"
    if isinstance(row.max_nodes, int) and nodes > row.max_nodes:
        return "max_nodes", f"{nodes} nodes, at most {row.max_nodes}"
    if isinstance(row.max_walltime, int) and walltime > row.max_walltime:
        return "max_walltime", f"{slurm_time(walltime)}, at most {slurm_time(row.max_walltime)}"
    return None


def check_chain(recipe: Recipe, profile: ClusterProfile, queue: Queue, notes: list[str], warnings: list[str]) -> None:
    """Refuse a way to the next job that the site does not allow, and say what is not known of it."""
    chain = recipe.chain.at(profile.chain)
    source = profile.source_of(profile.chain, "sbatch_inside")
    limit = (
        f"queue {queue.name} of {profile.name} takes at most {queue.max_jobs} job{'s' * (queue.max_jobs != 1)} of a "
        f"user ({profile.source_of(queue, 'max_jobs')})"
    )
    short = isinstance(queue.max_jobs, int) and chain.jobs > queue.max_jobs
    if chain.strategy == "inside":
        if chain.sbatch_inside == "no":
            raise InputError(
                f"chain.strategy inside: sbatch does not work inside jobs of {profile.name} ({source})",
                hint="use chain.strategy prequeued",
            )
        if queue.max_jobs == 1:
            warnings.append(
                f"{limit}: none waits behind a job, and the run stands still after each until `pretrainctl reconcile` "
                "queues the next; give it on a login node, as from cron"
            )
        elif short:
            notes.append(f"chain.jobs {chain.jobs}: {limit}, so the run keeps {queue.max_jobs} at once")
        if chain.sbatch_inside == "unknown" and recipe.chain.strategy is not None:
            notes.append(
                f"whether sbatch works inside jobs of {profile.name} is unknown: where it does not, "
                "the run ends with its first job"
            )
        return
    if short:
        raise InputError(f"chain.jobs {chain.jobs}: {limit}", hint="queue fewer; `pretrainctl reconcile` tops them up")
    if chain.jobs > 1 and queue.max_jobs == "unknown":
        notes.append(
            f"how many jobs of a user queue {queue.name} of {profile.name} takes is unknown and was not checked"
        )
    if chain.sbatch_inside == "unknown":
        notes.append(
            f"whether sbatch works inside jobs of {profile.name} is unknown, so {chain.jobs} jobs are queued at launch"
            + (", and each tries to queue the next ones" if chain.jobs > 1 else "")
        )
