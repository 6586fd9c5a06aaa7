"""DeepSpeed: plan -> launch, with the reference trainer or a program that DeepSpeed runs in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pretrainctl.errors import InputError
from pretrainctl.frameworks.contract import RunIdentity
from pretrainctl.records.launch import (
    AddressRule,
    CheckpointLayout,
    Launch,
    LivenessRule,
    RecoveryRule,
    SrunShape,
)
from pretrainctl.records.training import (
    CheckpointSettings,
    DataSettings,
    DataSource,
    ModelShape,
    OptimizerSettings,
    ScheduleSettings,
    TrainingSettings,
)
from pretrainctl.schema import Plan, Recipe

__all__ = ["configuration", "launch", "model_shape", "refuse_removed_keys"]

_REMOVED = (
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
)
_REMOVED_ZERO = ("mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param")


def launch(plan: Plan, identity: RunIdentity) -> tuple[Launch, TrainingSettings | None, Mapping[str, Any]]:
    """The launch record, the trainer's settings (None for a program of one's own) and the DeepSpeed JSON."""
    recipe, profile, geometry = plan.recipe, plan.profile, plan.geometry
    directory = plan.checkpoint_directory(identity.run_dir)
    prequeued = _chain(plan) == "prequeued"
    program, resume_arguments = _program(recipe, identity, directory)
    jobs = recipe.chain.jobs or profile.chain.jobs
    record = Launch(
        run_name=plan.name,
        run_id=identity.run_id,
        job_name=identity.run_id,
        framework=recipe.framework,
        python=identity.python,
        program=program,
        resume_arguments=resume_arguments,
        environment=_environment(plan, identity),
        srun=SrunShape(
            nodes=geometry.nodes,
            tasks_per_node=geometry.tasks_per_node,
            cpus_per_task=plan.cpus_per_task,
            options=profile.tasks.srun_options,
        ),
        spares=geometry.spares,
        address=AddressRule(
            kind=profile.rendezvous.address,
            suffix=profile.rendezvous.suffix,
            port_base=profile.rendezvous.port_base,
            port_span=profile.rendezvous.port_span,
        ),
        checkpoint=CheckpointLayout(
            framework="deepspeed",
            directory=directory,
            zero_stage=recipe.training.zero_stage,
            precision=recipe.training.precision,
            world_size=geometry.data_parallel,
            model_parallel=geometry.model_parallel,
        ),
        chain=_chain(plan),
        chained_jobs=jobs - 1 if prequeued else 0,
        signal_lead=profile.signals.lead,
        target_steps=geometry.total_steps,
        tokens_per_step=geometry.tokens_per_step,
        liveness=LivenessRule(**profile.liveness.model_dump()),
        recovery=RecoveryRule(**recipe.recovery.model_dump()),
    )
    settings = None if recipe.program else _settings(plan, identity.run_dir, directory)
    return record, settings, configuration(plan)


def configuration(plan: Plan) -> dict[str, Any]:
    """The DeepSpeed JSON. What versions default differently is always said (clipping, printing)."""
    training, geometry = plan.recipe.training, plan.geometry
    config: dict[str, Any] = {
        "train_batch_size": geometry.global_batch,
        "train_micro_batch_size_per_gpu": geometry.micro_batch,
        "gradient_accumulation_steps": geometry.accumulation,
        "gradient_clipping": training.optimizer.clip,
        "steps_per_print": 10**9,
        "wall_clock_breakdown": False,
        "bf16": {"enabled": training.precision == "bf16"},
        "zero_optimization": {"stage": training.zero_stage},
    }
    refuse_removed_keys(config)
    return config


def refuse_removed_keys(config: Mapping[str, Any]) -> None:
    """InputError for a key that DeepSpeed dropped: since 0.19.8 each is an error on every rank at start."""
    found = [key for key in _REMOVED if key in config]
    zero = config.get("zero_optimization", {})
    found += [f"zero_optimization.{key}" for key in _REMOVED_ZERO if key in zero]
    if found:
        raise InputError(f"DeepSpeed 0.19.8 and newer refuse the configuration key {found[0]!r}", hint="leave it out")


def model_shape(recipe: Recipe) -> ModelShape:
    """The shape of a recipe's model as the trainer reads it."""
    return ModelShape(**recipe.model.model_dump())


def _chain(plan: Plan) -> Any:
    return plan.recipe.chain.strategy or plan.profile.chain.strategy


def _program(recipe: Recipe, identity: RunIdentity, checkpoints: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The argv of each task, and what is added to it on resume."""
    if recipe.program is None:
        training_file = identity.run_dir / "bundle" / "training.json"
        return (identity.training_python, "-m", "pretrainctl.trainer", str(training_file)), ()
    known = {
        "{run_dir}": str(identity.run_dir),
        "{checkpoint_dir}": str(checkpoints),
        "{python}": identity.training_python,
    }
    argv = tuple(_replace(argument, known) for argument in recipe.program.argv)
    return argv, tuple(_replace(argument, known) for argument in recipe.program.resume_arguments)


def _replace(text: str, known: Mapping[str, str]) -> str:
    # Not str.format: arguments may hold braces of their own, such as JSON.
    for name, value in known.items():
        text = text.replace(name, value)
    return text


def _environment(plan: Plan, identity: RunIdentity) -> dict[str, str]:
    """Variables of the training tasks: ours, then the profile's, then the recipe's, the last wins."""
    tracking = plan.recipe.tracking
    variables = {
        "OMP_NUM_THREADS": str(plan.cpus_per_task),
        "PYTHONUNBUFFERED": "1",
        "WANDB_MODE": "disabled" if tracking.wandb == "off" else tracking.wandb,
        "WANDB_RUN_ID": identity.run_id,
        "WANDB_RESUME": "allow",
    }
    if plan.gpus_per_node == 0:
        variables["DS_ACCELERATOR"] = "cpu"
    if tracking.wandb != "off":
        # Everything that wandb writes goes to the run folder: in $HOME it fills a quota.
        variables |= {
            "WANDB_NAME": plan.name,
            "WANDB_PROJECT": tracking.project,
            "WANDB_DIR": str(identity.run_dir),
            "WANDB_CACHE_DIR": str(identity.run_dir / "wandb" / "cache"),
            "WANDB_DATA_DIR": str(identity.run_dir / "wandb" / "data"),
            "WANDB_CONFIG_DIR": str(identity.run_dir / "wandb" / "config"),
        }
        variables |= {"WANDB_ENTITY": tracking.entity} if tracking.entity else {}
        variables |= {"WANDB_RUN_GROUP": tracking.group} if tracking.group else {}
    variables |= {name: variable.value for name, variable in plan.profile.environment.items()}
    return variables | plan.recipe.environment


def _settings(plan: Plan, run_dir: Path, checkpoints: Path) -> TrainingSettings:
    recipe, geometry = plan.recipe, plan.geometry
    optimizer, schedule = recipe.training.optimizer, recipe.training.schedule
    return TrainingSettings(
        model=model_shape(recipe),
        data=DataSettings(
            sources=tuple(DataSource(source.prefix, source.weight) for source in recipe.data.sources),
            sequence_length=recipe.data.sequence_length,
            seed=recipe.data.seed,
        ),
        optimizer=OptimizerSettings(
            lr=optimizer.lr,
            betas=optimizer.betas,
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            clip=optimizer.clip,
        ),
        schedule=ScheduleSettings(schedule.warmup_steps, schedule.min_lr_ratio),
        checkpoint=CheckpointSettings(checkpoints, recipe.checkpoint.every_steps, recipe.checkpoint.keep),
        precision=recipe.training.precision,
        zero_stage=recipe.training.zero_stage,
        total_steps=geometry.total_steps,
        global_batch=geometry.global_batch,
        micro_batch=geometry.micro_batch,
        init_seed=recipe.training.init_seed,
        deepspeed_config=run_dir / "bundle" / "deepspeed.json",
        log_every=recipe.training.log_every,
        threads=plan.cpus_per_task if plan.gpus_per_node == 0 else 0,
    )
