"""Requests to the training program, through one small file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from pretrainctl.errors import LedgerError
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import Request

__all__ = ["BATCH_HOST_LOST", "ask", "ask_again", "withdraw"]

BATCH_HOST_LOST = "batch_host_lost"
"""The reason of a request by those who took the batch host for lost."""


def ask(run_dir: Path, action: Literal["save", "save_and_exit"], attempt: int, reason: str) -> Request:
    """Write a request that the ranks of `attempt` obey at the next step boundary, and return it."""
    contract.control_dir(run_dir).mkdir(exist_ok=True)
    path = contract.request_file(run_dir)
    try:
        number = codec.read(Request, path).number + 1 if path.exists() else 1
    except LedgerError:
        number = int(time.time())  # an unreadable request is replaced; its number must still be passed
    request = Request(action=action, attempt=attempt, reason=reason, number=number, time=time.time())
    codec.write(path, request)
    return request


def ask_again(run_dir: Path, action: Literal["save", "save_and_exit"], attempt: int, reason: str) -> bool:
    """Write the request only where the one that stands there is another one, or cannot be read; whether it did."""
    standing = codec.read_if_whole(Request, contract.request_file(run_dir))
    if standing is not None and (standing.action, standing.attempt) == (action, attempt):
        return False
    ask(run_dir, action, attempt, reason)
    return True


def withdraw(run_dir: Path, attempt: int, reason: str) -> None:
    """Take back the request to `attempt` that was made for this reason: its next start would obey it too."""
    path = contract.request_file(run_dir)
    standing = codec.read_if_whole(Request, path)
    if standing is not None and (standing.attempt, standing.reason) == (attempt, reason):
        path.unlink(missing_ok=True)
