"""The command `doctor`: parse, ask the workflow, show."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pretrainctl.cli import view
from pretrainctl.errors import InputError

if TYPE_CHECKING:
    from pretrainctl.workflows.doctor import Finding

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(doctor)


def doctor(
    name: Annotated[str | None, typer.Argument(metavar="RUN", help="Name or folder of a run.")] = None,
    more_logs: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", readable=False, help="With --log: more log files.")
    ] = None,
    log: Annotated[
        list[Path] | None,
        typer.Option("--log", metavar="FILE", readable=False, help="A log file to read instead of a run; - is stdin."),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="This attempt; default: the newest failure.")
    ] = None,
    restart: Annotated[int | None, typer.Option(min=0, metavar="N", help="This restart of the attempt.")] = None,
    nodes: Annotated[
        str, typer.Option(metavar="NODES", help="With --log: the nodes in rank order, as node[01-04].")
    ] = "",
    ranks_per_node: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --log: ranks on each node.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Why a run ended, or what plain logs say: class, nodes, ranks, the lines that say so, what to do."""
    from pretrainctl.workflows.doctor import examine_logs, examine_run

    named = [*([name] if name is not None else []), *map(str, more_logs or [])]
    if log:
        if attempt is not None or restart is not None:
            raise InputError("--attempt and --restart are of a run, and --log reads plain files", hint="leave them out")
        found = examine_logs([*log, *map(Path, named)], nodes, ranks_per_node, say=_say_to_a_person)
    else:
        if len(named) != 1:
            raise InputError(
                "doctor needs one run, or logs" if not named else f"doctor takes one run, not {len(named)}",
                hint="`pretrainctl doctor RUN`, or `pretrainctl doctor --log FILE...`",
            )
        if restart is not None and attempt is None:
            raise InputError("--restart is one of an attempt, and none is given", hint="add --attempt N")
        if nodes or ranks_per_node is not None:
            raise InputError("--nodes and --ranks-per-node go with --log", hint="a run knows where its ranks were")
        found = examine_run(named[0], attempt, restart)
    for text in found.notes:
        view.note(f"note: {text}")
    if as_json:
        view.print_json(_as_json(found))
    else:
        view.print_pairs(_describe(found))


def _say_to_a_person(line: str) -> None:
    if sys.stderr.isatty():
        view.note(line)


def _as_json(found: Finding) -> dict[str, Any]:
    data: dict[str, Any] = {
        "class": found.failure_class,
        "message": found.message,
        "nodes": list(found.nodes),
        "ranks": list(found.ranks),
        "evidence": list(found.evidence),
        "confidence": found.confidence,
        "action": found.action,
        "hint": found.hint,
    }
    if found.run:
        data |= {"run": found.run, "attempt": found.attempt, "restart": found.restart, "done": list(found.done)}
    if found.notes:
        data["notes"] = list(found.notes)
    return data


def _describe(found: Finding) -> list[tuple[str, str]]:
    where = "" if found.attempt is None else f"attempt {found.attempt}"
    where += "" if found.restart is None else f", restart {found.restart}"
    return [
        ("run", f"{found.run}, {where}" if found.run else ""),
        ("class", f"{found.failure_class} (confidence {found.confidence})"),
        ("what", found.message),
        ("nodes", ", ".join(found.nodes)),
        ("ranks", ", ".join(map(str, found.ranks))),
        *zip(("evidence", *[""] * len(found.evidence)), found.evidence, strict=False),
        *zip(("done", *[""] * len(found.done)), found.done, strict=False),
        ("action", found.action),
        ("hint", found.hint),
    ]
