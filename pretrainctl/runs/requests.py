"""Requests to the training program, through one small file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from pretrainctl.errors import LedgerError
from pretrainctl.records import codec, contract
from pretrainctl.records.contract import Request

__all__ = ["ask", "ask_again"]


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
