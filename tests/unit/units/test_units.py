from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrainctl.errors import InputError
from pretrainctl.units import (
    Limit,
    parse_count,
    parse_duration,
    parse_printed_duration,
    parse_requested_time,
    parse_size,
    show_count,
    show_duration,
    show_estimate,
    show_size,
    slurm_time,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("53:20", 3200.0),
        ("7-15:37:35", 661055.0),
        ("0:00", 0.0),
        ("365-00:00:00", 31536000.0),
        ("UNLIMITED", Limit.NO_LIMIT),
        ("INVALID", Limit.UNKNOWN),
        ("infinite", Limit.NO_LIMIT),
        ("Partition_Limit", Limit.PARTITION),
        ("3-00:00:00", 259200.0),
        ("1-02:03:04", 93784.0),
        ("00:00.106", 0.106),
        ("35:45.828", 2145.828),
        ("6-00:00:00", 518400.0),
        ("-0:00:16", Limit.UNKNOWN),
        ("N/A", Limit.NOT_SET),
        ("NONE", Limit.NOT_SET),
        ("1440", Limit.UNKNOWN),
        ("Tomorr 09:00", Limit.UNKNOWN),
    ],
)
def test_durations_as_slurm_prints_them(text, expected):
    read = parse_printed_duration(text)
    assert read == (expected if isinstance(expected, Limit) else pytest.approx(expected))


@given(st.text())
def test_no_printed_text_is_an_error_or_a_silent_zero(text):
    read = parse_printed_duration(text)
    if read == 0:
        assert set(text.strip()) <= set("0:-.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1440", 86400.0),
        ("10:00", 600.0),
        ("14-0", 1209600.0),
        ("1-12:30", 131400.0),
        ("100:00:00", 360000.0),
        ("2-00:00:01", 172801.0),
        ("0", Limit.NO_LIMIT),
        ("0:00", Limit.NO_LIMIT),
        ("UNLIMITED", Limit.NO_LIMIT),
    ],
)
def test_times_as_sbatch_takes_them(text, expected):
    assert parse_requested_time(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "1-", "-5", "12h", "1.5"])
def test_what_sbatch_would_not_take_is_refused(text):
    with pytest.raises(InputError):
        parse_requested_time(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90m", 5400),
        ("12h", 43200),
        ("1d12h", 129600),
        ("1 h 30 min", 5400),
        ("2w", 1209600),
        ("0.5s", 0.5),
        ("250ms", 0.25),
        ("12:00:00", 43200),
        ("1-12:00:00", 129600),
        ("10:00", 600),
    ],
)
def test_durations_as_people_write_them(text, expected):
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "90", "12 hours ago", "h", "1h30", "-5m", "unlimited", "nan"])
def test_a_duration_that_could_be_misread_is_refused(text):
    with pytest.raises(InputError) as caught:
        parse_duration(text)
    assert caught.value.hint


@given(st.integers(min_value=1, max_value=10**8))
def test_a_time_for_sbatch_reads_back_as_the_same_seconds(seconds):
    assert parse_requested_time(slurm_time(seconds)) == seconds
    assert parse_printed_duration(slurm_time(seconds)) == seconds


def test_zero_is_never_asked_for_because_it_means_no_limit():
    with pytest.raises(InputError):
        slurm_time(0.4)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (0.034, "34ms"),
        (9.8, "9.8s"),
        (59.97, "1m00s"),
        (3200, "53m20s"),
        (3599.7, "1h00m"),
        (86399, "1d00h"),
        (661055, "7d16h"),
        (-90, "-1m30s"),
    ],
)
def test_durations_are_shown_in_two_units(seconds, expected):
    assert show_duration(seconds) == expected


@given(st.floats(min_value=1, max_value=10**8))
def test_a_shown_duration_can_be_typed_again(seconds):
    assert parse_duration(show_duration(seconds)) == pytest.approx(seconds, rel=0.05)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096", 4096),
        ("3960K", 3960 * 1024),
        ("480G", 480 * 1024**3),
        ("64GiB", 64 * 1024**3),
        ("80GB", 80 * 10**9),
        ("1.5 TiB", 3 * 1024**4 // 2),
    ],
)
def test_sizes(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "G", "4X", "-1G", "1e3", "UNLIMITED"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InputError):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "0B"), (1023, "1023B"), (1024, "1KiB"), (4 * 1024**2 - 100_000, "3.9MiB"), (1024**6, "1024PiB")],
)
def test_sizes_are_shown_in_powers_of_1024(size, expected):
    assert show_size(size) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.5B", 1_500_000_000),
        ("300M", 300_000_000),
        ("1T", 10**12),
        ("2k", 2000),
        ("1_000_000", 10**6),
        ("1e9", 10**9),
        ("0.1M", 100_000),
        ("0", 0),
    ],
)
def test_counts(text, expected):
    assert parse_count(text) == expected


@pytest.mark.parametrize("text", ["", "B", "1.5", "-3M", "nan", "inf", "12X", "1e999999999", "many"])
def test_what_is_no_whole_count_is_refused(text):
    with pytest.raises(InputError):
        parse_count(text)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0"), (999, "999"), (1500, "1.5k"), (999_900, "1M"), (1_500_000_000, "1.5B"), (5 * 10**15, "5e+03T")],
)
def test_counts_are_shown_in_three_digits(count, expected):
    assert show_count(count) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (16099.31, "~16100"),
        (40329.47, "~40300"),
        (999.6, "~1000"),
        (118.4, "~118"),
        (29.64, "~29.6"),
        (1, "~1.00"),
        (0.08417, "~0.0842"),
        (0, "~0"),
        (-1234, "~-1230"),
    ],
)
def test_an_estimate_has_three_digits(value, text):
    assert show_estimate(value) == text
