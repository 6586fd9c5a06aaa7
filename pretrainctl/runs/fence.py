"""The fence: the newest attempt that passed its claim owns the run; an older one that comes back takes nothing.

A batch host that stood still, or was cut off, may go on after its job was ended and the next one trains.
"""

from __future__ import annotations

from pathlib import Path

from pretrainctl.errors import LedgerError, SupersededError
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import Fence
from pretrainctl.runs import ledger

__all__ = ["hold", "raise_fence"]


def hold(run_dir: Path, attempt: int) -> None:
    """SupersededError where an attempt after this one has the run; LedgerError where the fence is torn or cannot be
    read, so that it is not known who has it."""
    fence = codec.read_if_there(Fence, contract.fence_file(run_dir))
    if fence is not None and fence.attempt > attempt:
        raise SupersededError(f"attempt {fence.attempt} has the run", hint="nothing to do: see that attempt")


def raise_fence(run_dir: Path, attempt: int, restart: int) -> None:
    """Let nothing save that is older than this restart; as `hold`, but the newest attempt replaces a torn fence. After
    an error it can be called again."""
    contract.control_dir(run_dir).mkdir(exist_ok=True)
    try:
        hold(run_dir, attempt)
    except LedgerError as error:
        if isinstance(error.__cause__, OSError) or ledger.newest_attempt(run_dir) > attempt:
            raise
    codec.write(contract.fence_file(run_dir), Fence(attempt, restart))
