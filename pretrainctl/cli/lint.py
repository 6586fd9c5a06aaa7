"""The command that reads batch scripts of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pretrainctl.cli import view
from pretrainctl.errors import ScriptError

if TYPE_CHECKING:
    from pretrainctl.workflows.lint import Report

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(lint)


def lint(
    scripts: Annotated[list[Path], typer.Argument(metavar="SCRIPT...", help="Batch scripts; - is stdin.")],
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", "-c", metavar="NAME", help="Check this site's rules too; default: where we are, if known."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find known mistakes in hand-written batch scripts. Runs nothing of them."""
    from pretrainctl.workflows.lint import lint_scripts

    reports = lint_scripts(scripts, cluster)
    if as_json:
        view.print_json(reports)
    for report in reports:
        for finding in () if as_json else report.findings:
            print(f"{report.script}:{finding.line}: {finding.severity} {finding.rule}: {finding.reason}")
            print(f"    {finding.fix}")
    *before, last = (f"{report.script}: {_counts(report)}" for report in reports)
    bad = [str(report.script) for report in reports if report.errors]
    if bad and len(reports) == 1:
        raise ScriptError(last, hint="each finding names its fix")
    for line in (*before, last):
        view.note(line)
    if bad:
        raise ScriptError(
            f"{len(bad)} of {len(reports)} scripts have errors: {', '.join(bad)}", hint="each finding names its fix"
        )


def _counts(report: Report) -> str:
    whose = f"the rules of {report.cluster} too" if report.cluster else "no site's rules: say --cluster"
    return f"{_count(report.errors, 'error')}, {_count(report.warnings, 'warning')} ({whose})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
