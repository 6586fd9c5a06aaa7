"""Who is behind, from what nodes say of their ranks."""

from __future__ import annotations

import dataclasses

import pytest

from pretrainctl.records.contract import Failure
from pretrainctl.records.progress import Hang, RankReport
from pretrainctl.recovery.diagnosis import Evidence, diagnose
from pretrainctl.recovery.log_reading import LogReading
from pretrainctl.recovery.placement import Placement
from pretrainctl.recovery.stuck import find_stuck, main_stack, show_ranks

WAITING = """Thread 0x00007f03e6200b80 (most recent call first):
  File "/opt/lib/python3.11/threading.py", line 324 in wait
  File "/opt/lib/python3.11/queue.py", line 180 in get

Current thread 0x00007f65b1601b80 (most recent call first):
  File "/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2925 in all_reduce
  File "/opt/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 81 in wrapper
  File "/home/me/trainer/engine.py", line 38 in total
  File "/home/me/trainer/loop.py", line 97 in _one_step
"""
READING = """Current thread 0x00007f65b1601b80 (most recent call first):
  File "/home/me/trainer/samples.py", line 61 in batch
  File "/home/me/trainer/loop.py", line 93 in _one_step
"""
COMPUTING = """Current thread 0x00007f65b1601b80 (most recent call first):
  File "/home/me/trainer/model.py", line 12 in forward
  File "/home/me/trainer/loop.py", line 93 in _one_step
"""
BACKWARD = """Thread 0x00007f03e6200b80 (most recent call first):
  File "/opt/deepspeed/comm/torch.py", line 164 in all_reduce
  File "/opt/deepspeed/runtime/zero/stage_1_and_2.py", line 1100 in reduce_ipg_grads

Current thread 0x00007f65b1601b80 (most recent call first):
  File "/opt/torch/autograd/graph.py", line 824 in _engine_run_backward
  File "/home/me/trainer/loop.py", line 94 in _one_step
"""
SPIED = """Process 41: python -m trainer
Python v3.11.2 (/usr/bin/python3.11)

Thread 41 (idle): "MainThread"
    batch (trainer/samples.py:61)
    _one_step (trainer/loop.py:93)
Thread 55 (idle): "Thread-1"
    wait (threading.py:324)
"""


def ranks(*reports: RankReport) -> dict[int, RankReport]:
    return {rank: dataclasses.replace(report, rank=rank) for rank, report in enumerate(reports)}


def rank(stack: str = WAITING, *, state: str = "S", step: int = 9, count: int = 20) -> RankReport:
    return RankReport(0, 100, state, "futex_wait", count, step, "step", 30.0, stack)


def test_a_stopped_rank_is_behind() -> None:
    found = find_stuck(ranks(rank(), rank("", state="T"), rank(), rank()))
    assert (found.ranks, found.why) == ((1,), "stopped (state T)")
    waiting = (
        "all_reduce (torch/distributed/distributed_c10d.py:2925) < total (me/trainer/engine.py:38) "
        "< _one_step (me/trainer/loop.py:97)"
    )
    assert found.facts == (
        "rank 1: stopped (state T), step after step 9, kernel: futex_wait",
        f"ranks 0,2-3: alive, step after step 9, {waiting}",
    )


def test_where_all_are_stopped_nobody_is_behind() -> None:
    found = find_stuck(ranks(rank(state="T"), rank(state="T")))
    assert (found.ranks, found.why) == ((), "all 2 ranks are stopped (state T)")


def test_a_rank_without_a_process_is_behind() -> None:
    found = find_stuck(ranks(rank(), rank()), silent=[2])
    assert (found.ranks, found.why) == ((2,), "not there")


def test_a_rank_in_the_kernel_is_behind() -> None:
    found = find_stuck(ranks(rank(), dataclasses.replace(rank(state="D"), waits_in="nfs_wait_on_request")))
    assert (found.ranks, found.why) == ((1,), "held in the kernel (state D, nfs_wait_on_request)")


def test_a_rank_at_an_older_step_or_report_is_behind() -> None:
    assert find_stuck(ranks(rank(), rank(), rank(step=8))).ranks == (2,)
    found = find_stuck(ranks(rank(count=19), rank(), rank()))
    assert (found.ranks, found.why) == ((0,), "at step 9, phase step, and the others further")


def test_one_that_reports_more_than_all_others_leaves_them_not_behind() -> None:
    """A program may report on rank 0 only, or more there: that says nothing of the others."""
    assert find_stuck(ranks(rank(count=40), rank(), rank())).ranks == ()
    assert find_stuck(ranks(rank(), rank(count=0), rank(count=0))).ranks == ()


@pytest.mark.parametrize("stack", [READING, SPIED])
def test_a_rank_that_is_in_no_collective_is_behind(stack: str) -> None:
    found = find_stuck(ranks(rank(), rank(), rank(stack), rank()))
    assert found.ranks == (2,)
    assert found.why.startswith("in batch (")
    assert found.why.endswith("trainer/samples.py:61), where the others wait in a collective")


def test_a_collective_of_the_backward_pass_is_waited_for_in_a_thread_of_its_own() -> None:
    assert find_stuck(ranks(rank(BACKWARD), rank(COMPUTING), rank(BACKWARD))).ranks == (1,)


def test_one_that_stands_elsewhere_than_most_is_behind() -> None:
    found = find_stuck(ranks(rank(COMPUTING), rank(COMPUTING), rank(READING)))
    assert (found.ranks, found.why) == (
        (2,),
        "in batch (me/trainer/samples.py:61), where the others are not",
    )


def test_where_nothing_tells_nobody_is_blamed() -> None:
    assert find_stuck(ranks(rank(), rank(), rank())).ranks == ()
    assert find_stuck(ranks(rank(""), rank(""))).ranks == ()
    assert find_stuck({}).facts == ()


def test_the_main_thread_is_found_in_both_forms() -> None:
    assert main_stack(WAITING)[-1] == "_one_step (me/trainer/loop.py:97)"
    assert main_stack(SPIED) == ("batch (trainer/samples.py:61)", "_one_step (trainer/loop.py:93)")
    assert main_stack("nothing of the kind") == ()


def test_many_different_places_are_few_lines() -> None:
    found = find_stuck(ranks(*(rank(READING.replace("61", str(number))) for number in range(100))))
    assert len(found.facts) == 9
    assert found.facts[-1] == "and 92 more groups of ranks"


def test_ranks_are_shown_shortly() -> None:
    assert show_ranks([5]) == "rank 5"
    assert show_ranks([7, 0, 1, 2, 9, 10]) == "ranks 0-2,7,9-10"


def test_the_diagnosis_of_a_hang_names_who_is_behind_whoever_was_killed_first_with_it() -> None:
    record = Hang("step", 9, 31.0, 30.0, "no progress for 31.0 s", (3,), ("b",), ("rank 3: stopped",), 0.0)
    told = LogReading(stepped=True)
    found = diagnose(Evidence(hang=record.message, stuck=record, log=told, placement=Placement(("a", "b"), 2)))
    assert (found.failure_class, found.ranks, found.nodes) == ("hang", (3,), ("b",))
    assert "rank 3: stopped" in found.evidence


def test_where_nobody_is_behind_the_rank_that_was_killed_first_is_not_blamed() -> None:
    record = Hang("step", 9, 31.0, 30.0, "all 2 ranks are stopped", (), (), (), 0.0)
    found = diagnose(Evidence(hang=record.message, stuck=record, failure=Failure(1, "b", 137, 0.0)))
    assert (found.failure_class, found.ranks, found.nodes) == ("hang", (), ())
