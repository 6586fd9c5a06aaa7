"""The DeepSpeed JSON checked before the queue: batch rule, keys that were removed, keys that do not exist.

DeepSpeed takes unknown keys at the top in silence, and refuses the others only on every rank at start. Keys are
those of its 0.19.8 (`runtime/config.py`, `runtime/zero/config.py`, `runtime/precision_config.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from pretrainctl.errors import InputError

__all__ = ["KNOWN", "KNOWN_BF16", "KNOWN_ZERO", "REMOVED", "REMOVED_ZERO", "check_configuration", "join_tuning"]

REMOVED = frozenset(
    {
        "amp",
        "compression_training",
        "curriculum_learning",
        "eigenvalue",
        "elasticity",
        "graph_harvesting",
        "nebula",
        "progressive_layer_drop",
        "quantize_training",
        "sparse_attention",
        "sparse_gradients",
    }
)
"""Keys that 0.19.8 and newer refuse."""
REMOVED_ZERO = frozenset({"mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param"})
"""The same inside `zero_optimization`."""
_REMOVED_IN = (0, 19, 8)
_KNOWN = """
activation_checkpointing aio bf16 checkpoint comet comms_logger communication_data_type compile csv_monitor
data_efficiency data_parallel_size data_types dataloader_drop_last disable_allgather disable_python_gc dump_state
expert_parallel flops_profiler fp16 gradient_accumulation_steps gradient_allreduce_op gradient_clipping
gradient_predivide_factor hybrid_engine legacy_fusion log_level managed_gradient_accumulation memory_breakdown
optimizer pipeline prescale_gradients scheduler seq_parallel_communication_data_type sequence_parallel_size
steps_per_print tensor_parallel tensorboard timers torch_autocast train_batch_size train_micro_batch_size_per_gpu
use_data_before_expert_parallelism vocabulary_size wall_clock_breakdown wandb weight_quantization
zero_allow_untested_optimizer zero_force_ds_cpu_optimizer zero_optimization
"""
KNOWN = frozenset(_KNOWN.split())
"""Keys at the top."""
_KNOWN_ZERO = """
allgather_bucket_size allgather_partitions compute_grad_norm contiguous_gradients cpu_offload cpu_offload_param
cpu_offload_use_pin_memory elastic_checkpoint enable_sanity_checks ignore_unused_parameters leaf_module legacy_stage1
load_from_fp32_weights log_trace_cache_warnings memory_efficient_linear offload_optimizer offload_param overlap_comm
override_module_apply parameter_alignment pipeline_loading_checkpoint reduce_bucket_size reduce_scatter
round_robin_gradients save_muon_momentum_buffer_in_memory stage stage3_allgather_sequential
stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save stage3_max_live_parameters
stage3_max_reuse_distance stage3_model_persistence_threshold stage3_module_granularity_threshold
stage3_param_persistence_threshold stage3_prefetch_bucket_size stage3_use_all_reduce_for_fetch_params sub_group_size
use_multi_rank_bucket_allreduce zenflow zero_hpz_partition_size zero_quantized_gradients
zero_quantized_nontrainable_weights zero_quantized_weights
"""
KNOWN_ZERO = frozenset(_KNOWN_ZERO.split())
"""Keys of `zero_optimization`."""
KNOWN_BF16 = frozenset(
    {
        "bf16_master_weights_and_grads",
        "bf16_optimizer_states",
        "check_grad_overflow",
        "enabled",
        "immediate_grad_update",
    }
)
"""Keys of `bf16`."""
_OWNED = {
    "optimizer": "training.optimizer",
    "scheduler": "training.schedule",
    "fp16": "training.precision",
}


def join_tuning(decided: Mapping[str, Any], tuning: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """What a plan decides with the recipe's tuning beside it; InputError where both say something of one key."""
    joined = dict(decided)
    for key, value in tuning.items():
        if key in _OWNED and not where:
            raise InputError(
                f"deepspeed.config.{key}: the recipe decides that in {_OWNED[key]}", hint="leave it out here"
            )
        mine = decided.get(key)
        if isinstance(mine, Mapping) and isinstance(value, Mapping):
            joined[key] = join_tuning(mine, value, f"{where}{key}.")
        elif key in decided and value != mine:
            raise InputError(
                f"deepspeed.config.{where}{key} is {value!r}, and the recipe's other sections make it {mine!r}",
                hint="leave it out of deepspeed.config, or change those sections",
            )
        else:
            joined[key] = value
    return joined


def check_configuration(config: Mapping[str, Any], *, world_size: int, version: str | None = None) -> None:
    """InputError for a batch that does not divide among `world_size` data-parallel ranks, and for keys that
    `version` (None: the newest known) removed or never had. Each costs every rank its start otherwise."""
    batch, micro, accumulation = (
        config["train_batch_size"],
        config["train_micro_batch_size_per_gpu"],
        config["gradient_accumulation_steps"],
    )
    if batch != micro * accumulation * world_size:
        raise InputError(
            f"train_batch_size {batch} != micro batch {micro} x accumulation {accumulation} x {world_size} ranks",
            hint="DeepSpeed asserts this on every rank at start",
        )
    _check_replicas(config, world_size)
    zero = config.get("zero_optimization", {})
    removed = version is None or _number(version) >= _REMOVED_IN
    for place, keys, gone, known in (
        ("", config, REMOVED, KNOWN),
        ("zero_optimization.", zero, REMOVED_ZERO, KNOWN_ZERO),
        ("bf16.", config.get("bf16", {}), frozenset(), KNOWN_BF16),
    ):
        if not isinstance(keys, Mapping):
            raise InputError(f"deepspeed.config.{place.rstrip('.')} must hold keys, not {keys!r}")
        for key in keys:
            if key in gone and removed:
                raise InputError(
                    f"DeepSpeed 0.19.8 and newer refuse the configuration key {place + key!r}",
                    hint="leave it out, or say which older version is installed in deepspeed.version",
                )
            if key not in known and key not in gone:
                raise InputError(f"DeepSpeed has no configuration key {place + key!r}", hint=_near(key, known))


def _check_replicas(config: Mapping[str, Any], world_size: int) -> None:
    """InputError for keys by which several ranks share a sample, for groups that the ranks do not fill, and for keys
    that another stage would need.

    DeepSpeed 0.19.8: `runtime/config.py` divides the ranks by sequence_parallel_size before it asserts the batch rule,
    `utils/groups.py` asserts whole groups; its page on the configuration JSON says which stages offload what.
    """
    for key, inner, plain in (
        ("sequence_parallel_size", None, (1,)),
        ("data_parallel_size", None, (world_size,)),
        ("tensor_parallel", "autotp_size", (0, 1)),
        ("expert_parallel", "autoep_size", (0, 1)),
    ):
        value = config.get(key, plain[0])
        if inner is not None:
            value = value.get(inner, plain[0]) if isinstance(value, Mapping) else plain[0]
        if value not in plain:
            name = f"{key}.{inner}" if inner else key
            raise InputError(
                f"deepspeed.config.{name} {value!r}: the plan has {world_size} data-parallel ranks, each with samples "
                "of its own, and DeepSpeed would count fewer",
                hint="leave it out: replicas of several ranks are not planned",
            )
    zero = config.get("zero_optimization", {})
    if not isinstance(zero, Mapping):
        return
    group = zero.get("zero_hpz_partition_size", 1)
    if isinstance(group, int) and group > 1 and world_size % min(group, world_size):
        raise InputError(
            f"deepspeed.config.zero_optimization.zero_hpz_partition_size {group}: {world_size} ranks make no whole "
            "groups of it",
            hint="use the ranks of a node",
        )
    for key, least in (("offload_param", 3), ("zero_hpz_partition_size", 3), ("offload_optimizer", 1)):
        value = zero.get(key)
        used = value.get("device") not in (None, "none") if isinstance(value, Mapping) else value not in (None, 0, 1)
        if zero.get("stage", 0) < least and used:
            raise InputError(
                f"deepspeed.config.zero_optimization.{key} is for ZeRO stage {least}"
                + (" and above" if key == "offload_optimizer" else "")
                + f", and training.zero_stage is {zero.get('stage', 0)}",
                hint="leave it out, or set training.zero_stage",
            )


def _number(version: str) -> tuple[int, ...]:
    parts = tuple(int(part) for part in version.split("."))
    return parts + (0,) * (3 - len(parts))


def _near(key: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "see its page on the configuration JSON"
