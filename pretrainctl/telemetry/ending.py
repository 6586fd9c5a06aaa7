"""The end record of a restart, and the fence that keeps an old owner of the run from saving."""

from __future__ import annotations

from pretrainctl.records import codec
from pretrainctl.records.contract import End, Fence, fence_file
from pretrainctl.telemetry.place import find_place, own_rank

__all__ = ["END_FILE", "is_fenced", "read_fence", "write_end"]

END_FILE = "end.json"


def write_end(end: End) -> None:
    """Write `end.json` on rank 0 of a run; does nothing elsewhere.

    To be called after a barrier of all ranks and before another one: where the first exit status other than
    0 ends the whole srun, a peer that leaves early would kill rank 0 before the record is written.
    """
    place = find_place()
    if place is not None and own_rank() == 0:
        codec.write(place.directory / END_FILE, end)


def read_fence() -> Fence | None:
    """The owner of the run, None where none is written or outside a run; LedgerError if it cannot be read."""
    place = find_place()
    return None if place is None else codec.read_if_there(Fence, fence_file(place.run_dir))


def is_fenced() -> bool:
    """Whether a newer attempt or restart owns the run; a program that is fenced saves nothing."""
    place, fence = find_place(), read_fence()
    if place is None or fence is None:
        return False
    return (place.attempt, place.restart) < (fence.attempt, fence.restart)
