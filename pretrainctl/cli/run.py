"""Commands on runs: parse, call one workflow, show."""

from __future__ import annotations

import pwd
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pretrainctl.cli import view
from pretrainctl.cli.plan import Cluster
from pretrainctl.errors import CheckpointError, InputError, SlurmError
from pretrainctl.units import show_duration, show_estimate

if TYPE_CHECKING:
    from pretrainctl.schema.plan import Plan
    from pretrainctl.workflows.status import RunStatus

__all__ = ["Json", "RunName", "Sets", "register"]

RunName = Annotated[str, typer.Argument(metavar="RUN", help="Name or folder of a run.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value.")]


def register(app: typer.Typer) -> None:
    """Add the commands on runs to the app."""
    for command in (launch, status, logs, metrics, checkpoints, reconcile):
        app.command()(command)


def launch(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="Name or path of a recipe.")],
    cluster: Cluster = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Default: the recipe's and the time.")] = None,
    set_values: Sets = None,
    mail_type: Annotated[str | None, typer.Option(metavar="TYPES", help="As sbatch's: BEGIN, END, FAIL ...")] = None,
    mail_user: Annotated[str | None, typer.Option(metavar="USER", help="As sbatch's.")] = None,
    test_only: Annotated[
        bool, typer.Option("--test-only", help="Ask Slurm whether it would take the job, and when; submit nothing.")
    ] = False,
    ask_above: Annotated[float, typer.Option(metavar="HOURS", help="Ask before more node-hours.")] = 100.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Plan, render and submit a run; it then carries itself to its token target."""
    from pretrainctl.workflows.launch import launch as launch_run
    from pretrainctl.workflows.launch import test_launch

    if test_only:
        plan, said = test_launch(recipe, cluster, set_values=set_values or [], name=name)
        if as_json:
            view.print_json({"run": plan.name, "summary": plan.summary(), "warnings": plan.warnings, "slurm": said})
        else:
            view.note(plan.summary())
            for line in plan.warnings:
                view.note(f"warning: {line}")
            print(said)
        return

    def confirm(plan: Plan, run_dir: Path) -> bool:
        hours, known = plan.node_hours, plan.estimate.jobs is not None
        view.note(f"run {plan.name} in {run_dir}: {plan.summary()}")
        view.note(plan.cost())
        for line in plan.warnings:
            view.note(f"warning: {line}")
        for line in plan.notes:
            view.note(f"note: {line}")
        if yes or (known and hours <= ask_above):
            return True
        if not sys.stdin.isatty():
            says = f"{show_estimate(hours)} node-hours are more than {ask_above:g}" if known else plan.cost()
            raise InputError(
                f"{says}, and nobody can be asked",
                hint="give --yes" + (", or a higher --ask-above" if known else ", or say resources.seconds_per_step"),
            )
        return typer.confirm(f"Submit {show_estimate(hours)} node-hours?" if known else "Submit it?", err=True)

    launched = launch_run(
        recipe,
        cluster,
        set_values=set_values or [],
        name=name,
        confirm=confirm,
        mail_type=mail_type,
        mail_user=mail_user,
    )
    if launched is None:
        view.note("nothing was submitted")
        raise typer.Exit(1)
    run_name = launched.run.record.name
    for message in launched.messages:
        view.note(message)
    if as_json:
        view.print_json(
            {
                "run": launched.run.record.name,
                "path": str(launched.run.path),
                "job_ids": launched.job_ids,
                "node_hours_per_job": launched.plan.estimate.node_hours_per_job,
                "warnings": launched.plan.warnings,
            }
        )
    else:
        print(f"submitted {launched.run.record.name}: job {', '.join(map(str, launched.job_ids))}")
        view.note(f"watch it with `pretrainctl status {run_name}`, or `pretrainctl logs -f {run_name}`")


def status(
    name: Annotated[str | None, typer.Argument(metavar="RUN", help="A run; default: all.")] = None,
    as_json: Json = False,
) -> None:
    """Where a run stands, or all runs."""
    from pretrainctl.workflows.status import survey

    found = survey(name)
    problems = [*found.problems, *(f"{run.name}: {text}" for run in found.runs for text in run.warnings)]
    for problem in problems if name is None else found.problems:
        view.note(f"warning: {problem}")
    if as_json:
        view.print_json(found.runs[0] if name is not None else found.runs)
    elif name is not None:
        view.print_pairs(_describe(found.runs[0]))
    elif not found.runs:
        view.note("no runs here; `pretrainctl launch` makes one, PRETRAINCTL_RUNS names other folders to look in")
    else:
        view.print_table(
            ("RUN", "PHASE", "STEP", "LOSS", "ATTEMPTS", "JOB", "STATE", "LAST EVENT"),
            [
                (
                    run.name,
                    run.phase,
                    _progress(run),
                    view.show_number(run.loss, ".4f"),
                    str(run.attempts),
                    str(run.job_id or "-"),
                    _with_user_name(run.job_state) or "-",
                    f"{run.last_event} ({view.ago(run.last_event_time)})",
                )
                for run in found.runs
            ],
        )
    _say_no_job(found.runs)


def _say_no_job(runs: Sequence[RunStatus]) -> None:
    without = [run for run in runs if run.phase == "no_job"]
    if without:
        name = f" {without[0].name}" if len(without) == 1 else ""
        view.note(f"no_job: nothing of it is in the queue; `pretrainctl reconcile{name}` looks into it")


def _progress(run: RunStatus) -> str:
    return f"{run.step or 0}/{run.target_steps}"


def _describe(run: RunStatus) -> list[tuple[str, str]]:
    start = "" if run.expected_start is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(run.expected_start))
    return [
        ("run", run.name),
        ("folder", run.path),
        ("cluster", run.cluster),
        ("phase", f"{run.phase}{_start_of(run)}"),
        ("step", f"{_progress(run)}" + (f" ({view.ago(run.last_sample_time)})" if run.last_sample_time else "")),
        ("tokens", "" if run.tokens is None else f"{run.tokens:,}"),
        ("loss", "" if run.loss is None else f"{run.loss:.4f}"),
        ("attempts", f"{run.attempts}, restarts inside them {run.restarts}"),
        ("job", "" if run.job_id is None else f"{run.job_id} {_with_user_name(run.job_state)}"),
        ("nodes", ", ".join(run.nodes) + (f"; dead: {', '.join(run.dead_nodes)}" if run.dead_nodes else "")),
        ("waits for", run.reason),
        ("expected start", start),
        ("chained jobs queued", str(run.queued_jobs)),
        ("went back", run.went_back),
        ("warning", "; ".join(run.warnings)),
        ("last event", f"{run.last_event} ({view.ago(run.last_event_time)})" if run.last_event else ""),
    ]


def _start_of(run: RunStatus) -> str:
    """For how long it has been starting, its last sign of life, and how long the next may take."""
    if run.started is None:
        return ": its program was not started yet" if run.phase == "starting" else ""
    said = f"{run.sign}, {view.ago(run.sign_time)}" if run.sign else "none yet"
    if run.hung_after is not None:
        said += (
            f"; a first step may take minutes: hung after {show_duration(run.hung_after)} without a sign, not before"
        )
    return f" for {view.ago(run.started).removesuffix(' ago')}; last sign of life: {said}"


def _with_user_name(state: str) -> str:
    """`CANCELLED by 1000` with the user's name, where this host knows it."""
    words, by, number = state.partition(" by ")
    if not by or not number.isdigit():
        return state
    try:
        return f"{words} by {pwd.getpwuid(int(number)).pw_name}"
    except KeyError:
        return state


def logs(
    name: RunName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come, over restarts.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, metavar="N", help="Last lines to print.")] = 40,
    attempt: Annotated[int | None, typer.Option(metavar="N", help="Of this attempt.")] = None,
    restart: Annotated[int | None, typer.Option(metavar="N", help="Of this restart.")] = None,
    as_json: Json = False,
) -> None:
    """The training log: its last lines, or followed over restarts and attempts."""
    from pretrainctl.workflows import logs as workflow

    silence = workflow.why_silent(name, attempt, restart) if lines else ""
    if silence and (follow or not as_json):
        view.note(silence)
    if follow:
        for new in workflow.follow_log(name, lines):
            if new.of_program:
                print(new.text, flush=True)
            else:
                view.note(f"--- pretrainctl: {new.text}")
        return
    found = workflow.log_lines(name, lines, attempt, restart)
    if as_json:
        view.print_json({"file": str(workflow.log_file(name, attempt, restart)), "lines": found})
        return
    for line in found:
        print(line)


def metrics(name: RunName, as_json: Json = False) -> None:
    """Tokens per second, step time, loss, and what restarts cost."""
    from pretrainctl.workflows.metrics import summarize_run

    summary = summarize_run(name)
    if as_json:
        view.print_json(summary)
    else:
        view.print_pairs(view.describe_summary(summary))


def checkpoints(
    name: RunName,
    verify: Annotated[bool, typer.Option("--verify", help="Read every byte, too, against its checksum.")] = False,
    as_json: Json = False,
) -> None:
    """Checkpoints of a run: complete, incomplete or corrupt, and why.

    Without --verify the names and sizes of all shards are looked at, and the directory inside each file, not the bytes
    of the weights. With it, what is corrupt is recorded, so that no start takes it; exit status 8 where something is.
    """
    from pretrainctl.workflows.checkpoints import Verified, list_checkpoints, verify_checkpoints

    with view.byte_progress("reading", shown=verify) as tell:
        found = verify_checkpoints(name, tell) if verify else Verified(tuple(list_checkpoints(name)))
    if as_json:
        view.print_json(found.checkpoints)
    else:
        view.print_table(
            ("TAG", "STEP", "STATUS", "BYTES", "REASON"),
            [(item.tag, str(item.step), item.status.value, str(item.size), item.reason) for item in found.checkpoints],
        )
    for text in found.notes:
        view.note(f"warning: {text}")
    if verify and found.corrupt:
        view.note(f"error: corrupt, {len(found.corrupt)} of {len(found.checkpoints)}: {', '.join(found.corrupt)}")
        raise typer.Exit(CheckpointError.exit_code)


def reconcile(
    name: Annotated[str | None, typer.Argument(metavar="RUN", help="A run; default: all.")] = None,
    as_json: Json = False,
) -> None:
    """One look that repairs the ledger and tops up the queue; safe to repeat, fit for cron.

    Exit status 5 where a run could not be looked at: Slurm did not answer, or its folder cannot be read or written.
    """
    from pretrainctl.workflows.reconcile import reconcile as look

    found = look(name)
    if as_json:
        view.print_json(found)
    else:
        for outcome in found.outcomes:
            print(f"{outcome.run}: {outcome.message}")
        if found.over:
            other = "other " if found.outcomes else ""
            view.note(f"{found.over} {other}run{'s are' if found.over > 1 else ' is'} finished or stopped")
    for problem in found.problems:
        view.note(f"warning: {problem}")
    if found.unknown:
        raise typer.Exit(SlurmError.exit_code)
