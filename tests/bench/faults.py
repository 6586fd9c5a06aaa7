"""Faults for the random-schedule test: each strikes one run on a sandbox, and what it broke is mended later.

A fault that finds nothing to strike (no rank runs just now) does nothing, and says so.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from pretrainctl.records.run import AttemptRecord
from pretrainctl.runs.folder import RunFolder
from pretrainctl.sandbox import Sandbox, daemons, layout, processes
from tests.sandbox.training_runs import TrainingRun, rank_process, wait_until

__all__ = ["FAULTS", "Scene"]


@dataclass
class Scene:
    """A run on its sandbox. `u` numbers in [0, 1), drawn before the run, choose victims and durations."""

    run: TrainingRun
    sandbox: Sandbox
    repairs: list[tuple[float, str, Callable[[], None]]] = field(default_factory=list)
    """When (monotonic s), what, and how."""
    used: set[str] = field(default_factory=set)

    def later(self, seconds: float, what: str, how: Callable[[], None]) -> None:
        """Mend something after `seconds`."""
        self.repairs.append((time.monotonic() + seconds, what, how))

    def mend(self, *, all_of_it: bool = False) -> list[str]:
        """Do the repairs whose time has come, in order; what was done."""
        due = sorted(one[:2] for one in self.repairs if all_of_it or one[0] <= time.monotonic())
        done = []
        for key in due:
            repair = next(one for one in self.repairs if one[:2] == key)
            self.repairs.remove(repair)
            repair[2]()
            done.append(repair[1])
        return done

    def owner(self) -> AttemptRecord | None:
        """The newest attempt."""
        attempts = RunFolder(self.run.folder).attempts()
        return attempts[-1] if attempts else None


def _pick(names: list[str], u: float) -> str:
    return names[int(u * len(names))]


def _rank(scene: Scene, u: float, number: signal.Signals) -> str:
    launch = json.loads((scene.run.folder / "bundle" / "launch.json").read_text())
    ranks = list(range(launch["srun"]["nodes"] * launch["srun"]["tasks_per_node"]))
    rank = int(_pick([str(rank) for rank in ranks], u))
    try:
        pid = rank_process(scene.run, rank)
        os.kill(pid, number)
    except (AssertionError, ProcessLookupError):
        return f"rank {rank} does not run"
    return f"{number.name} to rank {rank}"


def rank_killed(scene: Scene, u: float, _v: float) -> str:
    """SIGKILL of one rank."""
    return _rank(scene, u, signal.SIGKILL)


def rank_terminated(scene: Scene, u: float, _v: float) -> str:
    """SIGTERM to one rank: it means save."""
    return _rank(scene, u, signal.SIGTERM)


def rank_stopped(scene: Scene, u: float, _v: float) -> str:
    """SIGSTOP of one rank, for good."""
    return _rank(scene, u, signal.SIGSTOP)


def _processes(scene: Scene, name: str) -> set[processes.Process]:
    where = scene.sandbox.layout
    return processes.members(processes.scan(), root=where.root, slurm_conf=where.slurm_conf, names=[name])


def _revive(scene: Scene, name: str) -> None:
    """Boot a node anew and wait for nothing: Slurm itself may be away."""
    processes.kill(lambda: _processes(scene, name))
    daemons.start_node(scene.sandbox.layout, name)


def _node(scene: Scene, u: float, v: float, *, host: bool, silent: bool) -> str:
    owner = scene.owner()
    if owner is None:
        return "no job runs"
    nodes = [owner.host] if host else [node for node in owner.nodes if node != owner.host]
    name = _pick(nodes, u)
    if any(what == f"revive {name}" for _, what, _ in scene.repairs):
        return f"{name} is dead already"
    scene.sandbox.kill_node(name, silent=silent)
    scene.later(4 + 16 * v, f"revive {name}", lambda: _revive(scene, name))
    return f"{name} is {'silent' if silent else 'killed'}"


def node_killed(scene: Scene, u: float, v: float) -> str:
    """A node that does not carry the batch script dies, and comes back after 4 to 20 s."""
    return _node(scene, u, v, host=False, silent=False)


def node_silent(scene: Scene, u: float, v: float) -> str:
    """The same, and no connection closes."""
    return _node(scene, u, v, host=False, silent=True)


def host_killed(scene: Scene, u: float, v: float) -> str:
    """The batch host dies."""
    return _node(scene, u, v, host=True, silent=False)


def host_silent(scene: Scene, u: float, v: float) -> str:
    """The batch host is silent."""
    return _node(scene, u, v, host=True, silent=True)


def slurmd_killed(scene: Scene, u: float, v: float) -> str:
    """The slurmd of a node dies alone: what runs there lives on, until Slurm takes the node from the job."""
    owner = scene.owner()
    if owner is None:
        return "no job runs"
    name = _pick(list(owner.nodes), u)
    (pid,) = (node.pid for node in scene.sandbox.status().nodes if node.name == name)
    if pid is None:
        return f"{name} is dead already"
    os.kill(pid, signal.SIGKILL)
    scene.later(10 + 20 * v, f"revive {name}", lambda: _revive(scene, name))
    return f"the slurmd of {name} is killed"


def node_paused(scene: Scene, u: float, v: float) -> str:
    """All processes of a node stand still for 1 to 6 s, as if the network were away, and go on."""
    owner = scene.owner()
    if owner is None:
        return "no job runs"
    name = _pick(list(owner.nodes), u)
    if any(what == f"revive {name}" for _, what, _ in scene.repairs):
        return f"{name} is dead already"
    stopped = processes.freeze(lambda: _processes(scene, name))

    def go_on() -> None:
        for one in stopped:
            processes.send(one, signal.SIGCONT)

    seconds = 1 + 5 * v
    scene.later(seconds, f"{name} goes on", go_on)
    return f"{name} stands still for {seconds:.1f} s"


def _daemon(scene: Scene, name: str, seconds: float) -> str:
    pid = scene.sandbox.status().daemons[name]
    if pid is None:
        return f"{name} is away already"
    os.kill(pid, signal.SIGTERM)  # it saves what it knows: after a SIGKILL a job's number would come twice
    wait_until(lambda: scene.sandbox.status().daemons[name] is None, 20, f"the end of {name}")
    settings = layout.load(scene.sandbox.layout)
    assert settings is not None
    scene.later(
        seconds,
        f"start {name}",
        lambda: daemons.start_daemon(scene.sandbox.layout, settings, name, say=lambda _line: None),
    )
    return f"{name} is away for {seconds:.1f} s"


def controller_restarted(scene: Scene, _u: float, v: float) -> str:
    """slurmctld ends in good order, and is started again after up to 8 s."""
    return _daemon(scene, "slurmctld", 8 * v)


def database_away(scene: Scene, _u: float, v: float) -> str:
    """slurmdbd is away for up to 15 s."""
    return _daemon(scene, "slurmdbd", 15 * v)


def _alive(scene: Scene) -> str | None:
    """The job of the newest attempt, where Slurm answers and says that it runs."""
    owner = scene.owner()
    if owner is None or scene.sandbox.status().daemons["slurmctld"] is None:
        return None
    said = scene.sandbox.command("squeue", "-h", "-j", str(owner.job_id), "-t", "RUNNING", "-o", "%A", check=False)
    return said.stdout.strip() or None


def preempted(scene: Scene, _u: float, _v: float) -> str:
    """A job of a higher partition takes the nodes of the run's job, and holds them for 2 s."""
    job, owner = _alive(scene), scene.owner()
    if job is None or owner is None:
        return "no job runs"
    urgent = scene.sandbox.command(
        *("sbatch", "--parsable", "--partition=high", f"--nodelist={','.join(owner.nodes)}", "--exclusive"),
        *("--output=/dev/null", "--job-name=urgent", f"--nodes={len(owner.nodes)}", "--wrap=sleep 2"),
    ).stdout.strip()
    # Where a node that it wants is dead, it would wait for it, and keep the others.
    scene.later(60, "the urgent job is over", lambda: _quietly(scene, "scancel", urgent))
    return f"job {urgent} preempts job {job}"


def requeued(scene: Scene, _u: float, _v: float) -> str:
    """An operator requeues the job, and lets it begin at once instead of after two minutes."""
    job = _alive(scene)
    if job is None:
        return "no job runs"
    scene.sandbox.command("scontrol", "update", f"JobId={job}", "Requeue=1")
    done = scene.sandbox.command("scontrol", "requeue", job, check=False)
    scene.later(2, f"job {job} may begin", lambda: _begin(scene, job))
    return f"job {job} is requeued{': ' + done.stderr.strip() if done.status else ''}"


def _begin(scene: Scene, job: str) -> None:
    """Let a requeued job begin, once it waits: its nodes are being cleaned up before."""
    waits = scene.sandbox.command("squeue", "-h", "-j", job, "-t", "PENDING", "-o", "%A", check=False)
    if waits.stdout.strip():
        _quietly(scene, "scontrol", "update", f"JobId={job}", "StartTime=now")
    elif scene.owner() is not None and _alive(scene) is None:
        scene.later(2, f"job {job} may begin", lambda: _begin(scene, job))


def _quietly(scene: Scene, *argv: str) -> None:
    scene.sandbox.command(*argv, check=False)


def newest_truncated(scene: Scene, u: float, _v: float) -> str:
    """The last 100 bytes of a shard of the newest checkpoint are lost; once a run, and where there is an older one."""
    folder = scene.run.folder / "checkpoints"
    pointer = folder / "latest"
    newest = int(pointer.read_text().removeprefix("global_step")) if pointer.exists() else 0
    found = [int(path.name.removeprefix("global_step")) for path in folder.glob("global_step*")]
    whole = sorted(step for step in found if step <= newest)
    if len(whole) < 2 or "truncated" in scene.used:
        return "there is no older checkpoint"
    scene.used.add("truncated")
    shards = sorted((folder / f"global_step{newest}").glob("*_states.pt"))
    shard = shards[int(u * len(shards))]
    with suppress(FileNotFoundError):
        os.truncate(shard, max(0, shard.stat().st_size - 100))
    return f"{shard.relative_to(folder)} is cut"


Fault = Callable[[Scene, float, float], str]

FAULTS: dict[Fault, float] = {
    rank_killed: 3,
    rank_terminated: 1,
    node_killed: 3,
    node_silent: 2,
    host_killed: 2,
    host_silent: 1,
    node_paused: 2,
    controller_restarted: 1.5,
    database_away: 1,
    preempted: 1.5,
    requeued: 1,
    newest_truncated: 1.5,
    rank_stopped: 2,
    slurmd_killed: 2,
}
"""Each with its weight."""
