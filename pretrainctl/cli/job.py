"""Commands that a job calls: an attempt, and the witness of a lost batch host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the app; help does not list them."""
    for command in (attempt, witness):
        app.command(hidden=True)(command)


def attempt(run_dir: Annotated[Path, typer.Argument(metavar="FOLDER", help="The run folder.")]) -> None:
    """Run one attempt inside a job; the batch script calls this."""
    from pretrainctl.workflows.attempt.run import run_attempt

    raise typer.Exit(run_attempt(run_dir))


def witness(
    run_dir: Annotated[Path, typer.Argument(help="The run folder.")],
    number: Annotated[int, typer.Argument(metavar="ATTEMPT", help="The attempt that was lost.")],
    host: Annotated[str, typer.Argument(help="Its batch host.")],
    port: Annotated[int, typer.Argument(help="Where it listened.")],
    first_turn: Annotated[int, typer.Argument(help="How many others look out besides those of this Slurm step.")],
    how: Annotated[str, typer.Argument(help="closed or silent.")],
) -> None:
    """End a job whose batch host is gone; a node of the job calls this."""
    from pretrainctl.workflows.attempt.witness import witness as look

    look(run_dir, number, host, port, how, turn=first_turn + int(os.environ.get("SLURM_PROCID", "0")))
