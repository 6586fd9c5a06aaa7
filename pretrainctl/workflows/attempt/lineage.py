"""Before an attempt trains: is it still the same training? What was found is recorded, and a change that alters it and
that nobody accepted ends the attempt."""

from __future__ import annotations

import contextlib
import os

from pretrainctl.records import codec
from pretrainctl.records.lineage import Lineage
from pretrainctl.records.run import Action, Decision
from pretrainctl.recovery.consent import describe
from pretrainctl.runs.lineage import NOT_THERE
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.patience import MAY_PASS
from pretrainctl.workflows.lineage import Trained, begin, difference, finish, lineage_file, trained_before

__all__ = ["LineageCheck"]

_PATIENCE = 5.0
"""Seconds after its beginning at which the check takes what is known: the rest, such as data on a file system that
does not answer, is unknown, and so no change. A container starts in about one."""


class LineageCheck:
    """Begun early, so that the Python that trains is asked while nodes report and Slurm answers."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._trained: Trained | None = None
        # What is recorded of earlier attempts and cannot be read now is unknown.
        with contextlib.suppress(*MAY_PASS):
            self._trained = trained_before(attempt.run, before=attempt.number)
        known = self._trained.lineage if self._trained is not None else None
        self._gathering = begin(attempt.run, attempt.launch, known=known, job_environment=os.environ)

    def settle(self) -> Decision | None:
        """Record what the attempt trains with; STOP where that was changed and not accepted, else None."""
        attempt = self._attempt
        with contextlib.suppress(*MAY_PASS):
            now = finish(self._gathering, attempt.run, _PATIENCE)
            codec.write(lineage_file(attempt.run.path, attempt.number), now)
            self._tell_missing(now)
            found = difference(attempt.run, self._trained, now)
            if not found.changes:
                return None
            data = {"since": found.since, "changes": list(found.changes), "waiting": list(found.waiting)}
            if not found.waiting:
                what = "harmless or accepted changes"
                attempt.event("lineage", f"{what} since attempt {found.since}: {describe(found.changes)}", data)
                return None
            reason = f"not what attempt {found.since} trained with: {describe(found.waiting)}"
            attempt.event("lineage", reason, data)
            return Decision(
                Action.STOP, f"{reason}; `pretrainctl resume --accept {attempt.run.record.name}` goes on with it"
            )
        return None

    def _tell_missing(self, now: Lineage) -> None:
        """Data that this host does not see are no change: the nodes that train may see them."""
        missing = sorted(key.removeprefix("data.") for key, why in now.unknown.items() if why == NOT_THERE)
        if missing:
            what = f"{missing[0]} and {len(missing) - 1} more are" if len(missing) > 1 else f"{missing[0]} is"
            host = self._attempt.record.host
            self._attempt.event("note", f"{what} not there on {host}: no change of the data can be seen")
