"""How things are shown: tables on stdout, everything else on stderr; no colour without a terminal."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pretrainctl.units import show_duration

if TYPE_CHECKING:
    from pretrainctl.records.sample import Summary

__all__ = [
    "ago",
    "byte_progress",
    "describe_summary",
    "note",
    "print_json",
    "print_pairs",
    "print_table",
    "show_number",
]


def note(message: str) -> None:
    """A line for people, on stderr."""
    print(message, file=sys.stderr, flush=True)


def print_json(record: object) -> None:
    """A record, or a list of records, as JSON on stdout; NaN and infinity, which JSON does not have, are null."""
    import json

    from pretrainctl.records import codec

    # Escapes are JSON too, where the place takes no UTF-8.
    plain = (sys.stdout.encoding or "").replace("-", "").lower() != "utf8"
    text = json.dumps(_finite(codec.to_json(record)), indent=2, ensure_ascii=plain, allow_nan=False)
    # What is no Unicode, such as a file name of other bytes, is escaped: JSON is UTF-8.
    print(re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


@contextlib.contextmanager
def byte_progress(what: str, *, shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr that is moved by (bytes done, bytes in all); without a terminal nothing is shown."""
    if not shown or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout; one line a row however narrow the place, so that it can be cut and grepped.

    Without a terminal nothing is cut, unless COLUMNS says how much room there is.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = [tuple(row) for row in rows]
    # Where the place is narrow, only the last column is cut: rich would take from every column.
    taken = sum(max(len(row[index]) for row in [tuple(columns), *shown]) + 2 for index in range(len(columns) - 1))
    least = taken + len(columns[-1])
    given = os.environ.get("COLUMNS", "")
    piped = max(least, int(given) if given.isdecimal() and int(given) else 400)
    console = Console(width=None if sys.stdout.isatty() else piped, highlight=False)
    room = max(len(columns[-1]), console.width - taken)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for *cells, last in shown:
        table.add_row(*map(Text, cells), Text(last if len(last) <= room else last[: room - 1] + "…"))
    with console.capture() as captured:
        console.print(table, soft_wrap=not sys.stdout.isatty())
    sys.stdout.write(captured.get())  # rich itself ends with 1 where nobody reads


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values on stdout, one pair a line."""
    shown = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        print(f"{name:<{width}}  {value}")


def describe_summary(summary: Summary) -> list[tuple[str, str]]:
    """A summary of metrics as names and values; times are medians unless they say otherwise."""
    recovered = ", ".join(
        f"{item.seconds:.1f} s (step {item.last_step} to {item.new_step})" for item in summary.recovered
    )
    return [
        ("step", str(summary.step)),
        ("tokens", f"{summary.tokens:,}"),
        ("loss", show_number(summary.loss, ".4f")),
        ("tokens/s", show_number(summary.tokens_per_second, ",.0f")),
        ("step time", "-" if summary.step_seconds is None else f"{summary.step_seconds:.3f} s"),
        ("starts", str(summary.starts)),
        ("start-up", ", ".join(f"{seconds:.1f} s" for seconds in summary.startup_seconds)),
        ("steps done twice", str(summary.steps_repeated)),
        ("time to recover", recovered),
        ("checkpoints", f"{summary.saves}, {summary.checkpoint_seconds:.2f} s each" if summary.saves else "0"),
        ("unreadable lines", str(summary.broken_lines or "")),
        *(("alert", text) for text in summary.alerts),
    ]


def ago(moment: float | None) -> str:
    """`3m ago` for epoch seconds; empty for None."""
    if moment is None:
        return ""
    return f"{show_duration(max(0.0, time.time() - moment))} ago"


def show_number(value: float | None, form: str) -> str:
    """A number in a format, `-` for None."""
    return "-" if value is None else format(value, form)
