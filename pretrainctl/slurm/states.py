"""The one table of Slurm job states, and what exit codes say."""

from __future__ import annotations

import re

from pretrainctl.records.job import JobClass, StateMeaning

__all__ = ["STATES", "ending_signal", "read_exit", "read_state"]

STATES: dict[str, tuple[JobClass, bool | None]] = {
    # state: (what it means for a run, may the job still run or start)
    "PENDING": (JobClass.PENDING, True),
    "EXPEDITING": (JobClass.PENDING, True),
    "CONFIGURING": (JobClass.RUNNING, True),
    "POWER_UP_NODE": (JobClass.RUNNING, True),
    "RUNNING": (JobClass.RUNNING, True),
    "RESIZING": (JobClass.RUNNING, True),
    "SIGNALING": (JobClass.RUNNING, True),
    "STOPPED": (JobClass.RUNNING, True),
    "SUSPENDED": (JobClass.RUNNING, True),
    "COMPLETING": (JobClass.ENDING, True),
    "STAGE_OUT": (JobClass.ENDING, True),
    "COMPLETED": (JobClass.FINISHED, False),
    "FAILED": (JobClass.FAILED, False),
    "TIMEOUT": (JobClass.TIME_LIMIT, False),
    "PREEMPTED": (JobClass.PREEMPTED, False),
    "NODE_FAIL": (JobClass.NODE_FAILURE, False),
    "BOOT_FAIL": (JobClass.BOOT_FAILURE, False),
    "OUT_OF_MEMORY": (JobClass.HOST_OOM, False),
    "CANCELLED": (JobClass.CANCELLED, False),
    "DEADLINE": (JobClass.DEADLINE, False),
    # This start is over, but the job itself is in the queue again, or about to be.
    "REQUEUED": (JobClass.REQUEUED, None),
    "REQUEUE_FED": (JobClass.REQUEUED, None),
    "LAUNCH_FAILED": (JobClass.LAUNCH_FAILURE, None),
    "RECONFIG_FAIL": (JobClass.LAUNCH_FAILURE, None),
    # In the queue until a person releases it.
    "REQUEUE_HOLD": (JobClass.HELD, True),
    "RESV_DEL_HOLD": (JobClass.HELD, True),
    "SPECIAL_EXIT": (JobClass.HELD, True),
    "REVOKED": (JobClass.ELSEWHERE, None),
}

_CANCELLED_BY = re.compile(r"CANCELLED by (\d+)", re.IGNORECASE)
_ROOT = 0
_LAST_SIGNAL = 64


def read_state(text: str, owner_uid: int | None = None) -> StateMeaning:
    """Read a state as squeue, sacct or scontrol printed it, cut with `+` or followed by a uid; never raises.

    `owner_uid` is whose job it is: with it, `CANCELLED by <uid>` tells the owner from an administrator. A
    state that is not in the table, or a cut one with several meanings, is UNKNOWN, neither alive nor dead.
    """
    shown = text.strip()
    cancelled = _CANCELLED_BY.fullmatch(shown)
    if cancelled:
        uid = int(cancelled[1])
        return StateMeaning(shown, _cancelled_by(uid, owner_uid), alive=False, cancelled_by=uid)
    name = shown.upper()
    if name.endswith("+"):
        fits = {meaning for state, meaning in STATES.items() if state.startswith(name[:-1])}
    else:
        fits = {STATES[name]} if name in STATES else set()
    if len(fits) != 1:
        return StateMeaning(shown, JobClass.UNKNOWN, alive=None)
    job_class, alive = fits.pop()
    return StateMeaning(shown, job_class, alive)


def _cancelled_by(uid: int, owner_uid: int | None) -> JobClass:
    # The owner first: on a machine of one's own the owner is root.
    if uid == owner_uid:
        return JobClass.USER_CANCEL
    if uid == _ROOT or owner_uid is not None:
        return JobClass.ADMIN_CANCEL
    return JobClass.CANCELLED


def read_exit(text: str) -> tuple[int, int]:
    """`code:signal` of an ExitCode field; (0, 0) where the field is empty. ValueError where it is neither."""
    if not text.strip():
        return 0, 0
    code, _, number = text.strip().partition(":")
    return int(code), int(number or 0)


def ending_signal(exit_code: int, exit_signal: int) -> int | None:
    """The signal that ended a program, from Slurm (`0:15`) or from a shell (`137:0` = 128 + 9); None = none.

    Slurm writes 125 for out of memory there, which is no signal.
    """
    if 0 < exit_signal <= _LAST_SIGNAL:
        return exit_signal
    if exit_signal == 0 and 128 < exit_code <= 128 + _LAST_SIGNAL:
        return exit_code - 128
    return None
