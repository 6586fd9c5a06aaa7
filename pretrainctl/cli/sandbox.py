"""`pretrainctl sandbox ...`: a real Slurm on this machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pretrainctl.cli import view
from pretrainctl.cli.once import OnceGroup
from pretrainctl.units import show_size

if TYPE_CHECKING:
    from pretrainctl.sandbox import SandboxStatus

__all__ = ["app"]

app = typer.Typer(
    cls=OnceGroup,
    help="A real Slurm on this machine: to try, to rehearse, to lose nodes of.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Root = Annotated[
    Path | None,
    typer.Option(
        "--root", metavar="DIR", help="Folder of the sandbox; default: $PRETRAINCTL_SANDBOX, or one in ~/.local/state."
    ),
]
Node = Annotated[str, typer.Argument(metavar="NAME", help="Name of a node: node01 ...")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def up(
    nodes: Annotated[int | None, typer.Option(metavar="N", help="Nodes; default: as last time, or 4.")] = None,
    gpus: Annotated[
        int | None, typer.Option(metavar="N", help="GPUs that a node claims; default: as last time, or 4.")
    ] = None,
    root: Root = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Install missing packages without a question.")] = False,
    as_json: Json = False,
) -> None:
    """Start what does not run yet, and wait until all nodes take jobs."""
    from pretrainctl.workflows import sandbox

    def confirm(question: str) -> bool:
        return yes or not sys.stdin.isatty() or typer.confirm(question, default=True, err=True)

    found = sandbox.up(root, nodes=nodes, gpus=gpus, say=view.note, confirm=confirm)
    _show(found, as_json=as_json)
    view.note('plain Slurm commands reach it after: eval "$(pretrainctl sandbox env)"')


@app.command()
def down(
    root: Root = None,
    purge: Annotated[bool, typer.Option("--purge", help="Remove its folder too, with the history of jobs.")] = False,
    as_json: Json = False,
) -> None:
    """Stop all of it, jobs included; the history of jobs is kept for the next `up`."""
    from pretrainctl.workflows import sandbox

    ended = sandbox.down(root, purge=purge, say=view.note)
    if as_json:
        view.print_json(ended)
        return
    view.note(f"down: {ended.processes} processes ended" if ended.processes else "nothing was up")
    if ended.bytes_removed:
        view.note(f"{ended.root} is removed, {show_size(ended.bytes_removed)}: settings, logs and the history of jobs")
    elif purge:
        view.note(f"no sandbox was made in {ended.root}, so nothing is removed there")
    if ended.bytes_left:
        view.note(f"its history, {show_size(ended.bytes_left)}, stays in {ended.root}; `--purge` removes it")


@app.command()
def status(root: Root = None, as_json: Json = False) -> None:
    """What runs: daemons, and each node as Slurm sees it."""
    from pretrainctl.workflows import sandbox

    _show(sandbox.status(root), as_json=as_json)


@app.command()
def env(root: Root = None, as_json: Json = False) -> None:
    """Shell lines by which plain sbatch, squeue, sacct ... reach the sandbox: eval "$(pretrainctl sandbox env)"."""
    from pretrainctl.workflows import sandbox

    variables = sandbox.env(root)
    if as_json:
        view.print_json(variables)
        return
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")


@app.command()
def kill_node(
    name: Node,
    silent: Annotated[
        bool, typer.Option("--silent", help="It only stops answering, as after a power cut: no connection closes.")
    ] = False,
    root: Root = None,
) -> None:
    """Let a node die at once, with all that runs on it."""
    from pretrainctl.workflows import sandbox

    count = sandbox.kill_node(root, name, silent=silent)
    view.note(f"{name}: {count} processes {'stopped answering' if silent else 'killed'}")


@app.command()
def revive_node(name: Node, root: Root = None) -> None:
    """Start a dead or silent node again, and wait until it takes jobs."""
    from pretrainctl.workflows import sandbox

    sandbox.revive_node(root, name)
    view.note(f"{name} takes jobs again")


def _show(found: SandboxStatus, *, as_json: bool) -> None:
    if as_json:
        view.print_json(found)
        return
    daemons = ", ".join(f"{name} {pid or 'not running'}" for name, pid in found.daemons.items())
    view.print_pairs(
        [
            ("sandbox", "up" if found.up else "down"),
            ("folder", found.root),
            ("cluster", found.cluster),
            ("daemons", daemons),
        ]
    )
    if found.nodes:
        view.print_table(
            ("NODE", "STATE", "SLURMD"),
            [
                (node.name, node.state, "silent" if node.silent else str(node.pid or "not running"))
                for node in found.nodes
            ],
        )
