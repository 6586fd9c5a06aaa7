"""Batch geometry, steps and jobs: what people get wrong after hours in the queue."""

from __future__ import annotations

import pytest

from pretrainctl.errors import InputError
from pretrainctl.sizing import (
    batch_samples,
    choose_geometry,
    jobs_needed,
    save_interval,
    steps_for_tokens,
    steps_per_job,
)


def test_256_samples_on_8_ranks_of_8_take_4_accumulations():
    assert choose_geometry(256, 8, 8) == (8, 4)
    assert choose_geometry(256, 4, 32) == (32, 2)


def test_seven_ranks_cannot_share_256_samples():
    with pytest.raises(InputError) as caught:
        choose_geometry(256, 2, 7)
    assert str(caught.value) == (
        "global batch 256 != micro batch 2 x accumulation 18 x 7 data-parallel ranks = 252; 256 is not divisible by 14"
    )
    assert "252 or 266 samples" in caught.value.hint


def test_a_batch_smaller_than_one_micro_batch_a_rank_is_refused():
    with pytest.raises(InputError, match="4 is not divisible by 16"):
        choose_geometry(4, 2, 8)


def test_a_batch_of_no_whole_samples_offers_those_beside_it_and_never_none_at_all():
    for count, hint in ((8, "nearest: 256 tokens"), (300, "nearest: 256 or 512 tokens")):
        with pytest.raises(InputError) as caught:
            batch_samples(count, "tokens", 256)
        assert caught.value.hint == hint


def test_a_batch_that_does_not_divide_brings_the_nearest_nodes_that_do():
    for batch, nodes, hint in (
        (512, 33, "or 8 or 16 or 32 nodes"),
        (512, 5, "or 2 or 4 or 8 nodes"),
        (510, 5, "or another micro_batch: with 2 no number of nodes divides 510"),
        (10**12, 7, "or 4 or 5 or 8 nodes"),
    ):
        with pytest.raises(InputError) as caught:
            choose_geometry(batch, 2, 4 * nodes, tasks_per_node=4)
        assert hint in caught.value.hint


def test_model_parallel_ranks_make_replicas():
    # 384 GPUs, tensor parallel 4 and pipeline 12: 8 replicas, accumulation 128.
    assert choose_geometry(2048, 2, 48 * 8, model_parallel=4 * 12) == (8, 128)


def test_46_nodes_do_not_make_whole_replicas():
    with pytest.raises(InputError, match="368 ranks are not a multiple of 48") as caught:
        choose_geometry(2048, 2, 46 * 8, model_parallel=4 * 12)
    assert "336 or 384 ranks" in caught.value.hint


def test_fewer_ranks_than_one_replica_needs():
    with pytest.raises(InputError, match="8 ranks are not a multiple of 48") as caught:
        choose_geometry(2048, 2, 8, model_parallel=48)
    assert "use 48 ranks" in caught.value.hint


def test_a_batch_in_tokens_is_whole_samples():
    assert batch_samples(4_194_304, "tokens", 4096) == 1024
    assert batch_samples(1024, "samples", 4096) == 1024
    with pytest.raises(InputError, match="4000000 tokens is no whole number of samples of 4096") as caught:
        batch_samples(4_000_000, "tokens", 4096)
    assert "3997696 or 4001792 tokens" in caught.value.hint


def test_steps_are_rounded_up():
    assert steps_for_tokens(1000, 100) == 10
    assert steps_for_tokens(1001, 100) == 11
    assert steps_for_tokens(1, 100) == 1


def test_jobs_train_between_start_up_and_signal():
    # 3600 - 120 - 300 = 3180 s of training, 318 steps of 10 s.
    assert jobs_needed(318, 10.0, 3600, 300) == (1, 120 + 3180)
    assert jobs_needed(319, 10.0, 3600, 300) == (2, 3600 + 120 + 10)
    with pytest.raises(InputError, match="no time to train"):
        jobs_needed(10, 10.0, 400, 300)


def test_a_job_holds_whole_steps():
    assert steps_per_job(10.0, 3600, 300) == 318
    assert steps_per_job(3180.0, 3600, 300) == 1
    with pytest.raises(InputError, match="no time to train"):
        steps_per_job(3181.0, 3600, 300)


def test_the_interval_of_young_and_daly():
    # 1,536 nodes with 6.5 faults in 1000 node-days: a checkpoint of 5 minutes every 38, one of 10 s every 6.9.
    assert save_interval(300, 1536, 6.5e-3) / 60 == pytest.approx(38, abs=0.3)
    assert save_interval(10, 1536, 6.5e-3) / 60 == pytest.approx(6.9, abs=0.1)
    # 60 s to write, 7.9 h between two faults: 30.8 minutes.
    assert save_interval(60, 1, 24 / 7.9) / 60 == pytest.approx(30.8, abs=0.1)
