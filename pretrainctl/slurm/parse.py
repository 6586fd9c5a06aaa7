"""Pure parsers of what Slurm's commands print, and the fields that we ask them for.

Slurm prints times without a zone, in the time zone of the process that asked: `zone` says which (None = this
process's own). What a field cannot tell is None, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

from pretrainctl.errors import InputError, SlurmError
from pretrainctl.records.job import Job, JobClass, JobStep
from pretrainctl.slurm.nodes import expand
from pretrainctl.slurm.states import read_exit, read_state
from pretrainctl.units import Limit, parse_printed_duration

__all__ = [
    "SACCT_FIELDS",
    "SQUEUE_FORMAT",
    "STEPS_FORMAT",
    "Submission",
    "parse_moment",
    "parse_sacct",
    "parse_sbatch",
    "parse_scontrol",
    "parse_squeue",
    "parse_steps",
    "scontrol_job",
]

# The free text (directory, name) comes last: nothing is quoted, and a name may hold the separator.
_SQUEUE_COLUMNS = {
    "JobIDRaw": "%A",
    "State": "%T",
    "Reason": "%r",
    "Partition": "%P",
    "NodeList": "%N",
    "BatchHost": "%B",
    "UID": "%U",
    "Elapsed": "%M",
    "Timelimit": "%l",
    "Submit": "%V",
    "Start": "%S",
    "End": "%e",
    "WorkDir": "%Z",
    "JobName": "%j",
}
SQUEUE_FORMAT = "|".join(_SQUEUE_COLUMNS.values())
SACCT_FIELDS = (
    *("JobIDRaw", "State", "ExitCode", "Submit", "Start", "End", "Elapsed", "Timelimit"),
    *("Partition", "NodeList", "UID", "WorkDir", "JobName"),
)
STEPS_FORMAT = "%i|%j"

_RESIZED = "RESIZING"
_NOTHING = ("", "none", "unknown", "n/a", "(null)")


def parse_moment(text: str, zone: tzinfo | None = None) -> float | None:
    """Epoch seconds of a time as Slurm prints it (`standard`: 2026-03-29T02:30:00), or None."""
    if text.strip().lower() in _NOTHING:
        return None
    try:
        return datetime.fromisoformat(text.strip()).replace(tzinfo=zone).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def parse_squeue(text: str, zone: tzinfo | None = None) -> list[Job]:
    """Jobs of `squeue --noheader --format=SQUEUE_FORMAT`; SlurmError where a line is not of that form."""
    return [_without_forecasts(_job(row, zone)) for row in _rows(text, tuple(_SQUEUE_COLUMNS), "|")]


def _without_forecasts(job: Job) -> Job:
    """The controller prints the expected start and end of a job in the columns of the real ones."""
    if job.state.job_class in {JobClass.PENDING, JobClass.HELD, JobClass.REQUEUED}:
        job = replace(job, start=None, expected_start=job.start)
    return job if job.state.alive is False else replace(job, end=None)


def parse_sacct(text: str, zone: tzinfo | None = None, delimiter: str = "|") -> dict[int, list[Job]]:
    """Each job's starts, oldest first, from `sacct --duplicates --parsable2` with its header line.

    A job that was requeued under its own id has several; a Slurm step belongs to the start whose time window
    holds it, because steps of all starts carry the same job id. Only the newest start can be alive. A start
    that lost nodes on its way is one, with all the nodes that it had.
    """
    header, _, body = text.partition("\n")
    names = tuple(header.strip().split(delimiter))
    if not {"State"} < set(names) or not {"JobID", "JobIDRaw"} & set(names):
        raise _unreadable("sacct", header)
    starts: dict[int, list[Job]] = {}
    steps: list[tuple[int, float | None, Job, JobStep]] = []
    for row in _rows(body, names, delimiter):
        raw_id, _, step = (row.get("JobIDRaw") or row["JobID"]).partition(".")
        job = _job({**row, "JobIDRaw": raw_id}, zone)
        if not step:
            starts.setdefault(job.job_id, []).append(job)
        elif job.job_id in starts:
            printed_after = starts[job.job_id][-1]
            state = read_state(row["State"], printed_after.uid)
            record = JobStep(step, state, job.exit_code, job.exit_signal, job.nodes)
            steps.append((job.job_id, job.start, printed_after, record))
    for job_id, step_start, printed_after, record in steps:
        owner = _owner(starts[job_id], step_start, printed_after)
        found = starts[job_id][owner]
        starts[job_id][owner] = replace(found, steps=(*found.steps, record))
    return {job_id: _in_order(found) for job_id, found in starts.items()}


def _owner(starts: Sequence[Job], moment: float | None, printed_after: Job) -> int:
    holding = [
        index
        for index, job in enumerate(starts)
        if moment is not None
        and job.start is not None
        and job.start <= moment
        and (job.end is None or moment <= job.end)
    ]
    if holding:
        return max(holding, key=lambda index: starts[index].start or 0.0)
    same = [index for index, job in enumerate(starts) if job.start == printed_after.start]
    return same[-1]


def _in_order(parts: Iterable[Job]) -> list[Job]:
    starts: list[Job] = []
    for part in sorted(parts, key=lambda job: (_or_last(job.submit), _or_last(job.start))):
        if starts and starts[-1].state.text == _RESIZED:
            starts[-1] = _joined(starts[-1], part)
        else:
            starts.append(part)
    older = [replace(job, state=replace(job.state, alive=False)) for job in starts[:-1]]
    return [replace(job, restart=index) for index, job in enumerate([*older, *starts[-1:]])]


def _or_last(moment: float | None) -> float:
    return float("inf") if moment is None else moment


def _joined(before: Job, after: Job) -> Job:
    """One start of a job that lost nodes and went on (--no-kill): accounting writes each size as an entry."""
    return replace(
        after,
        submit=before.submit,
        start=before.start,
        elapsed=(before.elapsed or 0.0) + (after.elapsed or 0.0),
        nodes=tuple(dict.fromkeys((*before.nodes, *after.nodes))),
        steps=(*before.steps, *after.steps),
    )


def parse_steps(text: str) -> dict[str, str]:
    """Slurm step id (`123.0`) by step name, from `squeue --steps --format=STEPS_FORMAT`."""
    return {name: step for step, _, name in (line.partition("|") for line in text.splitlines() if line)}


def _rows(text: str, names: Sequence[str], delimiter: str) -> list[dict[str, str]]:
    rows = []
    for line in text.splitlines():
        if not line.strip():
            continue
        values = line.split(delimiter, len(names) - 1)
        if len(values) != len(names):
            raise _unreadable("Slurm", line)
        rows.append(dict(zip(names, values, strict=True)))
    return rows


def _job(row: Mapping[str, str], zone: tzinfo | None) -> Job:
    try:
        uid = int(row["UID"]) if row.get("UID") else None
        exit_code, exit_signal = read_exit(row.get("ExitCode", ""))
        return Job(
            job_id=int(re.split(r"[_+]", row.get("JobIDRaw") or row["JobID"])[0]),
            name=row.get("JobName", ""),
            state=read_state(row["State"], uid),
            exit_code=exit_code,
            exit_signal=exit_signal,
            reason="" if row.get("Reason", "None") == "None" else row["Reason"],
            partition=row.get("Partition", ""),
            nodes=expand(row.get("NodeList", "")),
            batch_host=host if (host := row.get("BatchHost", "").strip()).lower() not in _NOTHING else "",
            submit=parse_moment(row.get("Submit", ""), zone),
            start=parse_moment(row.get("Start", ""), zone),
            end=parse_moment(row.get("End", ""), zone),
            elapsed=_seconds(row.get("Elapsed", "")),
            time_limit=_seconds(row.get("Timelimit", "")),
            restart=int(row.get("Restarts", "0")),
            uid=uid,
            work_dir=row.get("WorkDir", ""),
            comment=row.get("Comment", ""),
        )
    except (ValueError, InputError) as error:
        raise _unreadable("Slurm", "|".join(row.values())) from error


def _seconds(text: str) -> float | None:
    read = parse_printed_duration(text)
    return None if isinstance(read, Limit) else read


def _unreadable(program: str, line: str) -> SlurmError:
    hint = "the state of these jobs is unknown; report this line"
    return SlurmError(f"{program} printed a line that cannot be read: {line[:200]!r}", hint=hint, stdout=line)


# Nothing in this output is quoted, so it is cut at the keys that Slurm is known to print.
_SCONTROL_KEYS = """
    JobId ArrayJobId ArrayTaskId ArrayTaskThrottle HetJobId HetJobOffset HetJobIdSet JobName UserId GroupId
    MCS_label Priority Nice Account QOS WCKey JobState Reason FailedNode Dependency Requeue Restarts BatchFlag
    Reboot ExitCode DerivedExitCode RunTime TimeLimit TimeMin SubmitTime EligibleTime AccrueTime StartTime
    EndTime ResizeTime Deadline PreemptEligibleTime PreemptTime SuspendTime SecsPreSuspend LastSchedEval Scheduler
    Partition AllocNode:Sid ReqNodeList ExcNodeList NodeList SchedNodeList BatchHost NumNodes NumCPUs NumTasks
    CPUs/Task ReqB:S:C:T TRES ReqTRES AllocTRES Socks/Node NtasksPerN:B:S:C NtasksPerTRES:0 CoreSpec
    ThreadSpec MinCPUsNode MinMemoryNode MinMemoryCPU MinTmpDiskNode Features BatchFeatures ClusterFeatures
    Prefer DelayBoot Reservation OverSubscribe Contiguous Licenses LicensesAlloc Network Command SubmitLine
    WorkDir AdminComment SystemComment Comment Extra StdErr StdIn StdOut Power BurstBuffer BurstBufferState
    Switches CpusPerTres MemPerTres TresBind TresFreq TresPerJob TresPerNode TresPerSocket TresPerTask
    MailUser MailType Container ContainerID SegmentSize StepMgrEnabled OOMKillStep KillOInInvalidDependent
    GresEnforceBind FedOrigin FedViableSiblings FedActiveSiblings ResvPorts SLUID
"""
_SCONTROL_KEY = re.compile(rf"(?:^|\s)({'|'.join(map(re.escape, _SCONTROL_KEYS.split()))})=")


def parse_scontrol(text: str) -> list[dict[str, str]]:
    """The fields of each job of `scontrol --oneliner show job`, values with their blanks and `=`."""
    jobs = []
    for line in text.splitlines():
        keys = list(_SCONTROL_KEY.finditer(line))
        ends = [match.start() for match in keys[1:]] + [len(line)]
        if keys:
            jobs.append({key[1]: line[key.end() : end].strip() for key, end in zip(keys, ends, strict=True)})
    return jobs


def scontrol_job(fields: Mapping[str, str], zone: tzinfo | None = None) -> Job:
    """The job of one entry of `parse_scontrol`."""
    names = {
        "JobId": "JobIDRaw",
        "JobState": "State",
        "RunTime": "Elapsed",
        "TimeLimit": "Timelimit",
        "SubmitTime": "Submit",
        "StartTime": "Start",
        "EndTime": "End",
    }
    row = {names.get(key, key): value for key, value in fields.items()}
    uid = re.search(r"\((\d+)\)$", row.get("UserId", ""))
    if "State" not in row or "JobIDRaw" not in row:
        raise _unreadable("scontrol", " ".join(f"{key}={value}" for key, value in fields.items()))
    return _without_forecasts(_job({**row, "UID": uid[1] if uid else ""}, zone))


@dataclass(frozen=True)
class Submission:
    """What sbatch answered: the job, the cluster where it named one, and the site's messages for the user."""

    job_id: int
    cluster: str | None = None
    messages: tuple[str, ...] = ()


_PARSABLE_ID = re.compile(r"(\d+)(?:;(\S+))?")
_SENTENCE_ID = re.compile(r"Submitted batch job (\d+)(?: on cluster (\S+))?")


def parse_sbatch(stdout: str, stderr: str = "") -> Submission | None:
    """The job that sbatch names on stdout, or None; sites print messages before and after it.

    It is the last line of only digits or `digits;cluster` (--parsable), or the sentence.
    """
    lines = [line.strip() for line in stdout.splitlines() if line.strip()]
    for pattern in (_PARSABLE_ID, _SENTENCE_ID):
        for index in reversed(range(len(lines))):
            match = pattern.fullmatch(lines[index])
            if match:
                others = lines[:index] + lines[index + 1 :]
                said = [line.strip() for line in stderr.splitlines() if line.strip()]
                return Submission(int(match[1]), match[2], (*others, *said))
    return None
