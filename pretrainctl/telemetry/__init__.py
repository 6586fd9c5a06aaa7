"""What any training program may import to report its steps and obey requests. Standard library only.

Outside a run (PRETRAINCTL_RUN_DIR is absent) everything here does nothing, so one program serves both::

    requests, reporter = Requests(), Reporter()      # before torch is imported: SIGTERM is caught from here on
    reporter.phase("start", 0)
    for step in ...:
        reporter.step(step, tokens, loss, grad_norm, lr, seconds)
        request = requests.poll()                    # agree on it with the other ranks before obeying it
        if request is not None and not is_fenced():
            ...                                      # save; barrier; reporter.saved(...); barrier
    write_end(End("reached", ...))                   # after a barrier of all ranks, before any rank leaves
"""

from __future__ import annotations

from pretrainctl.telemetry.ending import is_fenced, read_fence, write_end
from pretrainctl.telemetry.place import Place, find_place, own_rank
from pretrainctl.telemetry.reporter import Reporter
from pretrainctl.telemetry.requests import Requests

__all__ = [
    "Place",
    "Reporter",
    "Requests",
    "find_place",
    "is_fenced",
    "own_rank",
    "read_fence",
    "write_end",
]
