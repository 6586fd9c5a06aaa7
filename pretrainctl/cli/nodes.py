"""`pretrainctl nodes ...`: the node exclusion list of a cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pretrainctl.cli import view
from pretrainctl.cli.once import OnceGroup
from pretrainctl.cli.plan import Cluster
from pretrainctl.units import parse_duration

if TYPE_CHECKING:
    from pretrainctl.workflows.nodes import NodeView, Told

__all__ = ["app"]

app = typer.Typer(
    cls=OnceGroup,
    help="Nodes that jobs keep off: what was found of them, and what people say.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Names = Annotated[list[str], typer.Argument(metavar="NODE...", help="Nodes as Slurm lists them: node[02-03].")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_nodes(
    cluster: Cluster = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Those whose time is over, or that were forgiven, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """The nodes that jobs keep off now, why, and until when."""
    from pretrainctl.workflows.nodes import survey

    found = survey(cluster, everything=everything)
    for problem in found.problems:
        view.note(f"warning: {problem}")
    if as_json:
        view.print_json(found)
        return
    if not found.nodes:
        view.note(f"nothing is listed of the Slurm cluster {found.slurm_cluster} in {found.path}")
        return
    view.note(f"nodes of the Slurm cluster {found.slurm_cluster}")
    view.print_table(
        ("NODE", "UNTIL", "COUNT", "CAUSE", "FOUND", "BY", "REASON"),
        [
            (
                node.node,
                _until(node),
                str(node.count),
                node.cause,
                view.ago(node.found),
                node.run or node.user,
                _reason(node),
            )
            for node in found.nodes
        ],
    )


def _until(node: NodeView) -> str:
    if node.active:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(node.expires))
    return "over" if node.forgiven is None or node.found > node.forgiven else "forgiven"


def _reason(node: NodeView) -> str:
    """The reason, and by whom and when what was found of it was forgiven: that, or what was found before it."""
    if node.forgiven is None:
        return node.reason
    why = f" ({node.forgiven_for})" if node.forgiven_for else ""
    told = f"forgiven by {node.forgiven_by} {view.ago(node.forgiven)}{why}"
    return f"{node.reason}; before that {told}" if node.found > node.forgiven else f"{told}: {node.reason}"


@app.command()
def exclude(
    nodes: Names,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for those who read the list.")],
    how_long: Annotated[str, typer.Option("--for", metavar="DURATION", help="How long: 12h, 7d.")] = "24h",
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Keep jobs off nodes; jobs of yours that wait are told."""
    from pretrainctl.workflows import nodes as workflow

    _show(workflow.exclude(nodes, cluster, reason=reason, seconds=parse_duration(how_long)), as_json=as_json)


@app.command()
def forgive(
    nodes: Names,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for those who read the list.")] = "",
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Let jobs go to nodes again: what was found of them counts no more."""
    from pretrainctl.workflows import nodes as workflow

    _show(workflow.forgive(nodes, cluster, reason=reason), as_json=as_json)


@app.command()
def report(
    nodes: Annotated[
        list[str] | None,
        typer.Argument(metavar="NODE...", help="Nodes as node[02-03]; default: all that are kept off."),
    ] = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Text for the site's help desk: what was found of nodes, when, in which jobs."""
    from pretrainctl.workflows import nodes as workflow

    text = workflow.report(nodes or [], cluster)
    if as_json:
        view.print_json({"report": text})
    else:
        print(text)


def _show(told: Told, *, as_json: bool) -> None:
    if as_json:
        view.print_json(told)
        return
    print(told.message)
    for note in told.notes:
        view.note(note)
