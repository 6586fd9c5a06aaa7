from __future__ import annotations

import time

from pretrainctl.records.progress import STAMP_SIZE, Stamp, pack_stamp, unpack_stamp
from pretrainctl.telemetry import Reporter


def test_a_stamp_is_read_as_it_was_written():
    stamp = Stamp(7, 123456789012, 42, "checkpoint")
    assert unpack_stamp(pack_stamp(stamp)) == stamp
    long = unpack_stamp(pack_stamp(Stamp(1, 0, 0, "a phase with a very long name indeed")))
    assert long is not None
    assert long.phase == "a phase with a very long"


def test_a_torn_or_foreign_one_is_none():
    one, other = pack_stamp(Stamp(1, 1, 1, "step")), pack_stamp(Stamp(2, 2, 2, "step"))
    assert len(one) == STAMP_SIZE
    assert unpack_stamp(one[:20] + other[20:]) is None
    assert unpack_stamp(b"\0" * STAMP_SIZE) is None
    assert unpack_stamp(one[:-1]) is None


def test_it_costs_microseconds_on_ranks_that_write_no_lines(run_dir, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    reporter = Reporter()
    before = time.process_time()
    for step in range(20_000):
        reporter.step(step, step * 512, 2.5, 0.5, 1e-3, 0.125)
    assert (time.process_time() - before) / 20_000 < 20e-6
    reporter.close()
    reporter.step(1, 1, 1.0, 1.0, 1.0, 1.0)
    assert list(run_dir.iterdir()) == []
