"""DeepSpeed around the model: joining the ranks, the configuration, one optimizer step."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import deepspeed
import torch
import torch.distributed as dist

from pretrainctl.errors import InputError, MissingError
from pretrainctl.records.training import TrainingSettings
from pretrainctl.trainer.model import Decoder

__all__ = ["Engine", "Ranks", "configuration", "join", "learning_rate"]


_RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Ranks:
    """This rank, how many there are, and the device it computes on."""

    rank: int
    world_size: int
    device: torch.device

    def total(self, *values: float) -> list[float]:
        """Sum of each value over all ranks, the same on each rank; a barrier too."""
        shared = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(shared)
        return [float(value) for value in shared.tolist()]

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.total(0.0)


def join() -> Ranks:
    """Meet the other ranks as the environment says: gloo on CPU, NCCL on GPU, DEEPSPEED_TIMEOUT minutes (10)."""
    absent = [name for name in _RANK_VARIABLES if name not in os.environ]
    if absent:
        raise MissingError(
            f"the environment variable {absent[0]} is not set",
            hint=f"start each rank with {' '.join(_RANK_VARIABLES)}",
        )
    gpu = torch.cuda.is_available()
    if gpu and torch.cuda.device_count() == 1:
        os.environ["LOCAL_RANK"] = "0"  # Slurm bound one GPU to this task: the only one it sees is number 0
    minutes = float(os.environ.get("DEEPSPEED_TIMEOUT", "10"))
    deepspeed.init_distributed(
        "nccl" if gpu else "gloo", auto_mpi_discovery=False, verbose=False, timeout=timedelta(minutes=minutes)
    )
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    return Ranks(dist.get_rank(), dist.get_world_size(), device)


def configuration(settings: TrainingSettings, world_size: int) -> dict[str, Any]:
    """The DeepSpeed configuration: the file's tuning, completed by what the settings decide.

    InputError where the file says otherwise than the settings, or configures what the trainer owns.
    """
    try:
        given = json.loads(settings.deepspeed_config.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingError(f"{settings.deepspeed_config}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{settings.deepspeed_config} is no JSON: {error}") from error
    taken = settings.micro_batch * world_size
    if settings.global_batch % taken:
        raise InputError(
            f"a global batch of {settings.global_batch} does not divide into {world_size} ranks x "
            f"{settings.micro_batch} samples",
            hint="choose global_batch as a multiple of micro_batch x ranks",
        )
    for owned in ("optimizer", "scheduler", "fp16", "amp"):
        if owned in given:
            raise InputError(f"{settings.deepspeed_config}: {owned!r} is decided by the training settings; remove it")
    decided: dict[str, Any] = {
        "train_batch_size": settings.global_batch,
        "train_micro_batch_size_per_gpu": settings.micro_batch,
        "gradient_accumulation_steps": settings.global_batch // taken,
        "gradient_clipping": settings.optimizer.clip,  # DeepSpeed 0.19 clips to 1.0 where nothing is said
        "bf16": {"enabled": settings.precision == "bf16"},
        "zero_optimization": {"stage": settings.zero_stage},
    }
    return _joined(given, decided, settings.deepspeed_config.name)


def _joined(given: Mapping[str, Any], decided: Mapping[str, Any], where: str) -> dict[str, Any]:
    joined = dict(given)
    for key, value in decided.items():
        if isinstance(value, dict):
            joined[key] = _joined(given.get(key, {}), value, f"{where}: {key}")
        elif key in given and given[key] != value:
            raise InputError(f"{where}: {key} is {given[key]!r}, but the training settings say {value!r}")
        else:
            joined[key] = value
    return joined


def learning_rate(settings: TrainingSettings, step: int) -> float:
    """Learning rate of optimizer step `step` (from 1): a function of the step, so nothing needs restoring."""
    peak, warmup = settings.optimizer.lr, settings.schedule.warmup_steps
    if step <= warmup:
        return peak * step / warmup
    progress = (step - warmup) / max(1, settings.total_steps - warmup)
    floor = settings.schedule.min_lr_ratio
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def _model(settings: TrainingSettings, config: dict[str, Any]) -> Decoder:
    """The model with its first weights. With ZeRO 3 no rank ever holds more of it than its share and one matrix."""
    if settings.zero_stage < 3:
        return Decoder(settings.model, settings.init_seed, recompute=settings.recompute)
    with deepspeed.zero.Init(config_dict_or_path=config):
        return Decoder(
            settings.model,
            settings.init_seed,
            recompute=settings.recompute,
            whole=lambda parameter: deepspeed.zero.GatheredParameters([parameter], modifier_rank=0),
        )


class Engine:
    """The model under DeepSpeed, ready to train."""

    def __init__(self, settings: TrainingSettings, ranks: Ranks) -> None:
        config = configuration(settings, ranks.world_size)
        self._settings, self._ranks = settings, ranks
        model = _model(settings, config)
        matrices = [p for name, p in model.named_parameters() if not name.endswith("norm.weight")]
        norms = [p for name, p in model.named_parameters() if name.endswith("norm.weight")]
        groups = [
            {"params": matrices, "weight_decay": settings.optimizer.weight_decay},
            {"params": norms, "weight_decay": 0.0},
        ]
        # torch's own AdamW: DeepSpeed's would be compiled at first use. On GPU its fused form.
        optimizer = torch.optim.AdamW(
            groups,
            lr=settings.optimizer.lr,
            betas=(settings.optimizer.betas[0], settings.optimizer.betas[1]),
            eps=settings.optimizer.eps,
            fused=ranks.device.type == "cuda",
        )
        self.deepspeed, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        self._steps_before = max(self._counted(), default=0)

    def step(self, number: int, batches: list[torch.Tensor]) -> tuple[float, float]:
        """Optimizer step `number` (from 1) over this rank's micro-batches; (own mean loss, global gradient norm).

        The norm is that before clipping; NaN where DeepSpeed left the step out because of an overflow.
        """
        rate = learning_rate(self._settings, number)
        for group in self.deepspeed.optimizer.param_groups:
            group["lr"] = rate
        losses, norm = [], None
        for batch in batches:
            loss = self.deepspeed(batch.to(self._ranks.device))
            self.deepspeed.backward(loss)
            losses.append(loss.detach())
            if len(losses) == len(batches) and self._settings.zero_stage == 0:
                norm = self._plain_norm()
            self.deepspeed.step()
        if not self.deepspeed.was_step_applied():
            norm = math.nan
        elif norm is None:
            norm = float(self.deepspeed.get_global_grad_norm())
        return float(torch.stack(losses).mean()), norm

    def optimizer_steps(self) -> set[int]:
        """Steps that this rank's share of AdamW's state has done: one number, unless it was put together.

        Where DeepSpeed 0.19.8 keeps them: without ZeRO in torch's optimizer itself or the one that its wrapper for bf16
        holds, with ZeRO 1 to 3 in the one that works on this rank's flat partitions; `step` of each parameter's state.
        Some of them make that state by a step of zeros (bf16 without ZeRO), which is not counted here.
        """
        return {step - self._steps_before for step in self._counted()}

    def holds_nan(self) -> bool:
        """Whether a weight is NaN, or anything of AdamW's state, of what this rank holds: the first step would be."""
        optimizer = getattr(self.deepspeed.optimizer, "optimizer", self.deepspeed.optimizer)
        held = [*self.deepspeed.module.parameters()]
        held += [parameter for group in optimizer.param_groups for parameter in group["params"]]
        held += [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
        # aminmax makes no copy of a tensor, and NaN is the least and the greatest where there is one.
        return any(bool(torch.aminmax(one.detach())[0].isnan()) for one in held if one.numel())

    def _counted(self) -> set[int]:
        optimizer = getattr(self.deepspeed.optimizer, "optimizer", self.deepspeed.optimizer)
        return {int(state["step"]) for state in optimizer.state.values() if "step" in state}

    def _plain_norm(self) -> float | None:
        """Without ZeRO in fp32 DeepSpeed tells no norm; every rank holds all averaged gradients then."""
        if self._settings.precision != "fp32":
            return None
        gradients = [p.grad for p in self.deepspeed.module.parameters() if p.grad is not None]
        return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])))
