"""The quick test of all nodes at the start of an attempt, beside the look back and the first beats."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pretrainctl import process
from pretrainctl.errors import PretrainctlError
from pretrainctl.frameworks.checkpoint_owner import OWNER
from pretrainctl.health import verdict
from pretrainctl.health.paths import in_order, is_blind
from pretrainctl.liveness.beat import TOKEN_VARIABLE
from pretrainctl.records import codec, contract
from pretrainctl.records.nodes import NodeAnswer, NodeTest
from pretrainctl.records.token_index import bin_file, idx_file
from pretrainctl.slurm import nodes as node_names
from pretrainctl.slurm import steps
from pretrainctl.slurm.environment import step_environment
from pretrainctl.workflows.attempt.context import Attempt
from pretrainctl.workflows.attempt.node_watch import NodeWatch
from pretrainctl.workflows.attempt.patience import MAY_PASS
from pretrainctl.workflows.training_data import sources_of

__all__ = ["NodesUnderTest", "sees_no_checkpoints"]

_STARTING = 4.0
"""Seconds of the whole that starting the program on the nodes may take; it has the rest for its checks."""
_PAUSE = 0.05


class NodesUnderTest:
    """The test of the attempt's nodes, which runs from `start` on."""

    def __init__(self, attempt: Attempt, watch: NodeWatch) -> None:
        self.attempt = attempt
        self.watch = watch
        self._rule = attempt.launch.node_test
        self._folder = contract.attempt_dir(attempt.run.path, attempt.number) / "node-test"
        self._paths: tuple[str, ...] = ()
        self._child: process.Child | None = None
        self._begun = 0.0
        self._began = 0.0

    def start(self) -> None:
        """Start the test where the plan wants one, and return at once. What hinders it is a note."""
        if not self._rule.seconds:
            return
        launch, record = self.attempt.launch, self.attempt.record
        self._begun, self._began = time.monotonic(), time.time()
        address = (node_names.master_address(record.host, launch.address), str(self.watch.listener.port))
        seconds = max(1.0, self._rule.seconds - _STARTING)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            program = self._folder / "probe.py"
            program.write_text(verdict.program(), encoding="utf-8")
            self._paths = _needed_paths(self.attempt)
            (self._folder / verdict.PATHS).write_text(json.dumps(self._paths), encoding="utf-8")
            with (self._folder / "srun.log").open("ab") as log:
                self._child = process.start(
                    steps.test_argv(
                        record.nodes,
                        step_name=f"nodes-{record.attempt}",
                        gpus=bool(self._rule.gpus),
                        task=[
                            *(*launch.container, self._rule.python, str(program)),
                            *(f"{seconds:g}", str(self._rule.gpus), *address),
                        ],
                    ),
                    env={**step_environment(os.environ), TOKEN_VARIABLE: self.watch.listener.token},
                    stdout=log.fileno(),
                    stderr=log.fileno(),
                )
        except (OSError, PretrainctlError) as error:
            self.attempt.event("note", f"the nodes are not tested: {error}")

    def finish(self) -> NodeTest | None:
        """Wait for the answers, in bounds, and say what they mean; None where there was no test."""
        if self._child is None:
            return None
        deadline = self._begun + self._rule.seconds
        text: str | None = None
        while True:
            ended = self._child.poll() is not None
            before, text = text, self._said()
            if text != before:
                answers, broken = verdict.read_answers(text), verdict.read_broken(text)
            waited_for = set(self.attempt.record.nodes) - set(answers) - set(self.watch.dead) - set(broken)
            over = time.monotonic() > deadline
            signals = self.attempt.signals
            if not waited_for or ended or over or signals.terminated or signals.time_limit_near:
                break
            self.watch.poll(_PAUSE)
            self.watch.note_dead()
        if over and not ended:
            self._child.signal(signal.SIGTERM)  # srun ends what hangs of the step; that is not waited for
        return self._judge(answers, broken, timed_out=over and not ended)

    def stop(self) -> None:
        """End the srun of a test that nobody waited for, or that hangs; the rest of it is left to Slurm."""
        if self._child is not None:
            self._child.stop(grace=0.2)

    def _said(self) -> str:
        try:
            return (self._folder / "srun.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def _judge(self, answers: Mapping[str, NodeAnswer], broken: Mapping[str, str], *, timed_out: bool) -> NodeTest:
        record = self.attempt.record
        found = verdict.judge(
            [node for node in record.nodes if node not in self.watch.dead],
            answers,
            host=record.host,
            window=(self._began, time.time()),
            broken=broken,
            seconds=time.monotonic() - self._begun,
            timed_out=timed_out,
            paths=self._paths,
        )
        with contextlib.suppress(OSError):
            codec.write(self._folder / "result.json", found)
        self.attempt.event("nodes_tested", _words(found), _figures(found))
        return found


def sees_no_checkpoints(node: str, found: NodeTest) -> bool:
    """Whether a node is unfit and does not see the checkpoints, the first of the paths, which another one sees."""
    looks = {answer.node: answer.paths for answer in found.answers if answer.paths is not None}
    return node in found.unfit and is_blind(node, 0, looks)


def _needed_paths(attempt: Attempt) -> tuple[str, ...]:
    """What a node must see to train: the checkpoints, by the file that each directory of a launch has, and the data.

    That it sees the run folder is proved by the test, whose program lies there.
    """
    sources: Sequence[Path] = ()
    with contextlib.suppress(*MAY_PASS):
        sources = sources_of(attempt.run.planned().recipe)
    files = [file(prefix) for prefix in sources for file in (bin_file, idx_file)]
    return in_order([str(path) for path in (attempt.launch.checkpoint.directory / OWNER, *files)])


def _words(found: NodeTest) -> str:
    parts = [f"{len(found.answers)} of {len(found.nodes)} nodes tested in {found.seconds:.1f} s"]
    parts += [f"{node} is unfit ({why})" for node, why in found.unfit.items()]
    parts += [f"{node} is slow ({why})" for node, why in found.slow.items()]
    return "; ".join([*parts, *found.notes])


def _figures(found: NodeTest) -> dict[str, object]:
    """The event's figures: least, median and greatest of each, and what was found; the record has all of them."""
    names = sorted({name for answer in found.answers for name in answer.figures})
    spread = {}
    for name in names:
        values = sorted(answer.figures[name] for answer in found.answers if name in answer.figures)
        spread[name] = [values[0], values[len(values) // 2], values[-1]]
    return {
        "nodes": list(found.nodes),
        "unfit": dict(found.unfit),
        "slow": dict(found.slow),
        "notes": list(found.notes),
        "seconds": found.seconds,
        "figures": spread,
    }
