"""An error that ranks of several nodes show is no node's; one that a node shows alone is its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pretrainctl.records.contract import End, ExitCode, Failure
from pretrainctl.records.launch import RecoveryRule
from pretrainctl.records.run import Action, Diagnosis
from pretrainctl.recovery.decision import RestartSummary, decide, hint_of, left_out
from pretrainctl.recovery.diagnosis import Evidence, FailureClass, diagnose
from pretrainctl.recovery.log_diagnosis import diagnose_log
from pretrainctl.recovery.log_reading import LogReading
from pretrainctl.recovery.placement import Placement
from pretrainctl.recovery.spread import Spread, read_spread

PLACE = Placement(("node01", "node02", "node03"), 2)
RULE = RecoveryRule()
MODULE = "ModuleNotFoundError: No module named 'transformers'"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} GiB"
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


def examine(lines: Sequence[str], place: Placement = PLACE, rank: int = 4, *, stepped: bool = False) -> Diagnosis:
    reading = LogReading(stepped=stepped)
    for number, line in enumerate(lines, 1):
        reading.add(line, number=number)
    cause = reading.cause()
    spread = read_spread([(line, None) for line in lines], cause, place) if cause is not None else Spread()
    failure = Failure(rank, place.node_of(rank) or "node03", 1, 1.0)
    by_log = diagnose_log(reading, place, spread)
    found = diagnose(Evidence(failure=failure, log=reading, placement=place, spread=spread, srun_status=1))
    assert by_log.failure_class == found.failure_class
    if not found.nodes:
        assert by_log.nodes == ()
    return found


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([MODULE] * 3, "environment"),
        ([f"{rank}: {MODULE}" for rank in range(6)], "environment"),
        ([f"[rank{rank}]: {MODULE}" for rank in (0, 2)], "environment"),
        ([f"{node}: {MODULE}" for node in PLACE.nodes], "environment"),
        ([f"[rank{rank}]: {OOM.format(rank)}" for rank in (1, 3, 5)], "gpu_oom"),
        ([f"[rank{rank}]: KeyError: 'weight'" for rank in (5, 0)], "application_error"),
        ([f"[rank{rank}]: OSError: [Errno 5] Input/output error" for rank in (0, 5)], "filesystem"),
        ([f"[rank{rank}]: OSError: [Errno 122] Disk quota exceeded" for rank in (0, 5)], "quota"),
        ([f"[rank{rank}]: RuntimeError: No CUDA GPUs are available" for rank in range(6)], "gpu_hardware"),
        (["/env/bin/python: error while loading shared libraries: libcudart.so.12"] * 2, "environment"),
    ],
)
def test_what_all_show_is_no_nodes(lines: Sequence[str], kind: str) -> None:
    found = examine(lines)
    assert (found.failure_class, found.nodes, found.ranks) == (kind, (), ())
    assert left_out(found, ()) == ()


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([f"[rank4]: {MODULE}"], "environment"),
        ([f"{rank}: {MODULE}" for rank in (4, 5)], "environment"),
        ([f"node03: {MODULE}"], "environment"),
        ([MODULE], "environment"),
        ([f"[rank4]: {OOM.format(18)}", "[rank0]: RuntimeError: Connection reset by peer"], "gpu_oom"),
        (["[rank4]: KeyError: 'weight'", "[rank0]: ValueError: a consequence"], "application_error"),
        ([f"[rank5]: {ECC}", "[rank0]: ncclSystemError: System call failed"], "gpu_hardware"),
        ([ECC, f"  what():  {ECC}"], "gpu_hardware"),
    ],
)
def test_what_one_node_of_several_shows_alone_is_its_own(lines: Sequence[str], kind: str) -> None:
    found = examine(lines)
    assert (found.failure_class, found.nodes) == (kind, ("node03",))


def test_a_cascade_is_not_read_to_its_end() -> None:
    reading = LogReading()
    reading.add(MODULE)
    cause = reading.cause()
    assert cause is not None
    read = iter([(MODULE, None)] * 5000)
    assert read_spread(read, cause, PLACE).is_wide(PLACE)
    assert len(list(read)) > 3000
    read = iter([(f"[rank{rank}]: {MODULE}", None) for rank in range(6)])
    assert read_spread(read, cause, PLACE).nodes == ("node01", "node02")
    assert len(list(read)) == 3


def test_the_only_node_of_a_job_is_no_suspect() -> None:
    place = Placement(("node01",), 2)
    lines = [f"[rank{rank}]: {MODULE}" for rank in (0, 1)]
    assert examine(lines, place, rank=1).nodes == ()
    assert examine([f"[rank1]: {ECC}"], place, rank=1).nodes == ("node01",)


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(failure=Failure(1, "node02", ExitCode.DIVERGED, 1.0), placement=PLACE),
        Evidence(
            failure=Failure(1, "node02", ExitCode.DIVERGED, 1.0),
            end=End("diverged", 7, 7, None, "the loss is nan at step 7", 1.0),
            placement=PLACE,
        ),
    ],
)
def test_a_loss_that_is_no_number_is_nobodys(evidence: Evidence) -> None:
    found = diagnose(evidence)
    assert (found.failure_class, found.nodes, found.ranks) == ("divergence", (), ())
    assert "pretrainctl checkpoints RUN --verify" in hint_of(found)
    assert "pretrainctl resume RUN --from TAG" in hint_of(found)


def test_the_rank_that_saw_its_own_gradient_break_is_named() -> None:
    line = "AssertionError: Rank 3: found NaN in local grad norm in backward pass before data-parallel"
    found = examine([line], stepped=True)
    assert (found.failure_class, found.nodes, found.ranks) == ("divergence", (), (3,))


@pytest.mark.parametrize("kind", list(FailureClass))
@pytest.mark.parametrize("confidence", ["high", "medium"])
def test_a_stop_leaves_no_node_out(kind: FailureClass, confidence: str) -> None:
    found = Diagnosis(kind.value, "x", ("node03",), (4,), confidence=confidence)  # type: ignore[arg-type]
    history = [RestartSummary(1, index, kind.value, 0, 3, 0, ("node03",), 500.0) for index in range(5)]
    for rule in (RULE, RecoveryRule(policies={"hang": "stop", "gpu_hardware": "stop"})):
        decision = decide(found, history, rule, healthy_nodes=3, needed_nodes=2)
        assert decision.action is not Action.STOP or decision.exclude == ()
