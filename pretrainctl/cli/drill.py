"""`pretrainctl drill`: every fault on purpose, and whether the run ended as it must."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pretrainctl.cli import view
from pretrainctl.errors import DrillError, InputError

if TYPE_CHECKING:
    from pretrainctl.workflows.drill.verdict import Row

__all__ = ["register", "show_row", "verdict"]

_COLUMNS = (("FAULT", 28), ("NOTICED", 8), ("AGAIN", 8), ("TWICE", 6), ("RESUMED", 12), ("TOLD AS", 22), ("VERDICT", 7))


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(drill)


def drill(
    names: Annotated[list[str] | None, typer.Argument(metavar="FAULT", help="With --only: more faults.")] = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="FAULT", help="Play these faults only.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            "-c",
            metavar="NAME",
            help="Play those of an own job on this cluster; default: a sandbox of its own.",
        ),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the faults and play none.")] = False,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Work in this folder and leave it; default: a temporary one.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the folder, and the sandbox up, at the end.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: install packages, spend node-hours.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let every fault come to a tiny run, one after the other, and judge each by the run's own records."""
    from pretrainctl.workflows.drill.run import Desk, choose, drill, listed
    from pretrainctl.workflows.sandbox import discard

    if names and not only:
        raise InputError(f"{names[0]!r} is said without --only", hint="`pretrainctl drill --only FAULT...`")
    faults = choose([*(only or []), *(names or [])], cluster)
    if show_list:
        chosen = faults if only else listed(cluster)
        if as_json:
            view.print_json([{"fault": fault.name, "what": fault.what, "own_job": fault.own} for fault in chosen])
        else:
            view.print_table(
                ("FAULT", "WHERE", "WHAT"),
                [(fault.name, "anywhere" if fault.own else "sandbox", fault.what) for fault in chosen],
            )
        return
    place, passing = _place(folder, cluster, keep=keep)
    others = (place / "runs").exists()
    rows: list[Row] = []

    def take(row: Row) -> None:
        rows.append(row)
        if len(rows) == 1 and not as_json:
            print(_line([name for name, _ in _COLUMNS]))
        print(show_row(row), file=sys.stderr if as_json else sys.stdout, flush=True)

    try:
        drill(
            faults,
            place,
            cluster=cluster,
            desk=Desk(row=take, say=view.note, confirm=lambda question: _confirm(question, cluster, yes=yes)),
            keep=keep,
        )
    finally:
        gone = (
            passing and all(row.verdict != "fail" for row in rows) and discard(place, place / "sandbox", say=view.note)
        )
        if not gone and not others and (place / "runs").exists():
            view.note(f"the run folders are in {place / 'runs'}")
    if as_json:
        view.print_json(rows)
    verdict(rows)


def verdict(rows: Sequence[Row]) -> None:
    """Say what came out; DrillError where a fault did not end as it must, or none could be played."""
    counts = {word: sum(row.verdict == word for row in rows) for word in ("pass", "fail", "skipped")}
    if not rows:
        raise InputError("nothing was played", hint="say yes, or give --yes")
    told = f"{counts['pass']} passed, {counts['fail']} failed, {counts['skipped']} skipped"
    if counts["fail"] or not counts["pass"]:
        failed = ", ".join(row.fault for row in rows if row.verdict == "fail")
        raise DrillError(
            f"{told}: {failed}" if failed else told,
            hint="`pretrainctl doctor` and `pretrainctl logs` read the run folders",
        )
    view.note(f"{told}; {sum(row.seconds for row in rows):.0f} s")


def show_row(row: Row) -> str:
    """A row as a line of the table; where it did not pass, why, and where its run folder lies, below."""
    line = _line(
        [
            row.fault,
            "-" if row.noticed is None else f"{row.noticed:.1f} s",
            "-" if row.again is None else f"{row.again:.1f} s",
            "-" if row.twice is None else str(row.twice),
            row.resumed or "-",
            row.failure_class or "-",
            row.verdict,
        ]
    )
    below = [text for text in (row.reason, row.path if row.verdict == "fail" else "") if text]
    return "\n".join([line, *(f"    {text}" for text in below)])


def _line(cells: list[str]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, (_, width) in zip(cells, _COLUMNS, strict=True)).rstrip()


def _confirm(question: str, cluster: str | None, *, yes: bool) -> bool:
    """Node-hours are spent only on a clear yes; packages are installed where nobody can be asked, as `demo` does."""
    if yes:
        return True
    if not sys.stdin.isatty():
        return cluster in {None, "sandbox"}
    return typer.confirm(question, err=True)


def _place(folder: Path | None, cluster: str | None, *, keep: bool) -> tuple[Path, bool]:
    """The folder to work in, and whether it goes when all has passed."""
    import tempfile

    if folder is not None:
        return folder.absolute(), False
    if cluster not in {None, "sandbox"}:  # nodes must see it, so it lies where the user stands
        return Path.cwd() / f"drill-{time.strftime('%Y%m%d-%H%M%S')}", False
    return Path(tempfile.mkdtemp(prefix="pretrainctl-drill-")), not keep
