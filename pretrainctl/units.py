"""Read and print durations, sizes and counts as Slurm and people write them.

The same text means different things in different places: `53:20` is MM:SS where Slurm prints it and where
sbatch accepts it, `1440` is minutes for sbatch. So each place has its own reader, and a limit that is not a
number of seconds is a `Limit`, never 0.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from enum import Enum

from pretrainctl.errors import InputError

__all__ = [
    "Limit",
    "parse_count",
    "parse_duration",
    "parse_printed_duration",
    "parse_requested_time",
    "parse_size",
    "show_count",
    "show_duration",
    "show_estimate",
    "show_size",
    "slurm_time",
]


class Limit(Enum):
    """A time limit that is not a number of seconds; no member may ever be read as another, or as 0."""

    NO_LIMIT = "no limit"
    PARTITION = "the partition's limit"
    NOT_SET = "not set"
    UNKNOWN = "unknown"


_LONGEST_TEXT = 40
"""Characters beyond which nothing is a number that anybody means; Python reads no whole number of 4300 digits."""
_SECOND = 1.0
_MINUTE = 60.0
_HOUR = 3600.0
_DAY = 86400.0

_PEOPLE_UNITS = {
    "ms": 0.001,
    "s": _SECOND,
    "m": _MINUTE,
    "min": _MINUTE,
    "h": _HOUR,
    "d": _DAY,
    "w": 7 * _DAY,
}
_PEOPLE_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|min|[smhdw])")
_CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?(\.[0-9]+)?")

_PRINTED_WORDS = {
    "unlimited": Limit.NO_LIMIT,
    "infinite": Limit.NO_LIMIT,
    "partition_limit": Limit.PARTITION,
    "none": Limit.NOT_SET,
    "n/a": Limit.NOT_SET,
    "(null)": Limit.NOT_SET,
    "": Limit.NOT_SET,
}


def parse_duration(text: str) -> float:
    """Seconds of a duration as people write it: `90m`, `12h`, `1d12h`, or sbatch's own `12:00:00`, `1-12`.

    A plain number is an InputError: sbatch reads it as minutes, most people as something else.
    """
    cleaned = "".join(text.split()).lower()
    parts = _PEOPLE_PART.findall(cleaned) if len(cleaned) <= _LONGEST_TEXT else []
    if parts and "".join(number + unit for number, unit in parts) == cleaned:
        return float(sum(Decimal(number) * Decimal(str(_PEOPLE_UNITS[unit])) for number, unit in parts))
    if ":" in cleaned or "-" in cleaned:
        seconds = _read_clock(cleaned, request=True)
        if seconds is not None:
            return seconds
    hint = "write it as 90m, 12h, 1d12h or 12:00:00"
    raise InputError(f"{text!r} is not a duration", hint=hint)


def parse_requested_time(text: str) -> float | Limit:
    """Seconds of an sbatch `--time` value: MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS; `0` = no limit."""
    cleaned = text.strip().lower()
    seconds = 0.0 if cleaned in ("-1", "infinite", "unlimited") else _read_clock(cleaned, request=True)
    if seconds is None:
        hint = "sbatch reads minutes, minutes:seconds, hours:minutes:seconds, days-hours:minutes:seconds"
        raise InputError(f"{text!r} is not a time that sbatch reads", hint=hint)
    return seconds or Limit.NO_LIMIT


def parse_printed_duration(text: str) -> float | Limit:
    """Seconds of a duration that squeue, sacct, sinfo or scontrol printed; never raises.

    What cannot be read (`INVALID`, `-0:00:16`, relative times) is Limit.UNKNOWN.
    """
    cleaned = text.strip().lower()
    if cleaned in _PRINTED_WORDS:
        return _PRINTED_WORDS[cleaned]
    seconds = _read_clock(cleaned, request=False)
    return Limit.UNKNOWN if seconds is None else seconds


def _read_clock(text: str, *, request: bool) -> float | None:
    match = _CLOCK.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        return None
    days, first, second, third, fraction = match.groups()
    if days is not None:
        # After a day count the fields are hours, minutes, seconds from the left.
        hours, minutes, seconds = int(first), int(second or 0), int(third or 0)
    elif third is not None:
        hours, minutes, seconds = int(first), int(second), int(third)
    elif second is not None:
        hours, minutes, seconds = 0, int(first), int(second)
    elif request:
        hours, minutes, seconds = 0, int(first), 0
    else:
        return None
    if request and fraction:
        return None
    whole = int(days or 0) * _DAY + hours * _HOUR + minutes * _MINUTE + seconds
    return whole + float(fraction or 0)


def slurm_time(seconds: float) -> str:
    """`D-HH:MM:SS` for sbatch `--time`; InputError below one second, because 0 would mean no limit."""
    whole = int(seconds)
    if whole < 1:
        raise InputError(f"a time limit of {seconds:g} s cannot be asked for", hint="Slurm reads 0 as no limit")
    days, rest = divmod(whole, 86400)
    return f"{days}-{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"


def show_duration(seconds: float) -> str:
    """A duration for people, in its two largest units, as `parse_duration` reads it: `7d15h`, `9.8s`."""
    if seconds < 0:
        return f"-{show_duration(-seconds)}"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    minutes = round(whole / 60)
    if minutes < 1440:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    hours = round(whole / 3600)
    return f"{hours // 24}d{hours % 24:02d}h"


def show_estimate(value: float) -> str:
    """An estimate for people, no more precise than an estimate is: three digits, `~16100`, `~0.0842`."""
    after_point = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"~{round(value, after_point):.{max(0, after_point)}f}"


_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")
_BINARY = {letter: 1024**power for power, letter in enumerate("kmgtpe", start=1)}
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    # Slurm's own letters (--mem=480G, MaxRSS 3960K) are powers of 1024.
    **_BINARY,
    **{f"{letter}ib": factor for letter, factor in _BINARY.items()},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtpe", start=1)},
}


def parse_size(text: str) -> int:
    """Bytes of `64GiB` or Slurm's `480G` (powers of 1024), of `80GB` (powers of 1000), of `4096` (bytes)."""
    match = _SIZE.fullmatch(text.strip().lower()) if len(text) <= _LONGEST_TEXT else None
    factor = _SIZE_UNITS.get(match[2]) if match else None
    if match is None or factor is None:
        raise InputError(f"{text!r} is not a size", hint="write it as 64GiB, 480G (as Slurm: 1024s) or 80GB")
    return int(Decimal(match[1]) * factor)


def show_size(size: float) -> str:
    """A size in bytes for people, in powers of 1024: `3.9MiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(value) < 1023.95 or unit == "PiB":
            break
        value /= 1024
    return f"{value:.0f}B" if unit == "B" else f"{value:.1f}".removesuffix(".0") + unit


_COUNT_UNITS = {"": 0, "k": 3, "m": 6, "b": 9, "g": 9, "t": 12}
_LARGEST_COUNT = 10**24


def parse_count(text: str) -> int:
    """A whole count of tokens or parameters: `1.5B`, `300M`, `2k`, `1T`, `1e9`, `1_000_000`."""
    cleaned = text.strip().lower().replace("_", "").replace(" ", "")
    unit = cleaned[-1:] if cleaned[-1:] in _COUNT_UNITS else ""
    try:
        value = Decimal(cleaned.removesuffix(unit)).scaleb(_COUNT_UNITS[unit])
        if value.is_finite() and 0 <= value < _LARGEST_COUNT and value == value.to_integral_value():
            return int(value)
    except ArithmeticError:
        pass
    raise InputError(f"{text!r} is not a count", hint="write it as 1.5B, 300M, 2k or 1_000_000")


def show_count(count: float) -> str:
    """A count for people: `1.5B`, `300M`, `999`."""
    value = float(count)
    for unit in ("", "k", "M", "B", "T"):
        if abs(value) < 999.5 or unit == "T":
            break
        value /= 1000
    return f"{value:.0f}" if unit == "" and value == int(value) else f"{value:.3g}{unit}"
