"""Arithmetic before node-hours are spent: parameters, FLOPs, memory, batch geometry, checkpoint size, jobs."""

from pretrainctl.sizing.memory import (
    activation_bytes,
    deepspeed_states,
    largest_layer,
    model_states,
    zero_paper_states,
)
from pretrainctl.sizing.model import checkpoint_bytes, count_parameters, flops_per_token
from pretrainctl.sizing.run import (
    batch_samples,
    choose_geometry,
    jobs_needed,
    save_interval,
    save_seconds,
    seconds_per_step,
    steps_for_tokens,
    steps_per_job,
)

__all__ = [
    "activation_bytes",
    "batch_samples",
    "checkpoint_bytes",
    "choose_geometry",
    "count_parameters",
    "deepspeed_states",
    "flops_per_token",
    "jobs_needed",
    "largest_layer",
    "model_states",
    "save_interval",
    "save_seconds",
    "seconds_per_step",
    "steps_for_tokens",
    "steps_per_job",
    "zero_paper_states",
]
