"""Which tokens a step sees. The order depends only on the seed and on how many samples are consumed, never on
the number of ranks or restarts; any place of it is reached at once, so a resume skips nothing by reading.

Sample i of the run comes from one source, chosen by the weights (`Blend`); it is that source's j-th sample. j
lies in epoch j // n of the source's n windows, at position j % n of the permutation drawn for that epoch.
Window w is the tokens [w x length, (w + 1) x length], one more than `length`: inputs and, shifted by one,
targets. Windows run on over document ends.
"""

from __future__ import annotations

import math

import numpy as np

from pretrainctl.errors import InputError
from pretrainctl.records.training import DataSettings
from pretrainctl.trainer.indexed import TokenFile

__all__ = ["Blend", "Samples", "micro_batches", "permuted"]

_RESOLUTION = 100_000
_ROUNDS = 6
_MASK = (1 << 64) - 1


def _mixed(value: int) -> int:
    """A well-mixed 64-bit number from a counter (the finalizer of splitmix64)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def permuted(index: int, size: int, key: int) -> int:
    """Where `index` goes under the permutation of range(size) that `key` names.

    A Feistel network on the next even power of two, walked until it lands inside: no table of `size`
    entries is drawn or kept, however large the corpus.
    """
    half = ((size - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for number in range(_ROUNDS):
            left, right = right, left ^ (_mixed(key ^ _mixed((number << 48) ^ right)) & mask)
        index = (left << half) | right
        if index < size:
            return index


class Blend:
    """Shares samples among sources by weight, in a pattern that repeats.

    In a period of P samples a source of weight w gets w x P of them (weights are rounded to 1/100000, at least
    one each); its k-th is due at (k + 1/2) / w, and samples come in the order in which they are due, so that no
    source is ever far from its share.
    """

    def __init__(self, weights: tuple[float, ...]) -> None:
        if not weights or any(not math.isfinite(weight) or weight <= 0 for weight in weights):
            raise InputError(f"data weights must be positive numbers, not {list(weights)}")
        total = math.fsum(weights)
        counts = [max(1, round(weight / total * _RESOLUTION)) for weight in weights]
        divisor = math.gcd(*counts)
        self.counts = [count // divisor for count in counts]
        self.period = sum(self.counts)
        sources = np.repeat(np.arange(len(counts), dtype=np.int32), self.counts)
        ranks = np.concatenate([np.arange(count) for count in self.counts])
        due = (2 * ranks + 1) / (2 * np.repeat(self.counts, self.counts))
        order = np.lexsort((sources, due))
        self._source, self._rank = sources[order], ranks[order]

    def place(self, index: int) -> tuple[int, int]:
        """Source of sample `index`, and how many samples that source gave before it."""
        period, offset = divmod(index, self.period)
        source = int(self._source[offset])
        return source, period * self.counts[source] + int(self._rank[offset])


def micro_batches(step: int, global_batch: int, micro_batch: int, rank: int, world_size: int) -> range:
    """Numbers of the first samples of the micro-batches that `rank` takes in the step after `step`.

    All ranks together take the samples step x global_batch ... (step + 1) x global_batch - 1, whatever their number.
    """
    begin = step * global_batch
    return range(begin + rank * micro_batch, begin + global_batch, world_size * micro_batch)


class Samples:
    """The samples of a run by their number, from 0."""

    def __init__(self, settings: DataSettings, vocab: int) -> None:
        """Open all sources; InputError where one is too short for a single sample."""
        self._length, self._seed, self._vocab = settings.sequence_length, settings.seed, vocab
        self._files = [TokenFile(source.prefix) for source in settings.sources]
        self._blend = Blend(tuple(source.weight for source in settings.sources))
        self._windows = [(len(file) - 1) // self._length for file in self._files]
        for file, windows in zip(self._files, self._windows, strict=True):
            if windows < 1:
                raise InputError(
                    f"{file.prefix} holds {len(file)} tokens, too few for one sequence of {self._length} + 1",
                    hint="use more text, or a smaller sequence_length",
                )

    @property
    def identity(self) -> list[list[int]]:
        """[tokens, share] of each source: with seed and length, all that the order depends on."""
        return [[len(file), count] for file, count in zip(self._files, self._blend.counts, strict=True)]

    def locate(self, index: int) -> tuple[int, int]:
        """Source and window of sample `index`."""
        source, number = self._blend.place(index)
        epoch, position = divmod(number, self._windows[source])
        key = _mixed(_mixed(_mixed(self._seed & _MASK) ^ source) ^ epoch)
        return source, permuted(position, self._windows[source], key)

    def batch(self, first: int, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Samples first ... first + count - 1 as rows of length + 1 token ids, checked against the vocabulary."""
        rows = np.empty((count, self._length + 1), dtype=np.int64)
        for row in range(count):
            source, window = self.locate(first + row)
            start = window * self._length
            rows[row] = self._files[source].tokens[start : start + self._length + 1]
            if int(rows[row].max()) >= self._vocab or int(rows[row].min()) < 0:
                raise InputError(
                    f"{self._files[source].prefix} holds the token id {int(rows[row].max())}, but the model's "
                    f"vocabulary has {self._vocab} ids",
                    hint="tokenize with the model's tokenizer, or set the vocabulary of the model",
                )
        return rows
