"""`pretrainctl pack`: for a cluster without internet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pretrainctl.cli import view
from pretrainctl.units import show_size

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(pack)


def pack(
    cluster: Annotated[
        str, typer.Option("--cluster", "-c", metavar="NAME", help="Cluster profile; its node.arch decides.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Folder, or .tar.gz, to write; default: an archive in this folder."
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="X.Y", help="Python version on the cluster; default: that of the profile's modules."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Put pretrainctl and all it needs into one file or folder, to be installed where there is no internet."""
    from pretrainctl.workflows.pack import pack as make_pack

    made = make_pack(cluster, output, python=python, say=view.note)
    if as_json:
        view.print_json(made)
        return
    view.print_table(
        ("WHEEL", "VERSION", "SIZE", "SHA256"),
        [(wheel.name, wheel.version, show_size(wheel.size), wheel.sha256[:16]) for wheel in made.pack.wheels],
    )
    view.note(f"copy {made.path.name} to the cluster, and run its install.sh there")
