"""DeepSpeed: plan -> launch, with the reference trainer or a program that DeepSpeed runs in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pretrainctl.errors import InputError
from pretrainctl.frameworks.contract import RunIdentity
from pretrainctl.frameworks.deepspeed_config import check_configuration, join_tuning
from pretrainctl.records.launch import (
    AddressRule,
    CheckpointLayout,
    HangRule,
    Launch,
    LivenessRule,
    NodeTestRule,
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

__all__ = ["checkpoint_layout", "configuration", "launch", "model_shape"]


def launch(plan: Plan, identity: RunIdentity) -> tuple[Launch, TrainingSettings | None, Mapping[str, Any]]:
    """The launch record, the trainer's settings (None for a program of one's own) and the DeepSpeed JSON."""
    recipe, profile, geometry = plan.recipe, plan.profile, plan.geometry
    if plan.blocked is not None:
        raise InputError(plan.blocked, hint="name a training program of your own in `program:`")
    directory = plan.checkpoint_directory(identity.run_dir)
    chain = plan.chain
    python = _training_python(plan, identity)
    program, resume_arguments = _program(recipe, identity, python, directory)
    ranks_per_task = 1 if profile.tasks.launcher == "direct" else geometry.tasks_per_node
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
            tasks_per_node=geometry.tasks_per_node // ranks_per_task,
            cpus_per_task=plan.cpus_per_task * ranks_per_task,
            options=profile.tasks.srun_options,
            ranks_per_task=ranks_per_task,
        ),
        spares=geometry.spares,
        address=AddressRule(
            kind=profile.rendezvous.address,
            suffix=profile.rendezvous.suffix,
            port_base=profile.rendezvous.port_base,
            port_span=profile.rendezvous.port_span,
            names=profile.rendezvous.names,
            one_node_local=profile.rendezvous.one_node == "localhost",
        ),
        checkpoint=checkpoint_layout(plan, directory),
        chain=chain.strategy,
        chained_jobs=chain.jobs - 1,
        tops_up=chain.strategy == "prequeued" and chain.sbatch_inside == "unknown",
        signal_lead=profile.signals.lead,
        target_steps=geometry.total_steps,
        tokens_per_step=geometry.tokens_per_step,
        liveness=LivenessRule(**profile.liveness.model_dump()),
        hang=HangRule(**profile.hang.model_dump(), announces=recipe.program is None or recipe.program.announces_phases),
        recovery=RecoveryRule(**recipe.recovery.model_dump()),
        node_test=_node_test(plan, python),
        container=_container(plan, identity, directory),
        torchrun=() if profile.tasks.launcher == "direct" else _torchrun(plan, python),
    )
    settings = None if recipe.program else _settings(plan, identity.run_dir, directory)
    return record, settings, configuration(plan)


def configuration(plan: Plan) -> dict[str, Any]:
    """The DeepSpeed JSON: what the plan decides, and the recipe's tuning beside it, checked.

    What versions default differently is always said (clipping, printing).
    """
    training, geometry = plan.recipe.training, plan.geometry
    decided: dict[str, Any] = {
        "train_batch_size": geometry.global_batch,
        "train_micro_batch_size_per_gpu": geometry.micro_batch,
        "gradient_accumulation_steps": geometry.accumulation,
        "gradient_clipping": training.optimizer.clip,
        "steps_per_print": 10**9,
        "wall_clock_breakdown": False,
        "bf16": {"enabled": training.precision == "bf16"},
        "zero_optimization": {"stage": training.zero_stage},
    }
    config = join_tuning(decided, plan.recipe.deepspeed.config)
    check_configuration(config, world_size=geometry.data_parallel, version=plan.recipe.deepspeed.version)
    return config


def checkpoint_layout(plan: Plan, directory: Path) -> CheckpointLayout:
    """What a complete checkpoint of this plan is made of."""
    return CheckpointLayout(
        framework="deepspeed",
        directory=directory,
        zero_stage=plan.recipe.training.zero_stage,
        precision=plan.recipe.training.precision,
        world_size=plan.geometry.data_parallel,
        model_parallel=plan.geometry.model_parallel,
        trainer_state=plan.recipe.program is None,
    )


def model_shape(recipe: Recipe) -> ModelShape:
    """The shape of a recipe's model as the trainer reads it: that of one expert, where there are several."""
    return ModelShape(**recipe.model.model_dump(exclude={"experts"}))


def _node_test(plan: Plan, python: str) -> NodeTestRule:
    seconds = plan.recipe.node_test or plan.profile.node_test
    return NodeTestRule(0.0 if seconds == "off" else float(seconds), plan.gpus_per_node, python)


def _training_python(plan: Plan, identity: RunIdentity) -> str:
    """The interpreter of the ranks; inside an image it is the image's."""
    container, chosen = plan.profile.container, plan.profile.python.training
    if container is not None and container.image is not None:
        return str(chosen or "python3")
    return identity.training_python


def _container(plan: Plan, identity: RunIdentity, checkpoints: Path) -> tuple[str, ...]:
    """The argv that enters the image, with all that the ranks read and write bound to where it lies outside."""
    container = plan.profile.container
    if container is None or container.image is None:
        return ()
    data = [] if plan.recipe.program else [str(source.prefix.parent) for source in plan.recipe.data.sources]
    named = dict.fromkeys([str(identity.run_dir), str(checkpoints), *data])
    paths = [path for path in named if not any(path.startswith(f"{other}/") for other in named)]
    for path in paths:
        if ":" in path or "," in path:
            raise InputError(
                f"{path!r} cannot be bound into a container: {container.binary} reads `:` and `,` in it",
                hint="use a path without them",
            )
    binds = [f"--bind={path}" for path in (*paths, *container.binds)]
    return (container.binary, "exec", *container.options, *binds, str(container.image))


def _torchrun(plan: Plan, python: str) -> tuple[str, ...]:
    """The argv of one torchrun a node, up to what only a task knows. Static: ranks follow the order of the nodes."""
    return (
        *(python, "-m", "torch.distributed.run"),
        f"--nnodes={plan.geometry.nodes}",
        f"--nproc-per-node={plan.geometry.tasks_per_node}",
        "--max-restarts=0",  # the attempt decides what comes after a failure
        "--no-python",
    )


def _program(
    recipe: Recipe, identity: RunIdentity, python: str, checkpoints: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The argv of each rank, and what is added to it on resume."""
    if recipe.program is None:
        training_file = identity.run_dir / "bundle" / "training.json"
        return (python, "-m", "pretrainctl.trainer", str(training_file)), ()
    known = {
        "{run_dir}": str(identity.run_dir),
        "{checkpoint_dir}": str(checkpoints),
        "{python}": python,
    }
    argv = tuple(_replace(argument, known) for argument in recipe.program.argv)
    return argv, tuple(_replace(argument, known) for argument in recipe.program.resume_arguments)


def _replace(text: str, known: Mapping[str, str]) -> str:
    # Not str.format: arguments may hold braces of their own, such as JSON.
    for name, value in known.items():
        text = text.replace(name, value)
    return text


def _environment(plan: Plan, identity: RunIdentity) -> dict[str, str]:
    """Variables of the training tasks: ours, then the site's, then the recipe's, the last wins."""
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
    variables |= {name: variable.value for name, variable in plan.environment.items()}
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
        recompute=recipe.training.recompute,
    )
