"""`pretrainctl demo`: see the product do its main job on this machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from pretrainctl.cli import view

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(demo)


def demo(
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Work in this folder and leave it; default: a temporary one.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the sandbox up at the end.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Install missing packages without asking.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Start a real Slurm here, train on it, lose a node, go on by itself, finish; takes a few minutes."""
    import tempfile

    from pretrainctl.workflows.demo import demo as run_demo
    from pretrainctl.workflows.sandbox import discard

    begun = time.monotonic()

    def say(line: str) -> None:
        view.note(f"[{time.monotonic() - begun:5.1f} s] {line}")

    def confirm(question: str) -> bool:
        return yes or not sys.stdin.isatty() or typer.confirm(question, err=True)

    chosen = folder.absolute() if folder is not None else Path(tempfile.mkdtemp(prefix="pretrainctl-demo-"))
    try:
        report = run_demo(chosen, say=say, confirm=confirm, keep=keep)
    finally:
        if folder is None and not keep:
            discard(chosen, chosen / "sandbox", say=view.note)
    if as_json:
        view.print_json(report)
        return
    view.print_pairs(
        [
            ("finished", report.finished),
            ("wall time", f"{report.seconds:.1f} s from launch to the end"),
            ("node killed", report.killed),
            ("diagnosis", report.diagnosis),
            ("attempts", str(report.attempts)),
            ("restarts inside them", str(report.restarts)),
            *view.describe_summary(report.summary),
        ]
    )
    if folder is not None or keep:
        view.note(f"the run folder is {report.path}")
    else:
        view.note("its folder was a temporary one; `pretrainctl demo --folder DIR` leaves it to look at")
