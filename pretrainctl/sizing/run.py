"""The run in numbers: batch geometry, optimizer steps, jobs. Checked before the queue, not after it."""

from __future__ import annotations

import math

from pretrainctl.errors import InputError

__all__ = [
    "batch_samples",
    "choose_geometry",
    "jobs_needed",
    "save_interval",
    "save_seconds",
    "seconds_per_step",
    "steps_for_tokens",
    "steps_per_job",
]

_MOST_NODES = 20_000
"""Among which fitting numbers of nodes are looked for: no machine has more."""


def batch_samples(count: int, unit: str, sequence_length: int) -> int:
    """Samples of a batch in samples or tokens; InputError where tokens are no whole number of samples."""
    if unit == "samples":
        return count
    samples, rest = divmod(count, sequence_length)
    if rest:
        raise InputError(
            f"a global batch of {count} tokens is no whole number of samples of {sequence_length} tokens",
            hint="nearest: "
            + " or ".join(str(count * sequence_length) for count in (samples, samples + 1) if count)
            + " tokens",
        )
    return samples


def choose_geometry(
    global_batch: int, micro_batch: int, world_size: int, model_parallel: int = 1, tasks_per_node: int = 1
) -> tuple[int, int]:
    """Data-parallel ranks and accumulation: global_batch = micro_batch x accumulation x data-parallel ranks.

    InputError carries the numbers: ranks that make no whole replicas, a batch that no accumulation gives; its hint,
    the nearest batches and numbers of nodes that do.
    """
    replicas, rest = divmod(world_size, model_parallel)
    if rest or not replicas:
        raise InputError(
            f"{world_size} ranks are not a multiple of {model_parallel}, the ranks of one model replica",
            hint=f"use {_multiples(world_size, model_parallel)} ranks",
        )
    accumulation, rest = divmod(global_batch, micro_batch * replicas)
    if rest or not accumulation:
        nearest = max(1, accumulation)
        raise InputError(
            f"global batch {global_batch} != micro batch {micro_batch} x accumulation {nearest} x "
            f"{replicas} data-parallel ranks = {micro_batch * nearest * replicas}; "
            f"{global_batch} is not divisible by {micro_batch * replicas}",
            hint=f"use a global batch of {_multiples(global_batch, micro_batch * replicas)} samples, "
            + _fitting_nodes(global_batch, micro_batch, world_size // tasks_per_node, tasks_per_node, model_parallel),
        )
    return replicas, accumulation


def steps_for_tokens(tokens: int, tokens_per_step: int) -> int:
    """Optimizer steps to consume at least `tokens`."""
    return -(-tokens // tokens_per_step)


def steps_per_job(seconds_per_step: float, walltime: int, lead: int, start: float = 120.0) -> int:
    """Steps of one job of `walltime` seconds, from its start-up (`start` seconds, an assumption) to the signal `lead`
    seconds before its end; InputError where it has no time for one."""
    useful = walltime - lead - start
    if useful < seconds_per_step:
        raise InputError(
            f"a job of {walltime} s leaves no time to train: {start:g} s to start, {lead} s signal lead time",
            hint="ask for a longer walltime",
        )
    return int(useful // seconds_per_step)


def jobs_needed(
    total_steps: int, seconds_per_step: float, walltime: int, lead: int, start: float = 120.0
) -> tuple[int, float]:
    """Jobs of `walltime` seconds until `total_steps` are done, and how many seconds they hold their nodes together.

    Each job trains from its start-up (`start` seconds, an assumption) to the signal `lead` seconds before
    its end; the last one ends with its last step.
    """
    steps = steps_per_job(seconds_per_step, walltime, lead, start)
    jobs = -(-total_steps // steps)
    return jobs, (jobs - 1) * walltime + start + (total_steps - (jobs - 1) * steps) * seconds_per_step


def seconds_per_step(tokens_per_step: int, flops_per_token: float, gpus: int, gpu_flops: float) -> float:
    """Seconds of an optimizer step where each of `gpus` GPUs reaches `gpu_flops` operations a second."""
    return tokens_per_step * flops_per_token / (gpus * gpu_flops)


def save_seconds(size: int, nodes: int, node_rate: float, *, alone: int) -> float:
    """Seconds to write a checkpoint of `size` bytes at `node_rate` bytes a second and node.

    `alone` of its bytes are written by the first node without the others, all else by every node its share.
    """
    return (alone + (size - alone) / nodes) / node_rate


def save_interval(save_seconds: float, nodes: int, faults: float) -> float:
    """Seconds between two checkpoints that cost the least time in all, at `faults` a node and day.

    Young (1974) and Daly (2006), to first order: sqrt(2 w M), with w to write one and M between two faults.
    """
    return math.sqrt(2 * save_seconds * 86400 / (nodes * faults))


def _fitting_nodes(batch: int, micro_batch: int, nodes: int, tasks_per_node: int, model_parallel: int) -> str:
    """The three numbers of nodes nearest to `nodes` by which the batch divides, where there are any."""
    fitting = [
        count
        for count in range(1, min(_MOST_NODES, batch * model_parallel // (micro_batch * tasks_per_node)) + 1)
        if count * tasks_per_node % model_parallel == 0
        and batch % (micro_batch * count * tasks_per_node // model_parallel) == 0
    ]
    nearest = sorted(sorted(fitting, key=lambda count: abs(count - nodes))[:3])
    if not nearest:
        return f"or another micro_batch: with {micro_batch} no number of nodes divides {batch}"
    return f"or {' or '.join(map(str, nearest))} nodes, or another micro_batch"


def _multiples(near: int, of: int) -> str:
    below = near // of * of
    return f"{below} or {below + of}" if below else str(of)
