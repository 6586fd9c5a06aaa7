"""Commands before anything is submitted: plan, render, and what recipes and clusters there are."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pretrainctl.cli import view
from pretrainctl.errors import InputError, ProfileError
from pretrainctl.units import show_count, show_duration, show_estimate, show_size

if TYPE_CHECKING:
    from pretrainctl.schema import Plan

__all__ = ["register"]

Recipe = Annotated[str, typer.Argument(metavar="RECIPE", help="Name or path of a recipe.")]


def _where_we_are(context: typer.Context, cluster: str | None) -> str | None:
    """The cluster that is meant where none is named; said where another profile could be meant as well."""
    if cluster is not None or context.resilient_parsing:
        return cluster
    from pretrainctl.workflows.place import find_told

    found, said = find_told()
    if said:
        view.note(said)
    return found


Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", "-c", metavar="NAME", help="Cluster profile; default: where we are.", callback=_where_we_are
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a value: key.path=value, or cluster.key.path=value."),
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name of the run; default: the recipe's.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    for command in (plan, render, explain, diff, recipes, clusters):
        app.command()(command)


def plan(
    recipe: Recipe, cluster: Cluster = None, set_values: Sets = None, name: Name = None, as_json: Json = False
) -> None:
    """Work out a run: ranks, batch, steps, queue, node-hours. Submits nothing."""
    from pretrainctl.workflows.unheard import plan_warned

    made = plan_warned(recipe, cluster, set_values=set_values or [], name=name)
    if as_json:
        view.print_json(made.model_dump(mode="json"))
        return
    view.print_pairs(_describe(made))
    for warning in filter(None, (made.blocked, *made.warnings)):
        view.note(f"warning: {warning}")
    speed = made.estimate.speed
    for note in made.notes:
        # A launch shows the notes without the table, which has the speed.
        view.note(f"note: {note if speed is None else note.replace(str(speed), 'the speed above')}")


def render(
    recipe: Recipe,
    cluster: Cluster = None,
    set_values: Sets = None,
    name: Name = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Write all files of the bundle into this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the scripts and settings of a run as they would be submitted, and the srun that will start the training.

    Needs no Slurm, root or torch.
    """
    from pretrainctl.workflows.render import render_recipe, write_bundle

    rendered = render_recipe(recipe, cluster, set_values=set_values or [], name=name)
    if output is not None:
        paths = write_bundle(rendered.bundle, output)
        if as_json:
            view.print_json({"files": [str(path) for path in paths], "srun": rendered.srun})
        else:
            print(*paths, sep="\n")
        return
    if as_json:
        view.print_json({"files": dict(rendered.bundle.files), "srun": rendered.srun})
        return
    for file, text in rendered.bundle.files.items():
        print(f"# ----- {file}")
        sys.stdout.write(text)
    print("# ----- the srun of the attempt, node names standing for those of the job")
    print("#", " \\\n#   ".join(map(shlex.quote, rendered.srun)))


def explain(recipe: Recipe, cluster: Cluster = None, set_values: Sets = None, as_json: Json = False) -> None:
    """Print each line of the batch script, and each option of the srun, with its origin."""
    from pretrainctl.workflows.explain import explain as explain_script

    lines = explain_script(recipe, cluster, set_values=set_values or [])
    if as_json:
        view.print_json(lines)
        return
    view.print_table(("LINE", "ORIGIN"), [(line.text, line.origin) for line in lines])


def diff(
    recipe: Recipe,
    cluster: Annotated[
        list[str], typer.Option("--cluster", "-c", metavar="NAME", help="Give it twice: the two to compare.")
    ],
    set_values: Sets = None,
    as_json: Json = False,
) -> None:
    """Show what differs between the batch scripts and the sruns of two clusters."""
    from pretrainctl.workflows.explain import diff as compare

    if len(cluster) != 2:
        raise InputError(
            f"--cluster was given {len(cluster)} times, and two are compared", hint="-c leonardo -c jupiter"
        )
    found = compare(recipe, cluster[0], cluster[1], set_values=set_values or [])
    if as_json:
        view.print_json(found)
        return
    rows = [(one.what, one.first, one.second) for one in found]
    view.print_table(("WHAT", cluster[0].upper(), cluster[1].upper()), rows)


def recipes(as_json: Json = False) -> None:
    """List recipes: yours and the shipped ones."""
    _list("recipes", as_json=as_json)


def clusters(
    check: Annotated[
        str | None, typer.Option("--check", metavar="NAME", help="Compare a profile with the Slurm of this machine.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List cluster profiles: yours and the shipped ones."""
    if check is not None:
        from pretrainctl.workflows.check_cluster import check_cluster

        findings = check_cluster(check)
        if as_json:
            view.print_json(findings)
        else:
            rows = [(finding.place, finding.profile, finding.machine) for finding in findings]
            view.print_table(("WHAT", "PROFILE", "MACHINE"), rows)
        lost = [finding.place.partition(":")[0] for finding in findings if finding.refused]
        if lost:
            raise ProfileError(
                f"this Slurm would refuse jobs of {check}: {', '.join(dict.fromkeys(lost))}",
                hint="correct the profile, or one of your own that extends it",
            )
        return
    _list("cluster_profiles", as_json=as_json)


def _list(kind: Literal["recipes", "cluster_profiles"], *, as_json: bool) -> None:
    from pretrainctl.workflows.plan import list_catalog

    rows = list_catalog(kind)
    if as_json:
        view.print_json([{"name": name, "description": text, "path": str(path)} for name, text, path in rows])
        return
    view.print_table(("NAME", "DESCRIPTION", "FILE"), [(name, text, str(path)) for name, text, path in rows])


def _login(plan: Plan) -> str:
    limit = plan.profile.login_limit
    if limit is None:
        return ""
    says = "an unknown time" if limit == "unknown" else show_duration(limit)
    return f"a process may use {says} of CPU there; no command here needs a minute"


def _at_risk(plan: Plan) -> str:
    risk = plan.estimate.at_risk
    if risk is None:
        return ""
    return (
        f"at most {risk.steps} steps by one fault, about {show_duration(risk.seconds)} or "
        f"{show_estimate(risk.node_hours)} node-hours"
    )


def _describe(plan: Plan) -> list[tuple[str, str]]:
    geometry, estimate, training = plan.geometry, plan.estimate, plan.recipe.training
    options = " ".join(f"--{key}={value}" if value else f"--{key}" for key, value in plan.directives.items())
    ranks = f"{geometry.nodes} nodes x {geometry.tasks_per_node} = {geometry.world_size} ranks"
    devices = f"{plan.gpus_per_node} GPUs a node" if plan.gpus_per_node else "CPUs only"
    batch = (
        f"{geometry.global_batch} samples = micro batch {geometry.micro_batch} x accumulation "
        f"{geometry.accumulation} x {geometry.data_parallel} data-parallel ranks"
    )
    weights = show_count(estimate.parameters)
    lead = show_duration(plan.profile.signals.lead)
    node_hours = f"{estimate.node_hours_per_job:.2f} a job at most"
    if estimate.jobs is not None and estimate.seconds_per_step is not None:
        jobs = f"about {estimate.jobs}, if a step takes {estimate.seconds_per_step:.3g} s"
        node_hours += f", {show_estimate(plan.node_hours)} to the target"
    else:
        jobs = ""
    first = estimate.checkpoint_alone_bytes
    alone = f" ({show_size(first)} of it by the first rank alone)" if first and geometry.nodes > 1 else ""
    checkpoints = f"every {plan.recipe.checkpoint.every_steps} steps, {show_size(estimate.checkpoint_bytes)} each"
    if estimate.checkpoint_basis == "given":  # of an assumed rate a note says it
        checkpoints += f"{alone}, {show_duration(estimate.checkpoint_seconds)} to write at the given rate"
    accounting, units = plan.profile.accounting, estimate.site_units_per_job
    charged = f"{units:.0f} {accounting.unit} a job at most" if accounting and units is not None else ""
    if charged and units is not None and estimate.node_hours is not None:
        charged += f", {show_estimate(units * estimate.node_hours / estimate.node_hours_per_job)} to the target"
    memory = ""
    if estimate.memory is not None:
        memory = (
            f"{show_size(estimate.memory.states)} of states a GPU ({estimate.memory.states_formula}), at most "
            f"{show_size(estimate.memory.activations)} of activations ({estimate.memory.activations_formula})"
            + (f", {show_size(estimate.memory.gpu)} are there" if estimate.memory.gpu else "")
        )
    return [
        ("run", plan.name),
        ("refused", f"{plan.blocked} (`program:` names one of your own)" if plan.blocked else ""),
        ("cluster", f"{plan.profile.name}, queue {plan.queue.name}"),
        ("model", f"{weights} parameters, {show_count(estimate.flops_per_token)} model FLOPs a token"),
        ("ranks", f"{ranks}, {devices}" + (f", {geometry.spares} spare nodes" if geometry.spares else "")),
        ("training", f"{training.precision}, ZeRO {training.zero_stage}, {plan.recipe.framework}"),
        ("batch", batch),
        ("memory", memory),
        ("steps", f"{geometry.total_steps} of {geometry.tokens_per_step} tokens = {geometry.tokens} tokens"),
        ("checkpoints", checkpoints),
        ("at risk", _at_risk(plan)),
        ("time limit", f"{show_duration(plan.recipe.resources.walltime)} a job, the signal {lead} before"),
        ("jobs", jobs),
        ("speed", str(estimate.speed or "")),
        ("node-hours", node_hours),
        ("charged", charged),
        ("login nodes", _login(plan)),
        ("sbatch", options),
    ]
