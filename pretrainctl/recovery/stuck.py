"""Which rank the others wait for, from what the nodes say of their ranks when nothing goes on. Pure.

In a collective all ranks stand still, and most of them only wait. Behind is, in this order: a rank that is stopped,
gone or held in the kernel; one that is at an older step or report; one that is not in a collective where most are; one
that stands elsewhere than most. Where that is more than half of the ranks, nobody is behind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pretrainctl.records.progress import RankReport

__all__ = ["Stuck", "find_stuck", "main_stack", "show_ranks", "waits_for_files"]

_HEAD = re.compile(r"^(?:Current )?[Tt]hread .*$", re.MULTILINE)
_FRAME = re.compile(r'^\s+File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>.+?)\s*$')
_SPIED = re.compile(r"^\s+(?P<name>\S+) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)\s*$")
_COLLECTIVE = re.compile(
    r"(?:all_?reduce|all_?gather|reduce_scatter|broadcast|barrier|all_to_all|recv|synchronize|init_process_group)"
)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<frozen")
_FILES = re.compile(
    r"^(?:nfs|rpc|ll_|cl_|osc_|ldlm|ptlrpc|mmfs|gpfs|cxi\w*Wait|beegfs|fuse|ceph|io_schedule|folio_wait|wait_on_page)"
)
"""Kernel functions in which a process waits for NFS, Lustre, GPFS, BeeGFS, FUSE, Ceph or a disk."""
_INNERMOST = 3
"""Frames that say whether a rank waits for others, and that are shown."""
_SHOWN = 8
"""Groups of ranks that are shown."""
_GONE = {"Z": "ended", "X": "ended", "": "not there"}
_STOPPED = {"T": "stopped (state T)", "t": "stopped by a debugger (state t)"}


@dataclass(frozen=True)
class Stuck:
    """Ranks that are behind, why they are taken for it, and lines that show where all ranks stand."""

    ranks: tuple[int, ...]
    why: str
    facts: tuple[str, ...]


def find_stuck(reports: Mapping[int, RankReport], silent: Iterable[int] = ()) -> Stuck:
    """Tell from the reports by rank; `silent` are ranks of nodes that answered, with no process there.

    `why` says so, too, where all ranks are in the same bad state.
    """
    ranks = {**{rank: RankReport(rank, 0, "") for rank in silent}, **reports}
    facts = _facts(ranks)
    if not ranks:
        return Stuck((), "", ())
    condition = {rank: _condition(report) for rank, report in ranks.items()}
    if all(condition.values()):
        return Stuck((), f"all {len(ranks)} ranks are {_spread(condition.values())}", facts)
    for tell in (_by_condition, _by_report, _by_waiting, _by_place):
        behind, why = tell(ranks)
        if behind and 2 * len(behind) <= len(ranks):
            return Stuck(tuple(sorted(behind)), why, facts)
    return Stuck((), "", facts)


def waits_for_files(report: RankReport) -> bool:
    """Whether the rank waits in the kernel for a file system, which may come back."""
    return report.state not in _STOPPED and _FILES.match(report.waits_in) is not None


def main_stack(text: str) -> tuple[str, ...]:
    """Frames of the main thread, the innermost first, as `name (file:line)`, of what faulthandler or py-spy wrote."""
    return tuple(frame.show() for frame in _main_thread(text))


def show_ranks(ranks: Iterable[int]) -> str:
    """`ranks 0-3,7`, or `rank 5`."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    text = ",".join("-".join(map(str, run)) for run in runs)
    return f"rank {text}" if text.isdigit() else f"ranks {text}"


@dataclass(frozen=True)
class _Frame:
    name: str
    file: str
    line: str

    def show(self) -> str:
        return f"{self.name} ({'/'.join(self.file.split('/')[-3:])}:{self.line})"

    @property
    def waits(self) -> bool:
        return "torch/distributed/" in self.file or _COLLECTIVE.match(self.name) is not None


def _main_thread(text: str) -> list[_Frame]:
    threads = _threads(text)
    # faulthandler prints the main thread last, py-spy first.
    return threads[0 if '"MainThread"' in text else -1] if threads else []


def _where(text: str) -> str:
    """The innermost frame, and the innermost ones of the program itself: between them lie libraries."""
    frames = _main_thread(text)
    own = [frame for frame in frames[1:] if not _LIBRARY.search(frame.file)] or frames[1:]
    return " < ".join(frame.show() for frame in [*frames[:1], *own[: _INNERMOST - 1]])


def _threads(text: str) -> list[list[_Frame]]:
    """The frames of each thread that has any, the innermost first."""
    threads = []
    for piece in _HEAD.split(text):
        found = [_FRAME.match(line) or _SPIED.match(line) for line in piece.splitlines()]
        frames = [_Frame(one["name"], one["file"], one["line"] or "?") for one in found if one is not None]
        threads += [frames] if frames else []
    return threads


def _condition(report: RankReport) -> str:
    """What is wrong with the process itself, empty if nothing is."""
    if report.state in _GONE:
        return _GONE[report.state]
    if report.state in _STOPPED:
        return _STOPPED[report.state]
    if report.state == "D":
        return f"held in the kernel (state D{', ' + report.waits_in if report.waits_in else ''})"
    return ""


def _spread(values: Iterable[str]) -> str:
    return ", ".join(value for value, _ in Counter(values).most_common())


def _by_condition(ranks: Mapping[int, RankReport]) -> tuple[list[int], str]:
    behind = {rank: found for rank, report in ranks.items() if (found := _condition(report))}
    return list(behind), _spread(behind.values())


def _by_report(ranks: Mapping[int, RankReport]) -> tuple[list[int], str]:
    """By step first, then by the number of reports, which differs where a rank has not entered a phase yet."""
    stamped = {rank: report for rank, report in ranks.items() if report.count}
    measures: tuple[Callable[[RankReport], int], ...] = (lambda one: one.step, lambda one: one.count)
    for measure in measures:
        newest = max(map(measure, stamped.values()), default=0)
        behind = [rank for rank, report in stamped.items() if measure(report) < newest]
        if behind:
            first = stamped[behind[0]]
            return behind, f"at step {first.step}, phase {first.phase}, and the others further"
    return [], ""


def _by_waiting(ranks: Mapping[int, RankReport]) -> tuple[list[int], str]:
    """A collective may be waited for in a thread of its own: that of the backward pass on GPUs."""
    threads = {rank: found for rank, report in ranks.items() if (found := _threads(report.stack))}
    waiting = {
        rank for rank, found in threads.items() if any(frame.waits for one in found for frame in one[:_INNERMOST])
    }
    behind = [rank for rank in threads if rank not in waiting] if waiting else []
    if not behind:
        return [], ""
    return behind, f"in {main_stack(ranks[behind[0]].stack)[0]}, where the others wait in a collective"


def _by_place(ranks: Mapping[int, RankReport]) -> tuple[list[int], str]:
    stacks = {rank: stack[:_INNERMOST] for rank, report in ranks.items() if (stack := main_stack(report.stack))}
    common = Counter(stacks.values()).most_common(1)
    behind = [rank for rank, stack in stacks.items() if stack != common[0][0]]
    return (behind, f"in {stacks[behind[0]][0]}, where the others are not") if behind else ([], "")


def _facts(ranks: Mapping[int, RankReport]) -> tuple[str, ...]:
    """Where ranks stand, those alike in one line, the rarest first: they are the ones to look at."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, report in sorted(ranks.items()):
        at = f"{report.phase or 'no phase'} after step {report.step}" if report.count else "no report of its own"
        where = _where(report.stack) or (f"kernel: {report.waits_in}" if report.waits_in else "no stack")
        groups.setdefault((_condition(report) or "alive", at, where), []).append(rank)
    ordered = sorted(groups.items(), key=lambda group: len(group[1]))
    lines = [f"{show_ranks(members)}: {', '.join(words)}" for words, members in ordered[:_SHOWN]]
    return (*lines, f"and {len(ordered) - _SHOWN} more groups of ranks") if len(ordered) > _SHOWN else tuple(lines)
