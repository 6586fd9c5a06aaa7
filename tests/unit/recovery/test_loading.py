"""What proves that a checkpoint cannot be loaded, and what does not."""

from __future__ import annotations

import pytest

from pretrainctl.records.contract import Failure
from pretrainctl.records.run import Diagnosis
from pretrainctl.recovery.diagnosis import Evidence, diagnose
from pretrainctl.recovery.loading import FailedLoad, blame_tag, find_failed_load
from pretrainctl.recovery.log_reading import LogReading

TAG = "global_step60"
OWN = f"1: rank 1: error: /scratch/my runs/a/checkpoints/{TAG} cannot be loaded: UnpicklingError: invalid load key"


def judged(line: str, *, dead: str = "", status: int = 1, tag: str = TAG, phase: str = "load") -> FailedLoad | None:
    reading = LogReading()
    reading.add(line)
    died = Failure(1, "node02", status, 1.0)
    found = diagnose(Evidence(log=reading, failure=died, dead_nodes={dead: "closed"} if dead else {}))
    return find_failed_load(found, tag, phase=phase, stepped=False)


@pytest.mark.parametrize(
    "says",
    [
        "cannot be loaded: UnpicklingError: invalid load key",
        "cannot be loaded: RuntimeError: PytorchStreamReader failed locating file data.pkl: file not found",
        "cannot be loaded: its state.json is missing",
        "cannot be loaded: state.json: State: the key 'samples' is missing",
        "cannot be loaded: mp_rank_00_model_states.pt: it was written as zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "cannot be loaded: mp_rank_00_model_states.pt: it is not the file that rank 0 of 2 saved at step 60: others",
        "cannot be loaded: its shards.json is of step 40 and 2 ranks",
        "cannot be loaded: there are NaNs among its weights or the moments of AdamW",
        "holds the weights of step 40, and was saved as step 40",
        "holds the optimizer of step 40",
        "holds the optimizer of step none",
    ],
)
@pytest.mark.parametrize("phase", ["load", "step", ""])
def test_the_word_of_the_reference_trainer_proves_it_at_once(says: str, phase: str) -> None:
    found = judged(f"1: rank 1: error: /scratch/my runs/a/{TAG} {says}", phase=phase)
    assert found == FailedLoad(TAG, f"/scratch/my runs/a/{TAG} {says}", proven=True)


@pytest.mark.parametrize(
    "says",
    [
        "cannot be read: OSError: [Errno 5] Input/output error: '/scratch/x.pt'",
        "cannot be read: OSError: [Errno 116] Stale file handle",
        "was saved with world_size 1, but this run has 2",
    ],
)
def test_what_the_trainer_says_of_the_file_system_or_the_settings_proves_nothing(says: str) -> None:
    found = judged(f"1: rank 1: error: /scratch/{TAG} {says}")
    assert found is None or not found.proven


def test_another_tag_than_the_one_that_was_given() -> None:
    found = judged(OWN, tag="global_step6")
    assert found is None or not found.proven


@pytest.mark.parametrize(
    ("line", "more"),
    [
        (OWN, {"dead": "node01"}),
        ("1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", {}),
        ("1: MemoryError: Unable to allocate 3.2 GiB", {}),
        ("1: RuntimeError: [enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory", {}),
        ("1: OSError: [Errno 5] Input/output error: '/scratch/x.pt'", {}),
        ("1: OSError: [Errno 116] Stale file handle", {}),
        ("1: RuntimeError: PytorchStreamReader failed reading file data/0: file read failed", {}),
        ("1: RuntimeError: Connection closed by peer", {}),
        ("nothing", {}),
        ("nothing", {"status": 137}),
    ],
)
def test_a_node_a_kill_memory_and_the_file_system_never_do(line: str, more: dict[str, object]) -> None:
    assert judged(line, **more) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "phase", "counts"),
    [
        ("1: TypeError: 'int' object is not iterable", "load", True),
        ("1: TypeError: 'int' object is not iterable", "start", False),
        ("1: TypeError: 'int' object is not iterable", "", False),
        ("1: RuntimeError: PytorchStreamReader failed finding central directory", "load", True),
        ("1: RuntimeError: PytorchStreamReader failed finding central directory", "", True),
        ("1: RuntimeError: PytorchStreamReader failed finding central directory", "step", False),
    ],
)
def test_an_error_of_the_program_counts_where_it_loaded_and_proves_nothing_alone(
    line: str, phase: str, counts: bool
) -> None:
    found = judged(line, phase=phase)
    assert (found is not None, found is not None and found.proven) == (counts, False)


def test_after_a_step_or_without_a_tag_nothing_was_loading() -> None:
    torn = Diagnosis("checkpoint_incomplete", OWN)
    assert find_failed_load(torn, TAG, phase="load", stepped=False) is not None
    assert find_failed_load(torn, TAG, phase="load", stepped=True) is None
    for tag in (None, ""):
        assert find_failed_load(torn, tag, phase="load", stepped=False) is None


def test_the_second_time_the_tag_is_blamed() -> None:
    found = blame_tag(
        Diagnosis("application_error", "TypeError: x", ("node02",), (1,)), FailedLoad(TAG, "x", proven=False)
    )
    assert (found.failure_class, found.ranks) == ("checkpoint_incomplete", (1,))
    assert found.message == "global_step60 could not be loaded, twice: TypeError: x"
