"""The fence: the newest attempt that passed its claim owns the run; an older one that comes back takes nothing.

A batch host that stood still, or was cut off, may go on after its job was ended and the next one trains.
"""

from __future__ import annotations

from pathlib import Path

from pretrainctl.errors import SupersededError
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import Fence

__all__ = ["hold", "raise_fence"]


def hold(run_dir: Path, attempt: int) -> None:
    """SupersededError where an attempt after this one has the run; OSError where the fence cannot be read."""
    fence = codec.read_if_whole(Fence, contract.fence_file(run_dir))
    if fence is not None and fence.attempt > attempt:
        raise SupersededError(f"attempt {fence.attempt} has the run", hint="nothing to do: see that attempt")


def raise_fence(run_dir: Path, attempt: int, restart: int) -> None:
    """Let nothing save that is older than this restart; as `hold`. After an OSError it can be called again."""
    hold(run_dir, attempt)
    codec.write(contract.fence_file(run_dir), Fence(attempt, restart))
