"""A start that fails where the run has trained before: the node that is new in it is at fault."""

from __future__ import annotations

import pytest

from pretrainctl.records.launch import RecoveryRule
from pretrainctl.records.run import Action
from pretrainctl.recovery.decision import RestartSummary, decide, decide_after_attempt, left_out
from pretrainctl.recovery.diagnosis import Evidence, diagnose
from pretrainctl.recovery.log_reading import read_lines
from pretrainctl.recovery.placement import Placement

NO_MODULE = "1: ModuleNotFoundError: No module named 'flash_attn'"
NO_LIBRARY = "1: ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"


def found(*lines: str, trained: tuple[str, ...] = ("node01", "node02"), last_step: int | None = None):
    return diagnose(
        Evidence(
            srun_status=1,
            log=read_lines(["0: loading", *lines], stepped=last_step is not None),
            placement=Placement(("node01", "node03"), 1),
            trained=frozenset(trained),
            last_step=last_step,
        )
    )


@pytest.mark.parametrize("line", [NO_MODULE, NO_LIBRARY])
def test_what_a_new_node_lacks_is_laid_on_it(line: str) -> None:
    diagnosis = found(line)
    assert (diagnosis.failure_class, diagnosis.nodes) == ("boot_failure", ("node03",))
    assert "the run has trained without node03" in diagnosis.message
    history = [RestartSummary(1, 0, "node_failure", 0, 40, 40), RestartSummary(1, 1, "boot_failure", 40, None, 40)]
    assert left_out(diagnosis, history) == ("node03",)
    assert decide_after_attempt(diagnosis, [], RecoveryRule()) is None
    decision = decide(diagnosis, history, RecoveryRule(), healthy_nodes=3, needed_nodes=2)
    assert (decision.action, decision.exclude) == (Action.RESTART_HERE, ("node03",))


@pytest.mark.parametrize(
    "options", [{"trained": ()}, {"trained": ("node01", "node03")}, {"last_step": 50}], ids=["first", "same", "stepped"]
)
def test_what_fails_everywhere_or_always_is_not(options: dict[str, object]) -> None:
    assert found(NO_MODULE, **options).failure_class != "boot_failure"
