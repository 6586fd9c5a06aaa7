"""Stop, cancel, resume: parse, call one workflow, show."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pretrainctl.cli import view
from pretrainctl.cli.run import Json, RunName, Sets
from pretrainctl.errors import InputError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands that tell a run to end or to go on."""
    for command in (stop, cancel, resume):
        app.command()(command)


def stop(
    name: RunName,
    save: Annotated[bool, typer.Option("--save", help="Save at the next step boundary, then end.")] = False,
    as_json: Json = False,
) -> None:
    """End a run after a save; nothing goes on until `resume`."""
    from pretrainctl.workflows import control

    if not save:
        raise InputError(
            "stop without --save would lose the steps since the last checkpoint",
            hint=f"`pretrainctl stop --save {name}` saves and ends; `pretrainctl cancel {name}` ends at once",
        )
    _show(control.stop(name), as_json=as_json)


def cancel(name: RunName, as_json: Json = False) -> None:
    """Cancel all jobs of a run at once; nothing goes on until `resume`.

    Slurm tells the ranks by SIGTERM and kills them KillWait later (30 s at most sites): a save that is not done by
    then is lost. `stop --save` waits for it.
    """
    from pretrainctl.workflows import control

    _show(control.cancel(name), as_json=as_json)


def resume(
    name: RunName,
    set_values: Sets = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", metavar="FILE", help="Plan it anew with this recipe.")
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help="Go on although what it trains with was changed.")] = False,
    back_to: Annotated[
        str | None,
        typer.Option("--from", metavar="TAG", help="Go back to this checkpoint, or step; the run may be over."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --from: do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Let a stopped run go on from its newest complete checkpoint, or from an older one.

    With --set or --recipe it is planned anew; what was given by --set before stays, also over another recipe, until
    the same key is set again. What would alter the training is shown, and needs --accept; exit status 6 without.
    With --from, newer checkpoints are set aside, none is deleted, and the steps since are done again.
    """
    from pretrainctl.workflows import control
    from pretrainctl.workflows.go_back import WayBack

    def confirm(way: WayBack) -> bool:
        if yes:
            return True
        if not sys.stdin.isatty():
            raise InputError(f"{name} would go {way.cost}, and nobody can be asked", hint="give --yes")
        view.note(f"{name} would go {way.cost}")
        return typer.confirm(f"Do {way.from_step - way.step} steps again?", err=True)

    outcome = control.resume(
        name, set_values=set_values or [], recipe=recipe, accept=accept, back_to=back_to, confirm=confirm
    )
    if outcome is None:
        view.note("nothing was changed")
        raise typer.Exit(1)
    _show(outcome, as_json=as_json)


def _show(outcome: object, *, as_json: bool) -> None:
    from pretrainctl.workflows.control import Outcome

    if as_json or not isinstance(outcome, Outcome):
        view.print_json(outcome)
    else:
        print(f"{outcome.run}: {outcome.message}")
