"""The command that reads batch scripts of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pretrainctl.cli import view
from pretrainctl.errors import ScriptError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(lint)


def lint(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A batch script.")],
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", "-c", help="Check this site's rules too; default: where we are, if known."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find known mistakes in a hand-written batch script. Runs nothing of it."""
    from pretrainctl.workflows.lint import lint_script

    report = lint_script(script, cluster)
    if as_json:
        view.print_json(report)
    for finding in () if as_json else report.findings:
        print(f"{script}:{finding.line}: {finding.severity} {finding.rule}: {finding.reason}")
        print(f"    {finding.fix}")
    whose = f"the rules of {report.cluster} too" if report.cluster else "no site's rules: say --cluster"
    counts = f"{_count(report.errors, 'error')}, {_count(report.warnings, 'warning')}"
    if report.errors:
        raise ScriptError(f"{script}: {counts} ({whose})", hint="each finding names its fix")
    view.note(f"{script}: {counts} ({whose})")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
