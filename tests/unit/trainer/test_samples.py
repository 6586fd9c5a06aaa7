"""The order of samples: a function of seed and number, whatever ranks and restarts do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrainctl.errors import InputError
from pretrainctl.records.training import DataSettings, DataSource
from pretrainctl.trainer.indexed import IndexedWriter, token_dtype
from pretrainctl.trainer.samples import Blend, Samples, micro_batches, permuted

WEIGHTS = st.lists(st.floats(0.001, 1000.0), min_size=1, max_size=6).map(tuple)


def write(prefix: Path, tokens: int, first: int = 0) -> DataSource:
    with IndexedWriter(prefix, token_dtype(1000)) as writer:
        writer.add(np.arange(first, first + tokens) % 1000)
    return DataSource(prefix)


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_a_permutation_hits_every_place_once(size, key):
    assert sorted(permuted(index, size, key) for index in range(size)) == list(range(size))


def test_permutations_of_a_huge_corpus_cost_nothing_to_enter():
    places = {permuted(index, 10**12, 7) for index in range(10**11, 10**11 + 100)}
    assert len(places) == 100
    assert max(places) - min(places) > 10**11


@given(weights=WEIGHTS, begin=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_a_blend_is_entered_anywhere(weights, begin):
    """Going on from any place gives what going there step by step would: each source counts up by one."""
    blend = Blend(weights)
    seen: dict[int, int] = {}
    for index in range(begin, begin + 300):
        source, number = blend.place(index)
        assert number == seen.get(source, number)
        seen[source] = number + 1


@given(weights=WEIGHTS)
@settings(max_examples=30, deadline=None)
def test_no_source_is_ever_far_from_its_share(weights):
    blend = Blend(weights)
    given_out = [0] * len(weights)
    for index in range(2000):
        source, number = blend.place(index)
        assert number == given_out[source]
        given_out[source] += 1
        for one, share in zip(given_out, blend.counts, strict=True):
            assert abs(one - (index + 1) * share / blend.period) <= len(weights)


def test_weights_are_normalised_and_kept():
    assert Blend((3.0, 1.0)).counts == [3, 1]
    assert Blend((0.7, 0.2, 0.1)).counts == [7, 2, 1]
    assert Blend((1.0,)).counts == [1]
    assert Blend((1e9, 1.0)).counts == [100000, 1]


@pytest.mark.parametrize("weights", [(), (0.0,), (-1.0, 2.0), (float("nan"),), (float("inf"), 1.0)])
def test_weights_that_are_none(weights):
    with pytest.raises(InputError, match="weights"):
        Blend(weights)


@given(ranks=st.integers(1, 8), micro=st.integers(1, 4), rounds=st.integers(1, 4), step=st.integers(0, 10**6))
def test_any_number_of_ranks_takes_the_same_samples(ranks, micro, rounds, step):
    batch = ranks * micro * rounds
    taken = [
        first + row
        for rank in range(ranks)
        for first in micro_batches(step, batch, micro, rank, ranks)
        for row in range(micro)
    ]
    assert sorted(taken) == list(range(step * batch, (step + 1) * batch))
    assert {len(micro_batches(step, batch, micro, rank, ranks)) for rank in range(ranks)} == {rounds}


def test_each_epoch_sees_every_window_once_in_another_order(tmp_path):
    samples = Samples(DataSettings((write(tmp_path / "a", 501),), 10, 3), 1000)
    epochs = [[samples.locate(epoch * 50 + index)[1] for index in range(50)] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != list(range(50))


def test_a_sample_is_a_window_and_one_token_more(tmp_path):
    samples = Samples(DataSettings((write(tmp_path / "a", 501),), 10, 3), 1000)
    rows = samples.batch(0, 50)
    assert rows.shape == (50, 11)
    starts = sorted(int(row[0]) for row in rows)
    assert starts == list(range(0, 500, 10))
    assert all(np.array_equal(row, np.arange(row[0], row[0] + 11)) for row in rows)


def test_sources_share_and_seeds_differ(tmp_path):
    sources = (
        dataclasses.replace(write(tmp_path / "a", 401), weight=3.0),
        dataclasses.replace(write(tmp_path / "b", 201, first=500), weight=1.0),
    )
    one, other = (Samples(DataSettings(sources, 10, seed), 1000) for seed in (1, 2))
    assert sum(samples_from_b(one, 400)) == 100
    assert [one.locate(index) for index in range(40)] != [other.locate(index) for index in range(40)]
    assert one.identity == other.identity == [[401, 3], [201, 1]]


def samples_from_b(samples, count):
    return [samples.locate(index)[0] == 1 for index in range(count)]


def test_too_short_and_foreign_tokens(tmp_path):
    source = write(tmp_path / "a", 10)
    with pytest.raises(InputError, match="holds 10 tokens, too few for one sequence of 10 "):
        Samples(DataSettings((source,), 10, 1), 1000)
    with pytest.raises(InputError, match="the token id 9, but the model's vocabulary has 5 ids"):
        Samples(DataSettings((source,), 9, 1), 5).batch(0, 1)
