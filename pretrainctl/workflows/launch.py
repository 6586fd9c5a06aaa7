"""Launch: plan, render, make the run folder, submit."""

from __future__ import annotations

import contextlib
import getpass
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pretrainctl.catalog import ACCOUNT_VARIABLE
from pretrainctl.errors import MissingError, PretrainctlError, SlurmError
from pretrainctl.frameworks.checkpoint_owner import own, release
from pretrainctl.health.entries import ExclusionList
from pretrainctl.records.launch import Launch
from pretrainctl.records.run import RunRecord
from pretrainctl.runs import folder, ledger, snapshot
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold
from pretrainctl.schema.plan import Plan
from pretrainctl.slurm.client import Slurm
from pretrainctl.slurm.refusals import RefusalClass, read_refusal
from pretrainctl.workflows.exclusions import Avoided, avoid, avoid_at_submit, list_folder, script_excludes
from pretrainctl.workflows.interrupted import record_stop
from pretrainctl.workflows.reach import find_slurm_conf, slurm_at
from pretrainctl.workflows.render import render_bundle
from pretrainctl.workflows.take_checkpoints import refuse_taken
from pretrainctl.workflows.training_data import refuse_missing_data
from pretrainctl.workflows.training_program import refuse_missing_program
from pretrainctl.workflows.turn import give_turn
from pretrainctl.workflows.unheard import plan_warned

__all__ = ["Launched", "launch", "queue_jobs", "test_launch"]


@dataclass(frozen=True)
class Launched:
    """A run that was submitted: its folder, its plan, the Slurm jobs, and what the site said."""

    run: RunFolder
    plan: Plan
    job_ids: tuple[int, ...]
    messages: tuple[str, ...]


def launch(
    recipe: str,
    cluster: str | None,
    *,
    set_values: Sequence[str],
    name: str | None,
    confirm: Callable[[Plan, Path], bool],
    mail_type: str | None = None,
    mail_user: str | None = None,
    python: str = sys.executable,
) -> Launched | None:
    """Launch a run; None where `confirm` said no.

    Everything that can be refused is refused before the run folder is made, and so is a controller that does not
    answer; when sbatch refuses, the folder is removed again and SlurmError carries its words. Where it is not known
    whether sbatch accepted the job, the folder stays and `reconcile` finds out. After Ctrl-C or SIGTERM it stays as a
    stopped run, or is not there yet: nothing goes on by itself.
    """
    plan = plan_warned(recipe, cluster, set_values=set_values, name=name, mail_type=mail_type, mail_user=mail_user)
    run_dir = folder.roots()[0] / folder.check_name(plan.name)
    folder.refuse_existing(run_dir)
    created = time.time()
    record, _, bundle = render_bundle(plan, run_dir, python=python, salt=str(created))
    node_list = str(list_folder(plan.profile, run_dir.parent))
    refuse_missing_data(plan.recipe.model_dump(mode="json"))
    refuse_missing_program(record, run_dir, plan.profile.model_dump(mode="json"))
    checkpoints = record.checkpoint.directory
    replaced = refuse_taken(checkpoints, adopt=plan.recipe.checkpoint.adopt)
    slurm_conf, slurm = _slurm_for(plan)
    slurm_cluster = slurm.cluster_name()
    if not confirm(plan, run_dir):
        return None
    first = not run_dir.parent.exists()
    identity = replace(
        _identity(plan, record, created),
        slurm_conf=slurm_conf,
        slurm_cluster=slurm_cluster,
        node_list=node_list,
        settings=tuple(set_values),
    )
    run = folder.create(run_dir, identity, bundle)
    # Until it says that it is submitting, the run is a stopped one; from then on an interrupt stops it.
    try:
        try:
            for file, text in snapshot.take_snapshot(Path.cwd()).items():
                (run.path / "code" / file).write_text(text, encoding="utf-8")
            own(checkpoints, record.run_id, run.path, instead_of=replaced)
            ledger.append(run.path, "submitting", "the launch submits the first job")
            job_ids, messages = queue_jobs(run, record, slurm)
            return Launched(run, plan, job_ids, messages)
        except (PretrainctlError, OSError) as error:
            unknown = isinstance(error, SlurmError) and error.status is None
            if not unknown and not fold(ledger.read_events(run.path)).jobs:
                release(checkpoints, record.run_id, back_to=replaced)
                folder.discard(run)
                if first:
                    run.path.parent.rmdir()
            else:
                give_turn(run.path, f"the launch has ended: {error}")
            raise
    except (KeyboardInterrupt, SystemExit):
        if run.path.exists():
            # A job may have been accepted in this moment: it will find this and leave.
            record_stop(run.path, "the launch was interrupted")
        raise


def test_launch(recipe: str, cluster: str | None, *, set_values: Sequence[str], name: str | None) -> tuple[Plan, str]:
    """The plan of a launch, and what Slurm says to its script (`sbatch --test-only`); nothing is submitted or made.

    SlurmError with Slurm's own words where it would refuse.
    """
    plan = plan_warned(recipe, cluster, set_values=set_values, name=name)
    record, _, bundle = render_bundle(plan, folder.roots()[0] / folder.check_name(plan.name))
    refuse_taken(record.checkpoint.directory, adopt=plan.recipe.checkpoint.adopt)
    with tempfile.TemporaryDirectory(prefix="pretrainctl-") as aside:
        script = Path(aside) / "job.sbatch"
        script.write_text(bundle.files["job.sbatch"], encoding="utf-8")
        slurm = _slurm_for(plan)[1]
        nodes = ExclusionList(list_folder(plan.profile, folder.roots()[0]), plan.profile.name, slurm.cluster_name())
        excluded = script_excludes(plan.directives)
        avoided = avoid(slurm, nodes, record, partition=plan.queue.partition, own=excluded)
        with _naming_account(plan.directives):
            said = slurm.test_only(script, avoided.options)
        return plan, f"{avoided.message}\n{said}".strip()


def _slurm_for(plan: Plan) -> tuple[str, Slurm]:
    """SLURM_CONF of the Slurm that the plan goes to, empty for the host's own, and that Slurm."""
    if not Slurm().is_here():
        raise MissingError(
            "there is no Slurm here: sbatch is not on the PATH",
            hint="run this on a login node, or try it with `pretrainctl sandbox up` and `--cluster sandbox`",
        )
    slurm_conf = find_slurm_conf(plan.profile)
    return slurm_conf, slurm_at(slurm_conf)


def queue_jobs(
    run: RunFolder, launch: Launch, slurm: Slurm, *, already: int = 0
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Queue the jobs that a run has from outside, less those `already` there, each written as an event at once.

    That is one where attempts queue their own chained job, else one and the chained jobs, which run one after
    the other by their common name. Returns the job ids, and what the site said.
    """
    run.refuse_if_moved()
    job_ids: list[int] = []
    count = (1 if launch.chain == "inside" else 1 + launch.chained_jobs) - already
    avoided = avoid_at_submit(run, launch, slurm) if count > 0 else Avoided()
    messages = [avoided.message] if avoided.message else []
    if count > 0:
        ledger.refuse_unwritable(run.path)  # a job that nobody wrote down would look like none
    for left in reversed(range(count)):
        options = ["--dependency=singleton", *avoided.options]
        with _naming_account(run.planned().plan.get("directives", {})):
            submission = slurm.submit(run.script, job_name=launch.job_name, options=options, known=job_ids)
        said = f"submitted job {submission.job_id}" + (f"; {avoided.message}" if avoided.message else "")
        data = {"job_id": submission.job_id, "exclude": list(avoided.nodes), "left": left}
        ledger.append(run.path, "submitted", said, data=data)
        job_ids.append(submission.job_id)
        messages += [message for message in submission.messages if message not in messages]
    return tuple(job_ids), tuple(messages)


@contextlib.contextmanager
def _naming_account(directives: Mapping[str, str]) -> Iterator[None]:
    """Say which account was sent where Slurm refuses it: its own words name none."""
    try:
        yield
    except SlurmError as error:
        if read_refusal(error.stderr).refusal_class is RefusalClass.ACCOUNT:
            account = directives.get("account")
            sent = f"the account {account!r} was sent" if account else "no account was sent, Slurm took your default"
            error.hint = f"{sent}; cluster.account.name or {ACCOUNT_VARIABLE} names another; {error.hint}"
        raise


def _identity(plan: Plan, record: Launch, created: float) -> RunRecord:
    recipe = plan.recipe.model_dump(mode="json")
    profile = plan.profile.model_dump(mode="json")
    return RunRecord(
        name=plan.name,
        run_id=record.run_id,
        job_name=record.job_name,
        cluster=plan.profile.name,
        created=created,
        user=getpass.getuser(),
        recipe=recipe,
        profile=profile,
        plan=plan.model_dump(mode="json", exclude={"recipe", "profile"}),
        digests={"recipe": snapshot.digest(str(recipe)), "profile": snapshot.digest(str(profile))},
    )
