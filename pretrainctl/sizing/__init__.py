"""Arithmetic before node-hours are spent: parameters, FLOPs, batch geometry, checkpoint size, jobs."""

from pretrainctl.sizing.model import checkpoint_bytes, count_parameters, flops_per_token
from pretrainctl.sizing.run import batch_samples, choose_geometry, jobs_needed, steps_for_tokens

__all__ = [
    "batch_samples",
    "checkpoint_bytes",
    "choose_geometry",
    "count_parameters",
    "flops_per_token",
    "jobs_needed",
    "steps_for_tokens",
]
