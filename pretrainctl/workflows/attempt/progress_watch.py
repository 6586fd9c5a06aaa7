"""The progress of one restart: a program that says nothing for longer than it may is hung.

The lines of `metrics.jsonl` are followed as they come. Where none comes for too long, the nodes are asked, through
their beats, how far their ranks are: lines may be lost on a full file system while the training goes on. If the ranks
stand still too, they are made to say where, and the hang is called.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pretrainctl.liveness.listener import Listener
from pretrainctl.records import codec
from pretrainctl.records.progress import Hang, RankReport
from pretrainctl.recovery.pace import Pace
from pretrainctl.recovery.stuck import Stuck, find_stuck, show_ranks, waits_for_files
from pretrainctl.workflows.attempt.context import Attempt

__all__ = ["ProgressWatch"]

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.2, 1.0
"""Seconds between two looks at the file: a fortieth of the shortest time-out, within these."""
_SLOW = 2.0
"""Seconds after which a look at the file says that its file system was away."""
_ABSENT = 5.0
"""Seconds between two looks after which this process was away, or waited for Slurm."""
_READ = 1 << 20
"""Bytes that are read of the file at a time."""
_EARLIER, _HEAD, _TAIL = 4, 1 << 16, 1 << 20
"""Earlier restarts that are learned from, and the bytes of each at its beginning and its end."""
_FILES_PATIENCE = 900.0
"""Seconds for which ranks may wait for a file system: as long as the attempt itself does."""
_AGAIN_AFTER = 5.0
"""Seconds between two looks at ranks that wait for one."""
_LOOK_PATIENCE = 0.6
_STACKS_PATIENCE = 1.8
"""Seconds that the nodes may take to say how far their ranks are, and then where they stand."""
_SAME = 2.0
"""Seconds by which a stamp may be younger than the last line and still tell of the same moment."""


class ProgressWatch:
    """Follows one restart from its srun on; `ranks_per_node` of it lie on each of `nodes`, in their order."""

    def __init__(
        self,
        attempt: Attempt,
        listener: Listener,
        folder: Path,
        restart: int,
        nodes: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        launch = attempt.launch
        self.attempt = attempt
        self.nodes = tuple(nodes)
        self.stacks: dict[int, tuple[str, str]] = {}
        self._listener = listener
        self._folder = folder
        self._question = {"run": str(attempt.run.path), "attempt": attempt.number, "restart": restart}
        self._clock = clock
        # The bundle holds the settings of the reference trainer, which reports each phase from its first moment on.
        self._reports = _is_there(attempt.run.bundle / "training.json")
        self.pace = Pace(launch.hang, nodes=launch.srun.nodes, save_lead=launch.signal_lead)
        self._pause = min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, min(launch.hang.step, launch.hang.checkpoint) / 40))
        self._offset = 0
        self._rest = b""
        self._noted: set[str] = set()
        self._next = self._last = clock()
        self.pace.begin(self._last)
        with contextlib.suppress(OSError):
            for entries in reversed(list(_earlier(attempt, folder))):
                self._reports = True
                self.pace.remember(entries)

    def tick(self) -> Hang | None:
        """Look, if it is time to; the hang where there is one."""
        now = self._clock()
        absence, self._last = now - self._last, now
        if absence > _ABSENT:
            self.pace.excuse(absence)
        if now < self._next:
            return None
        self._next = now + self._pause
        if not self._follow() or not self._reports:
            return None
        now = self._clock()
        if self.pace.silent(now) <= self.pace.limit:
            return None
        hang = self._confirm(now)
        self._last = self._clock()
        return hang

    def record(self, hang: Hang) -> None:
        """Leave the hang, and the stacks of all ranks, in the restart's folder."""
        with contextlib.suppress(OSError):
            codec.write(self._folder / "hang.json", hang)
            with (self._folder / "stacks.txt").open("w", encoding="utf-8") as file:
                for rank, (node, stack) in sorted(self.stacks.items()):
                    file.write(f"=== rank {rank} on {node}\n{stack or '(no stack)'}\n")

    def _follow(self) -> bool:
        """Take the new lines in; False where the file system was away, so that nothing is known."""
        begun = self._clock()
        try:
            data = self._read()
        except OSError:
            self.pace.forgive(self._clock())
            return False
        now = self._clock()
        if now - begun > _SLOW:
            self.pace.forgive(now)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._reports = True
            self.pace.hear(_entry(line), now)
        return now - begun <= _SLOW

    def _read(self) -> bytes:
        try:
            # Opened each time: NFS asks its server again when a file is opened.
            with (self._folder / "metrics.jsonl").open("rb") as file:
                file.seek(self._offset)
                data = file.read(_READ)
        except FileNotFoundError:
            return b""
        self._offset += len(data)
        return data

    def _confirm(self, now: float) -> Hang | None:
        """Ask the nodes; None where the ranks go on all the same, or a line came meanwhile.

        Where nothing is heard of any node, nothing is known, and the time-out is twice as long: for ever it cannot be.
        """
        silence, limit = self.pace.silent(now), self.pace.limit
        if self._listener.all_silent() and silence < 2 * limit:
            return None
        known = self._ask(stacks=False, patience=_LOOK_PATIENCE)
        first = known.get(0, ("", None))[1]
        if first is not None and first.count and first.age < silence - _SAME:
            self.pace.see(first.phase, first.step, now - first.age)
            self._note("no line of metrics.jsonl arrives, but the ranks go on")
            return None
        held = [rank for rank, (_, report) in known.items() if report is not None and waits_for_files(report)]
        if held and silence < _FILES_PATIENCE:
            self._note(f"{show_ranks(held)}: waiting for a file system, which is no hang yet")
            self._next = now + _AGAIN_AFTER
            return None
        known |= self._ask(stacks=True, patience=_STACKS_PATIENCE)
        if not self._follow() or self.pace.silent(self._clock()) < silence:
            return None
        self.stacks = {rank: (node, report.stack) for rank, (node, report) in known.items() if report is not None}
        return self._hang(self.pace.silent(self._clock()), limit, known)

    def _note(self, message: str) -> None:
        """Say it once."""
        if message not in self._noted:
            self._noted.add(message)
            self.attempt.event("note", message)

    def _hang(self, silence: float, limit: float, known: Mapping[int, tuple[str, RankReport | None]]) -> Hang:
        pace = self.pace
        stuck = find_stuck(
            {rank: report for rank, (_, report) in known.items() if report is not None},
            [rank for rank, (_, report) in known.items() if report is None],
        )
        message = (
            f"no progress for {silence:.1f} s in the phase {pace.phase} after step {pace.step} "
            f"(time-out {limit:.1f} s: {pace.reason}){self._blame(stuck, known)}"
        )
        hang = Hang(
            phase=pace.phase,
            step=pace.step,
            seconds=round(silence, 3),
            limit=round(limit, 3),
            message=message,
            ranks=stuck.ranks,
            nodes=tuple(dict.fromkeys(known[rank][0] for rank in stuck.ranks)),
            facts=stuck.facts or ("no node could say where its ranks stand",),
            time=time.time(),
            # Before the first step a rank may not be there yet.
            gone=bool(stuck.ranks) and pace.step > 0 and all(_is_gone(known[rank][1]) for rank in stuck.ranks),
        )
        data = codec.to_json(hang)
        self.attempt.event("hang", message, {name: value for name, value in data.items() if name != "message"})
        return hang

    @staticmethod
    def _blame(stuck: Stuck, known: Mapping[int, tuple[str, RankReport | None]]) -> str:
        if not stuck.ranks:
            return f"; {stuck.why}" if stuck.why else ""
        nodes = ",".join(dict.fromkeys(known[rank][0] for rank in stuck.ranks))
        return f"; behind: {show_ranks(stuck.ranks)} on {nodes}, {stuck.why}"

    def _ask(self, *, stacks: bool, patience: float) -> dict[int, tuple[str, RankReport | None]]:
        """Node and report by rank, of nodes that answer in time; None for a rank that has no process there."""
        self._listener.ask({**self._question, "stacks": stacks})
        deadline = self._clock() + patience
        answers: dict[str, Any] = {}
        while not set(self.nodes) <= set(answers) and self._clock() < deadline:
            time.sleep(0.02)
            answers = self._listener.answers()
        known: dict[int, tuple[str, RankReport | None]] = {}
        per_node = self.attempt.launch.srun.ranks_per_node
        for index, node in enumerate(self.nodes):
            with contextlib.suppress(KeyError, ValueError, TypeError):
                reports = [codec.from_json(RankReport, entry) for entry in answers[node]["ranks"]]
                known |= dict.fromkeys(range(index * per_node, (index + 1) * per_node), (node, None))
                known |= {report.rank: (node, report) for report in reports}
        return known


def _is_gone(report: RankReport | None) -> bool:
    return report is None or report.state in {"Z", "X"}


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _entry(line: bytes) -> Mapping[str, Any]:
    """A line as it was written; one that cannot be read is a sign of life all the same."""
    with contextlib.suppress(ValueError, RecursionError):
        entry = json.loads(line)
        if isinstance(entry, dict):
            return entry
    return {}


def _earlier(attempt: Attempt, folder: Path) -> Iterator[list[Mapping[str, Any] | None]]:
    """The lines of the newest restarts of the run before the one in `folder`, newest first."""
    found = 0
    for _, _, path in reversed(list(attempt.run.restart_dirs())):
        if found == _EARLIER:
            return
        if path != folder and (path / "metrics.jsonl").exists():
            found += 1
            yield _ends_of(path / "metrics.jsonl")


def _ends_of(path: Path) -> list[Mapping[str, Any] | None]:
    """Lines of the beginning and the end of a file, None between them where some are left out."""
    with path.open("rb") as file:
        head = file.read(_HEAD + _TAIL)
        if len(head) < _HEAD + _TAIL:
            return [_entry(line) for line in head.splitlines()]
        file.seek(-_TAIL, 2)
        tail = file.read().split(b"\n")[1:]
    return [*(_entry(line) for line in head[:_HEAD].split(b"\n")[:-1]), None, *(_entry(line) for line in tail)]
