"""The witness: on another node, it ends a job whose batch host is gone, so that the chained job starts.

`--no-kill` keeps a job of several nodes alive when any of them dies, the batch host too: without the attempt nobody
would be in charge until the time limit (seen on Slurm 22.05: the job stays RUNNING, less that node).
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pretrainctl.errors import PretrainctlError, SlurmError
from pretrainctl.liveness.beat import TOKEN_VARIABLE, ask
from pretrainctl.records import contract
from pretrainctl.records.run import AttemptRecord
from pretrainctl.recovery.policies import FailureClass
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.requests import BATCH_HOST_LOST, ask_again
from pretrainctl.runs.state import AttemptState, fold
from pretrainctl.slurm.client import Slurm
from pretrainctl.workflows.attempt.patience import tell_fault
from pretrainctl.workflows.exclusions import add_found, found_now, list_of, push
from pretrainctl.workflows.look_back import steps_of

__all__ = ["end_headless_job", "take_back", "witness"]

_TURN = 4.0
"""Seconds between two witnesses."""
_PATIENCE = 1800.0
"""Seconds to go on trying where the run folder or Slurm does not answer."""
_LONGEST_PAUSE = 30.0
_END_IS_TOLD = 30.0
"""Seconds in which Slurm knows that the batch script of an attempt which has ended is over: a second, where its batch
host can say so, and 15 more after a try that the controller did not take."""
_LAST_TRY = 1.0
"""Seconds that the direct try right before the cancel may take: a host that is back answers in milliseconds."""
_LISTING = 2.0
"""Seconds that an entry of the node exclusion list may take."""
_SAVE_PATIENCE = 180.0
"""Seconds that ranks which train without an attempt may take to save."""


def witness(run_dir: Path, number: int, host: str, port: int, how: str, *, turn: int) -> None:
    """End the job of attempt `number` where its batch host, whose address is `host`:`port`, is really gone.

    Called on each node that looks out, of which each later one, by its `turn` from 0, only acts where those before it
    did not. A loss is believed only where the attempt does not answer now, Slurm still says that the job runs, and the
    run folder can be written: a file system that hangs silences a batch host too. Where the attempt has ended, Slurm
    has the time that it takes to hear of it.
    """
    me = os.environ.get("SLURMD_NODENAME", "")
    token = os.environ.get(TOKEN_VARIABLE, "")

    def is_there(timeout: float) -> bool:
        return ask(host, port, token, timeout=timeout) is None

    deadline = time.monotonic() + _PATIENCE
    pause = 1.0
    tried = False
    time.sleep(_TURN * turn)
    while time.monotonic() < deadline:
        try:
            run = RunFolder(run_dir)
            wait = run.launch().liveness.silent_after / 2
            record = next(attempt for attempt in run.attempts() if attempt.attempt == number)
            slurm = Slurm()
            if is_there(wait):
                if tried:
                    take_back(run, record, slurm)
                _say(run_dir, number, me, f"{how}: the attempt is there")
                return
            known = _state(run, record)
            if known is not None and known.ended and not _runs_on(slurm, record):
                return
            last = functools.partial(is_there, min(wait, _LAST_TRY))
            again, tried = tried, True
            done = end_headless_job(run, record, slurm, how, is_there=last)
            if again and not done:
                take_back(run, record, slurm)
            _say(run_dir, number, me, f"{how}: {'the job is cancelled' if done else 'there is nothing to end'}")
        except Exception as error:  # noqa: BLE001 - a fault of ours, too, is no reason to leave the job alone
            _say(run_dir, number, me, str(error) if isinstance(error, PretrainctlError) else tell_fault(error))
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            return


def _runs_on(slurm: Slurm, record: AttemptRecord) -> bool:
    """Whether Slurm says for all of `_END_IS_TOLD` seconds that the job of an attempt which has ended runs."""
    deadline = time.monotonic() + _END_IS_TOLD
    while time.monotonic() < deadline:
        job = slurm.jobs([record.job_id]).get(record.job_id)
        if job is None or not job.is_running:
            return False
        time.sleep(_END_IS_TOLD / 10)
    return True


def _say(run_dir: Path, number: int, node: str, text: str) -> None:
    """Into the attempt's folder: what goes to an srun is lost where its node is."""
    line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} witness on {node}: {text}"
    print(f"pretrainctl: {line}", file=sys.stderr, flush=True)
    with contextlib.suppress(OSError), (contract.attempt_dir(run_dir, number) / "witness.log").open("a") as log:
        log.write(f"{line}\n")


def end_headless_job(
    run: RunFolder,
    record: AttemptRecord,
    slurm: Slurm,
    how: str,
    *,
    is_there: Callable[[], bool] = lambda: False,
) -> bool:
    """Let what still trains of the attempt save, keep the chained job off its batch host, and cancel its job.

    Our cancel is told from a user's by the event, which is written first, and once: it may be given again where Slurm
    did not take the cancel. False where there is nothing to end, or the batch host was there again in the last moment.
    """
    job = slurm.jobs([record.job_id]).get(record.job_id)
    if job is None or not job.is_running:
        return False
    if _trains_elsewhere(run, record):
        if is_there():
            return False
        ask_again(run.path, "save_and_exit", record.attempt, BATCH_HOST_LOST)
        _wait_for_end(run, record)
    for queued in slurm.queued(run.record.job_name):
        if queued.is_waiting:
            with contextlib.suppress(SlurmError):
                push(run, slurm, [queued.job_id], [record.host])
    if is_there():
        return False
    message = f"batch host {record.host} of job {record.job_id} is lost ({how}): the job is cancelled, the next goes on"
    data = {"attempt": record.attempt, "job_id": record.job_id, "node": record.host, "how": how}
    known = _state(run, record)
    if known is None or not known.lost_host:
        ledger.append(run.path, "batch_host_lost", message, data=data)
        # Aside: the list may lie in a file system that does not answer, and the cancel ends this process too.
        listing = threading.Thread(target=_list_host, args=(run, record, how), daemon=True)
        listing.start()
        listing.join(_LISTING)
    slurm.cancel([record.job_id])
    return True


def take_back(run: RunFolder, record: AttemptRecord, slurm: Slurm, *, after: float = 0.0) -> None:
    """Say that a batch host which was told as lost, `after` seconds ago or more, is there, where Slurm did not take the
    cancel: the job goes on, and whoever cancels it later is a person."""
    known, job = _state(run, record), slurm.jobs([record.job_id]).get(record.job_id)
    if known is None or not known.lost_host or job is None or not job.is_running:
        return
    told = [event for event in ledger.read_events(run.path, 0) if event.kind == "batch_host_lost"]
    if time.time() - max(event.time for event in told if event.data["attempt"] == record.attempt) >= after:
        message = f"batch host {record.host} of job {record.job_id} is there again: the job goes on"
        ledger.append(run.path, "batch_host_back", message, data={"attempt": record.attempt, "node": record.host})


def _list_host(run: RunFolder, record: AttemptRecord, how: str) -> None:
    """Put the batch host onto the node exclusion list; where that cannot be written, the cancel matters more."""
    nodes = list_of(run)
    reason = f"the batch host of a job was lost ({how})"
    of_job = {"run": run.record.name, "attempt": record.attempt, "job_id": record.job_id}
    entry = found_now(nodes, record.host, FailureClass.NODE_FAILURE.value, reason, **of_job)
    with contextlib.suppress(OSError, PretrainctlError, ValueError):
        add_found(nodes, entry)


def _state(run: RunFolder, record: AttemptRecord) -> AttemptState | None:
    """What the ledger says of the attempt, None where it has not come to say anything."""
    attempts = fold(ledger.read_events(run.path)).attempts
    return next((attempt for attempt in attempts if attempt.attempt == record.attempt), None)


def _trains_elsewhere(run: RunFolder, record: AttemptRecord) -> bool:
    """Whether the newest restart has not ended, and has no rank on the batch host: it trains on, and nobody watches."""
    events = ledger.read_events(run.path, record.attempt)
    started = [event for event in events if event.kind == "restart_started"]
    if not started or any(event.kind == "restart_ended" for event in events[events.index(started[-1]) :]):
        return False
    return record.host not in started[-1].data["nodes"]


def _wait_for_end(run: RunFolder, record: AttemptRecord) -> None:
    """Until the ranks have saved, or have failed. Those that have done no step have nothing to save: starting, they may
    wait for their srun on the batch host for ever."""
    folder = contract.restart_dir(run.path, record.attempt, run.restarts(record.attempt)[-1])
    _, last = steps_of(folder)
    ends = (folder / "end.json", folder / "failure.json")
    deadline = time.monotonic() + _SAVE_PATIENCE
    while last is not None and not any(path.exists() for path in ends) and time.monotonic() < deadline:
        time.sleep(0.5)
