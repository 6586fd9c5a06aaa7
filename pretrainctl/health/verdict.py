"""What the answers of all nodes mean: which are unfit, which are slow, and what is laid on none of them. Pure."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from pretrainctl.health import probe
from pretrainctl.health.paths import judge_paths
from pretrainctl.records import codec
from pretrainctl.records.nodes import NodeAnswer, NodeTest

__all__ = ["PATHS", "judge", "program", "read_answers", "read_broken"]

PATHS = probe.PATHS
"""The file of paths, beside the program."""

_MOST_SKEW = 60.0
"""Seconds that a clock may be off: munge refuses what is 300 s old, and logs of ranks must be laid side by side."""
_RELATIVE_TO_HOST = frozenset({"peers", "clock"})
"""Checks against the batch host, which it passes by itself: that is no proof against the others."""
_FIGURES = {"matmul_seconds": (1.5, 0.0001), "gpu_matmul_seconds": (1.25, 0.0002)}
"""What nodes are compared by: slow is from so many times the median on, and at least so many seconds above it. NVIDIA's
straggler report takes a relative speed under 0.75 for one (nvidia-resiliency-ext)."""
_DEVIATIONS = 5.0
"""... and beyond so many deviations: 1.4826 times the median absolute deviation stands for one."""
_FEW = 10
"""One node, or one of so many, may be without an answer by its own fault: more of them wait for the same thing."""
_FEWEST = 3
"""Nodes that are needed for a comparison: of two, nothing says which is as it should be."""
_BROKEN = re.compile(r"error: (\S+): tasks? [\d,-]+: Exited with exit code (\d+)|failed on node (\S+?):")
_NO_PROGRAM = "2"
"""Python's own exit code where the file that it is to run is not there."""


def program() -> str:
    """The text of the program that runs on the nodes."""
    return Path(probe.__file__).read_text(encoding="utf-8")


def read_answers(text: str) -> dict[str, NodeAnswer]:
    """The answers in what srun printed, by node; a line that is no whole answer is none."""
    found = {}
    for line in text.splitlines():
        _, mark, said = line.partition(probe.MARK)
        if mark:
            try:
                answer = codec.from_json(NodeAnswer, json.loads(said))
            except (ValueError, RecursionError):
                continue
            found[answer.node] = answer
    return found


def read_broken(text: str) -> dict[str, str]:
    """Nodes of which srun says that the program failed, or could not be started, there, and what that says of them."""
    return {
        match[1] or match[3]: "the program of the node test, in the run folder, is not seen there"
        if match[2] == _NO_PROGRAM
        else "the node test failed there"
        for match in _BROKEN.finditer(text)
    }


def judge(
    nodes: Sequence[str],
    answers: Mapping[str, NodeAnswer],
    *,
    host: str,
    window: tuple[float, float],
    broken: Mapping[str, str] = MappingProxyType({}),
    seconds: float = 0.0,
    timed_out: bool = False,
    paths: Sequence[str] = (),
) -> NodeTest:
    """What the test of `nodes` found.

    A check that fails on all nodes where it was made says nothing of a node, and is noted; so is what nobody answered.
    A node without an answer is unfit where nearly all others answered, and it is `broken` or the test `timed_out`; else
    its state is unknown. `host` is the batch host, `window` the times (epoch s) on its clock between which all answers
    were given, `seconds` how long the test took, `paths` what each was to look for.
    """
    notes: list[str] = []
    failed = {node: dict(answers[node].failed) for node in nodes if node in answers}
    for node, found in failed.items():
        skew = max(window[0] - answers[node].time, answers[node].time - window[1], 0.0)
        if skew > _MOST_SKEW:
            found["clock"] = f"the clock is {skew:.0f} s off that of {host}"
    for check in sorted({check for found in failed.values() for check in found}):
        made = [node for node in failed if check == "clock" or check in {*failed[node], *answers[node].passed}]
        judges = [node for node in made if node != host] if check in _RELATIVE_TO_HOST else made
        if judges and all(check in failed[node] for node in judges):
            words = next(failed[node][check] for node in judges)
            notes.append(f"{check} fails on all {len(judges)} nodes that tell, so it is not the nodes: {words}")
            for node in made:
                failed[node].pop(check, None)
    looks = {node: seen for node in failed if (seen := answers[node].paths) is not None}
    blind, said = judge_paths(paths, looks, others=len(nodes) - len(looks))
    notes += said
    for node, words in blind.items():
        failed[node]["paths"] = words
    unfit = {node: f"{check}: {words}" for node, found in failed.items() for check, words in list(found.items())[:1]}
    silent = [node for node in nodes if node not in answers] if answers else []
    if len(silent) <= max(1, len(nodes) // _FEW):
        unfit |= {
            node: broken.get(node, f"no answer within {seconds:.0f} s")
            for node in silent
            if node in broken or timed_out
        }
    unknown = [node for node in nodes if node not in answers and node not in unfit]
    if unknown:
        notes.append(f"nothing is known of {len(unknown)} of {len(nodes)} nodes: they gave no answer")
    notes += dict.fromkeys(note for answer in answers.values() for note in answer.notes)
    return NodeTest(
        nodes=tuple(nodes),
        answers=tuple(answers[node] for node in nodes if node in answers),
        unfit={node: unfit[node] for node in nodes if node in unfit},
        slow=_slow({node: answers[node] for node in nodes if node in answers and node not in unfit}),
        notes=tuple(notes),
        seconds=round(seconds, 3),
        paths=tuple(paths),
    )


def _slow(answers: Mapping[str, NodeAnswer]) -> dict[str, str]:
    """Nodes that take far longer than the others for the same work."""
    found: dict[str, str] = {}
    for figure, (times, least) in _FIGURES.items():
        measured = {node: answer.figures[figure] for node, answer in answers.items() if figure in answer.figures}
        if len(measured) < _FEWEST:
            continue
        median = statistics.median(measured.values())
        deviation = 1.4826 * statistics.median(abs(value - median) for value in measured.values())
        limit = max(times * median, median + least, median + _DEVIATIONS * deviation)
        for node, value in measured.items():
            if value > limit:
                words = f"{figure.removesuffix('_seconds').replace('_', ' ')} takes {value * 1000:.3g} ms"
                found[node] = f"{words}, and {median * 1000:.3g} ms on the others"
    return found
