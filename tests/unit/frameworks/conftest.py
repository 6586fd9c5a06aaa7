"""Checkpoint tags as DeepSpeed lays them out, made of real torch archives."""

from __future__ import annotations

import functools
import io
from collections.abc import Collection
from pathlib import Path

import pytest
import torch

from pretrainctl.records.launch import CheckpointLayout


@functools.cache
def model_bytes(data_ranks: int, slices: int = 1) -> bytes:
    """A model file as `_common_checkpoint_state` fills it, as far as it matters here."""
    state = {
        "module": {"weight": torch.arange(64, dtype=torch.float32)},
        "global_steps": 7,
        "dp_world_size": data_ranks,
        "mp_world_size": slices,
        "ds_config": {"train_batch_size": 8},
    }
    return torch_bytes(state)


@functools.cache
def optimizer_bytes(numbers: int = 64) -> bytes:
    return torch_bytes({"optimizer_state_dict": {"fp32": torch.zeros(numbers), "exp_avg": torch.ones(8)}})


def torch_bytes(state: object, *, zipped: bool = True) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


class Tree:
    """A checkpoint directory under construction."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def layout(self, **changes) -> CheckpointLayout:
        values = {"zero_stage": 1, "precision": "bf16", "world_size": 4} | changes
        return CheckpointLayout("deepspeed", self.directory, **values)

    def save(
        self,
        step: int,
        *,
        ranks: int = 4,
        slices: int = 1,
        stage: int = 1,
        bf16: bool = True,
        model: bool = True,
        without: Collection[int] = (),
        recorded: int | None = None,
    ) -> Path:
        """A tag of a run with `ranks` data-parallel ranks; those in `without` wrote nothing."""
        tag = self.directory / f"global_step{step}"
        tag.mkdir()
        prefix = "bf16_" if bf16 else ""
        content = model_bytes(recorded or ranks, slices)
        for index in range(slices):
            if model and stage < 3:
                (tag / f"mp_rank_{index:02d}_model_states.pt").write_bytes(content)
            for rank in range(ranks):
                if rank in without:
                    continue
                if model and stage == 3:
                    (tag / f"zero_pp_rank_{rank}_mp_rank_{index:02d}_model_states.pt").write_bytes(content)
                if stage > 0:
                    name = f"{prefix}zero_pp_rank_{rank}_mp_rank_{index:02d}_optim_states.pt"
                    (tag / name).write_bytes(optimizer_bytes())
        return tag

    def point(self, text: str) -> None:
        (self.directory / "latest").write_text(text)

    def listing(self) -> dict[str, bytes | None]:
        """Every path below, with the bytes of files: what must not change."""
        return {
            str(path.relative_to(self.directory)): path.read_bytes() if path.is_file() else None
            for path in sorted(self.directory.rglob("*"))
        }


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "checkpoints")
