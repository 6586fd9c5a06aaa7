"""The Slurm of this machine, through its own commands; every call is bounded in time."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timezone
from pathlib import Path

from pretrainctl import process
from pretrainctl.errors import CommandError, MissingError, SlurmError
from pretrainctl.records.job import Job, JobClass, StateMeaning
from pretrainctl.slurm.avoidance import avoidance
from pretrainctl.slurm.environment import clean_environment, query_environment
from pretrainctl.slurm.nodes import expand, fold
from pretrainctl.slurm.parse import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    STEPS_FORMAT,
    Submission,
    parse_sacct,
    parse_sbatch,
    parse_scontrol,
    parse_squeue,
    parse_steps,
    scontrol_job,
)
from pretrainctl.slurm.refusals import Retry, one_line, read_refusal
from pretrainctl.slurm.sinfo import SINFO_FORMAT, NodeState, parse_sinfo
from pretrainctl.slurm.site import Partition, parse_config, parse_partitions

__all__ = ["Slurm"]

_QUERY_TIMEOUT = 60.0
# Longer than the MessageTimeout of any site (100 s seen), within which sbatch itself waits and tries again.
_SUBMIT_TIMEOUT = 180.0
_SUBMIT_PAUSES = (2.0, 10.0)
# Slurm prints whole seconds, and the controller's clock is not ours.
_CLOCK_SLACK = 5.0
_NO_SUCH_JOB = ("invalid job id", "already completing or completed", "job/step already")
_HINT_LOOK = "look at squeue, or give `pretrainctl reconcile`, before you submit again"
_HINT_NO_SLURM = "run this on a login node of the cluster, or start a sandbox"


class Slurm:
    """Slurm's commands as methods. What cannot be read is a SlurmError, which callers treat as unknown.

    `runner` starts programs; `env` is the environment they get, less an outer job's variables; `cluster`
    names another cluster (`--clusters`). `sleep` and `clock` are for tests.
    """

    def __init__(
        self,
        runner: process.Runner = process.run,
        env: Mapping[str, str] | None = None,
        *,
        cluster: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._runner = runner
        self._env = dict(os.environ if env is None else env)
        self._clusters = (f"--clusters={cluster}",) if cluster else ()
        self._sleep = sleep
        self._clock = clock

    def is_here(self) -> bool:
        """Whether this machine has Slurm's commands; says nothing about the controller."""
        return shutil.which("sbatch", path=self._env.get("PATH")) is not None

    # -- submitting ------------------------------------------------------------------------------------------

    def submit(
        self,
        script: Path,
        *,
        job_name: str,
        options: Sequence[str] = (),
        known: Collection[int] = (),
        submitted_after: float | None = None,
    ) -> Submission:
        """Submit `script` once and return its job.

        Where sbatch gives no id (time-out, lost connection, an empty answer) the job may be there all the
        same: it is looked up by `job_name`, among jobs submitted since `submitted_after` (default: now) that
        are neither in `known` nor the one that we run in. It is submitted again only where the lookup says
        that it is not there and sbatch did not report success. A refusal is a SlurmError with sbatch's words.
        """
        since = self._clock() if submitted_after is None else submitted_after
        argv = ("sbatch", *self._clusters, "--parsable", f"--job-name={job_name}", *options, str(script))
        for pause in (*_SUBMIT_PAUSES, 0.0):
            status, stdout, stderr = self._sbatch(argv)
            answer = parse_sbatch(stdout, stderr)
            if status == 0 and answer is not None:
                return answer
            refusal = read_refusal(stderr)
            if status is not None and status > 0 and refusal.retry is not Retry.BACK_OFF:
                raise self._refused(status, stdout, stderr)
            for wait in (0.0, pause):
                self._sleep(wait)
                found = self._look_up(job_name, since, known, stderr)
                if found is not None:
                    said = tuple(line.strip() for line in stderr.splitlines() if line.strip())
                    return Submission(found.job_id, messages=said)
            if status == 0:
                break
        raise SlurmError(
            f"sbatch named no job, and Slurm knows none named {job_name}: {one_line(stderr)}",
            hint=_HINT_LOOK,
            status=status,
            stdout=stdout,
            stderr=stderr,
        )

    def test_only(self, script: Path, options: Sequence[str] = ()) -> str:
        """Ask whether the script would be accepted, and when it would start; a refusal is a SlurmError."""
        status, stdout, stderr = self._sbatch(("sbatch", *self._clusters, "--test-only", *options, str(script)))
        if status != 0:
            raise self._refused(status, stdout, stderr)
        return (stdout + stderr).strip()

    def _sbatch(self, argv: Sequence[str]) -> tuple[int | None, str, str]:
        # The job inherits this environment (--export=ALL): no LC_ALL or TZ of ours may reach it.
        try:
            done = self._run(argv, _SUBMIT_TIMEOUT, clean_environment(self._env))
        except SlurmError as error:
            return error.status, error.stdout, error.stderr or str(error)
        return done.status, done.stdout, done.stderr

    def _refused(self, status: int | None, stdout: str, stderr: str) -> SlurmError:
        refusal = read_refusal(stderr)
        what = "Slurm refused the job" if refusal.spoke else "Slurm could not be asked"
        return SlurmError(
            f"{what}: {one_line(stderr or stdout)}",
            hint=refusal.hint,
            status=status,
            stdout=stdout,
            stderr=stderr,
        )

    def _look_up(self, name: str, since: float, known: Collection[int], stderr: str) -> Job | None:
        own = self._env.get("SLURM_JOB_ID", "")
        try:
            jobs = self._squeue((f"--name={name}", f"--user={os.getuid()}", "--states=all"))
        except SlurmError as error:
            raise SlurmError(
                f"it is unknown whether the job {name} was submitted: {error}",
                hint=_HINT_LOOK,
                stderr=f"{stderr}\n{error.stderr}".strip(),
            ) from error
        new = [
            job
            for job in jobs
            if job.name == name
            and job.job_id not in known
            and str(job.job_id) != own
            and job.submit is not None
            and job.submit >= since - _CLOCK_SLACK
        ]
        return max(new, key=lambda job: job.job_id, default=None)

    # -- asking ----------------------------------------------------------------------------------------------

    def jobs(self, ids: Sequence[int] = (), names: Sequence[str] = (), *, since: float | None = None) -> dict[int, Job]:
        """The newest start of each of these jobs, alive or ended; a job that nobody knows is absent.

        One squeue for all ids and one for all names (accounting lags behind it), then at most one sacct each,
        for what squeue does not show alive. `since` (epoch seconds, default 30 days ago) bounds the search by
        name.
        """
        found: dict[int, Job] = {}
        for chosen in _filters(ids, names):
            found.update({job.job_id: job for job in self._squeue((chosen, "--states=all"))})
        ended = [job_id for job_id in ids if job_id not in found or found[job_id].state.alive is False]
        complete = not names and found.keys() >= set(ids)
        for chosen in _filters(ended, names):
            for job_id, accounted in self._accounted(chosen, since, found, complete=complete).items():
                shown = found.get(job_id)
                if shown is None and job_id in ids and accounted.state.alive is not False:
                    # The controller has no such job: accounting lost its end, as it does ("runaway jobs").
                    lost = StateMeaning(f"{accounted.state.text} (end lost)", JobClass.UNKNOWN, alive=False)
                    found[job_id] = replace(accounted, state=lost)
                elif shown is None or (shown.state.alive is False and accounted.state.alive is False):
                    found[job_id] = replace(accounted, batch_host=shown.batch_host if shown else "")
        return found

    def _accounted(
        self, chosen: str, since: float | None, found: Mapping[int, Job], *, complete: bool
    ) -> dict[int, Job]:
        """The newest starts that accounting knows; the controller's word where there is none, or it does not answer
        and `found` is all that was asked for."""
        try:
            histories = self._sacct(chosen, since, "--allocations")
        except SlurmError as error:
            if not complete and "accounting storage is disabled" not in error.stderr.lower():
                raise
            return self._show(job.job_id for job in found.values() if job.state.alive is False)
        return {job_id: starts[-1] for job_id, starts in histories.items()}

    def history(self, ids: Sequence[int]) -> dict[int, list[Job]]:
        """All starts of these jobs with their Slurm steps, oldest first, from accounting; it may lag."""
        chosen = _filters(ids, ())
        return self._sacct(chosen[0], None) if chosen else {}

    def queued(self, name: str) -> list[Job]:
        """The user's own jobs of this name that are pending, running or ending."""
        jobs = self._squeue((f"--name={name}", f"--user={os.getuid()}"))
        return [job for job in jobs if job.name == name and job.state.alive is not False]

    def all_queued(self) -> dict[str, list[Job]]:
        """All of the user's own jobs that are pending, running or ending, by name, for one question."""
        found: dict[str, list[Job]] = {}
        for job in self._squeue((f"--user={os.getuid()}",)):
            if job.state.alive is not False:
                found.setdefault(job.name, []).append(job)
        return found

    def cluster_name(self) -> str:
        """Slurm's own name of the cluster whose controller answers; SlurmError where none does."""
        said = self._ask(("scontrol", *self._clusters, "show", "config"))
        found = re.search(r"^ClusterName\s*=\s*(\S+)", said, re.MULTILINE)
        if found is None:
            raise SlurmError("Slurm does not say what its cluster is called", stdout=said)
        return found[1]

    def step_ids(self, job_id: int) -> dict[str, str]:
        """The ids (`123.0`) of a job's live Slurm steps, by step name."""
        argv = ("squeue", *self._clusters, "--steps", f"--jobs={job_id}", "--noheader", f"--format={STEPS_FORMAT}")
        return parse_steps(self._ask(argv, nothing=_NO_SUCH_JOB))

    def node_states(self, names: Sequence[str]) -> dict[str, NodeState]:
        """What Slurm says of these nodes; a node that Slurm does not know is absent."""
        if not names:
            return {}
        return parse_sinfo(self._ask(self._sinfo(f"--nodes={','.join(names)}")))

    def partition_nodes(self, partition: str = "") -> tuple[tuple[NodeState, ...], str]:
        """The nodes of some partitions (`a,b`), and their names; those of Slurm's default one where none is named."""
        said = self._ask(self._sinfo(f"--partition={partition}" if partition else "--all"))
        default = re.search(r"^([^|\s]+)\*\|", said, re.MULTILINE)
        return tuple(parse_sinfo(said).values()), partition or (default[1] if default else "")

    def _sinfo(self, chosen: str) -> tuple[str, ...]:
        return ("sinfo", *self._clusters, "--Node", chosen, "--noheader", f"--format={SINFO_FORMAT}")

    def site(self) -> tuple[dict[str, str], dict[str, Partition]]:
        """The controller's configuration, and its partitions by name."""
        config = self._ask(["scontrol", *self._clusters, "show", "config"])
        return parse_config(config), parse_partitions(self._ask(["scontrol", *self._clusters, "show", "partition"]))

    def _squeue(self, chosen: Iterable[str]) -> list[Job]:
        argv = ("squeue", *self._clusters, "--noheader", f"--format={SQUEUE_FORMAT}", *chosen)
        return parse_squeue(self._ask(argv, nothing=_NO_SUCH_JOB), timezone.utc)

    def _sacct(self, chosen: str, since: float | None, *options: str) -> dict[int, list[Job]]:
        moment = self._clock() - 30 * 86400 if since is None else since
        start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
        window = (f"--starttime={start}",) if chosen.startswith("--name") else ()
        fields = f"--format={','.join(SACCT_FIELDS)}"
        argv = ("sacct", *self._clusters, "--duplicates", "--parsable2", *options, *window, fields, chosen)
        return parse_sacct(self._ask(argv), timezone.utc)

    def _show(self, ids: Iterable[int]) -> dict[int, Job]:
        jobs = (scontrol_job(fields, timezone.utc) for job_id in ids for fields in self._show_fields(job_id))
        return {job.job_id: job for job in jobs}

    def _show_fields(self, job_id: int) -> list[dict[str, str]]:
        argv = ("scontrol", *self._clusters, "--oneliner", "show", "job", str(job_id))
        return parse_scontrol(self._ask(argv, nothing=_NO_SUCH_JOB))

    def is_preempted(self, job_id: int) -> bool:
        """Whether Slurm is taking a job's nodes away for another job: true from the start of its grace time on.

        A job that leaves within the grace time ends as COMPLETED, so afterwards nothing tells.
        """
        fields = next(iter(self._show_fields(job_id)), {})
        return fields.get("PreemptTime", "None") not in {"None", "Unknown", ""}

    def comment(self, job_id: int) -> str:
        """The comment on a job, empty for none."""
        return next(iter(self._show_fields(job_id)), {}).get("Comment", "").removeprefix("(null)")

    # -- acting ----------------------------------------------------------------------------------------------

    def cancel(self, ids: Sequence[int], *, signal: str | None = None, timeout: float = _QUERY_TIMEOUT) -> None:
        """Cancel jobs, or send them a signal; one that has ended already is no error."""
        if ids:
            chosen = (f"--signal={signal}",) if signal else ()
            self._ask(("scancel", *self._clusters, *chosen, *map(str, ids)), timeout=timeout, nothing=_NO_SUCH_JOB)

    def exclude(
        self, job_id: int, nodes: Sequence[str], *, ours: Collection[str] = (), held: bool = False
    ) -> tuple[str, ...]:
        """Keep a pending job off `nodes`, as far as `avoidance` lets it; returns those that it may get all the same."""
        fields = next(iter(self._show_fields(job_id)), {})
        if not fields:
            return ()
        states, _ = self.partition_nodes(fields.get("Partition", ""))
        chosen = avoidance(fields, states, nodes, ours=ours, held=held)
        if set(chosen) != set(expand(fields.get("ExcNodeList", ""))):
            self.update(job_id, "ExcNodeList", fold(chosen))
        return tuple(node for node in nodes if node not in chosen)

    def update(self, job_id: int, field: str, value: str) -> None:
        """Change one field of a job, by the name that scontrol gives it."""
        self._ask(("scontrol", *self._clusters, "update", f"JobId={job_id}", f"{field}={value}"))

    # -- calling ---------------------------------------------------------------------------------------------

    def _ask(self, argv: Sequence[str], *, timeout: float = _QUERY_TIMEOUT, nothing: Sequence[str] = ()) -> str:
        """What a command printed; "" where it failed with one of the words in `nothing`."""
        done = self._run(argv, timeout, query_environment(self._env))
        if done.status == 0:
            return done.stdout
        if any(words in done.stderr.lower() for words in nothing):
            return done.stdout
        raise SlurmError(
            f"{argv[0]} failed with status {done.status}: {one_line(done.stderr)}",
            hint=read_refusal(done.stderr).hint,
            status=done.status,
            stdout=done.stdout,
            stderr=done.stderr,
        )

    def _run(self, argv: Sequence[str], timeout: float, env: Mapping[str, str]) -> process.Completed:
        try:
            return self._runner(argv, timeout=timeout, env=env, check=False)
        except MissingError as error:
            raise MissingError(f"Slurm's {argv[0]} is not on this machine", hint=_HINT_NO_SLURM) from error
        except CommandError as error:
            raise SlurmError(
                str(error),
                hint="Slurm's controller may be busy or away; nothing is known about these jobs now",
                status=error.status,
                stdout=error.stdout,
                stderr=error.stderr,
            ) from error


def _filters(ids: Sequence[int], names: Sequence[str]) -> list[str]:
    by_id = [f"--jobs={','.join(str(job_id) for job_id in ids)}"] if ids else []
    by_name = [f"--name={','.join(names)}"] if names else []
    return by_id + by_name
