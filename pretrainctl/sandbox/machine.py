"""The sandbox as a whole: up, down, status, and the faults of single nodes."""

from __future__ import annotations

import contextlib
import fcntl
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pretrainctl import process
from pretrainctl.errors import CommandError, InputError, MissingError, PretrainctlError
from pretrainctl.sandbox import daemons, processes
from pretrainctl.sandbox import layout as places
from pretrainctl.sandbox.layout import Layout, Settings, Shape
from pretrainctl.sandbox.processes import Process

__all__ = ["NodeStatus", "Sandbox", "SandboxStatus"]


@dataclass(frozen=True)
class NodeStatus:
    """A node: `state` as sinfo names it (`?` when Slurm does not answer), the pid of its slurmd or None."""

    name: str
    state: str
    pid: int | None
    silent: bool
    """Its processes are stopped: it holds its connections and answers nobody."""


@dataclass(frozen=True)
class SandboxStatus:
    """What runs of a sandbox; `up` only when all control daemons run and Slurm answers."""

    root: str
    cluster: str
    slurm_conf: str
    up: bool
    daemons: dict[str, int | None]
    """Control daemon -> pid."""
    nodes: tuple[NodeStatus, ...]


def _quiet(_line: str) -> None:
    """Say nothing."""


class Sandbox:
    """A real Slurm on this machine, in the folder `root`; several can be up beside each other.

    Its ports are open to other machines too, and answer only who has the munge key in `root`, that is this user.
    `say` is told what happens, a line each. Every method looks at the machine afresh.
    """

    def __init__(self, root: Path | None = None, *, say: Callable[[str], None] = _quiet) -> None:
        self.layout = Layout.at(root if root is not None else places.default_root())
        self._say = say

    @property
    def root(self) -> Path:
        """The sandbox's folder, absolute."""
        return self.layout.root

    @property
    def shape(self) -> Shape | None:
        """The shape of the last `up`, or None."""
        settings = places.load(self.layout)
        return settings.shape if settings is not None else None

    @property
    def cluster(self) -> str:
        """Slurm's name of the cluster, empty before the first `up`; no process is asked."""
        settings = places.load(self.layout)
        return settings.cluster if settings is not None else ""

    @property
    def runs(self) -> bool:
        """Whether any of its control daemons runs: not after `down`, but where only some of them are away."""
        return any(name in self._daemons() for name in daemons.CONTROL_DAEMONS)

    def env(self) -> dict[str, str]:
        """What a shell needs so that plain sbatch, squeue, sacct ... speak to this sandbox."""
        return {"SLURM_CONF": str(self.layout.slurm_conf), places.ROOT_VARIABLE: str(self.root)}

    def environment(self) -> dict[str, str]:
        """A whole environment for a program that shall use this sandbox and no other Slurm."""
        return {**daemons.client_environment(self.layout), **self.env()}

    def command(self, *argv: str, timeout: float = 30.0, check: bool = True) -> process.Completed:
        """Run one of Slurm's commands against this sandbox; `timeout` in seconds, errors as `process.run`."""
        return process.run(argv, timeout=timeout, env=self.environment(), check=check)

    # up and down

    def up(self, shape: Shape | None = None) -> SandboxStatus:
        """Start what does not run, and wait until every node takes jobs.

        Without `shape`, the sandbox's last one. InputError when it runs in another shape. What a crash left
        behind is ended first, jobs included; the history of jobs is kept. A start that fails leaves nothing.
        """
        with self._lock():
            known = places.load(self.layout)
            running = self._daemons()
            if "slurmctld" in running and known is not None:
                if shape not in (None, known.shape):
                    raise InputError(
                        f"the sandbox in {self.root} runs in another shape: {known.shape.words()}",
                        hint="take it down first: pretrainctl sandbox down",
                    )
                self._start_missing(known, running)
                return self.status()
            left = len(self._members())
            if left:
                self._say(f"ending {left} processes that a crash left behind")
                self._end_all()
            shape = shape or (known.shape if known is not None else Shape())
            try:
                self._start_missing(self._configure(shape), {})
                return self.status()
            except BaseException:
                self._end_all()
                raise

    def _configure(self, shape: Shape) -> Settings:
        settings = places.choose(self.layout, shape)
        places.save(self.layout, settings)
        daemons.write_configuration(self.layout, settings)
        return settings

    def _start_missing(self, settings: Settings, running: dict[str, Process]) -> None:
        control = [name for name in daemons.CONTROL_DAEMONS if name not in running]
        nodes = [name for name in settings.shape.names if name not in running or running[name].stopped]
        if not control and not nodes:
            self._say(f"the sandbox is up already: {settings.shape.words()}")
            return
        for name in control:
            self._say(f"starting {name}")
            daemons.start_daemon(self.layout, settings, name, say=self._say)
            if name == "slurmdbd":
                daemons.add_accounts(self.layout, settings.cluster)
            if name == "slurmctld":
                # jobs that a former life left in the queue must not start by themselves
                self._cancel_all()
        if nodes:
            self._say(f"starting {len(nodes)} of {settings.shape.nodes} nodes")
            self._start_nodes(nodes, timeout=60.0)

    def down(self) -> int:
        """End every process of the sandbox, jobs included; how many there were. The history of jobs is kept."""
        if not self.root.is_dir():
            return 0
        with self._lock():
            count = len(self._members())
            if count:
                self._say("cancelling the jobs and stopping the daemons")
                self._end_all()
            self.layout.forget_short()
            return count

    def _end_all(self) -> None:
        """Jobs and nodes at once, the daemons that keep records gently."""
        if "slurmctld" in self._daemons():
            with contextlib.suppress(PretrainctlError):
                self._cancel_all()
        control = [f"{name}@{self.root}" for name in daemons.CONTROL_DAEMONS]
        processes.kill(lambda: {one for one in self._members() if one.daemon not in control})
        for name in reversed(daemons.CONTROL_DAEMONS):
            self._end_gently(self._finder(name))
        processes.kill(self._members)

    @staticmethod
    def _end_gently(find: Callable[[], set[Process]]) -> None:
        for one in find():
            processes.send(one, signal.SIGTERM)
        if not processes.wait_until(lambda: not find(), 10.0):
            processes.kill(find)

    def reset(self, *, timeout: float = 60.0) -> None:
        """Cancel every job, bring back every node, and wait at most `timeout` seconds until all is idle.

        A node that a job does not leave within 2 s is rebooted, and given up by Slurm before: it asks a node that
        has lost a job again and again for that job's end, at growing intervals of up to 45 s.
        """
        self._cancel_all()
        with self._lock():
            dead = [node.name for node in self.status().nodes if node.pid is None or node.silent]
            if dead:
                self._start_nodes(dead, timeout=timeout)
        if not processes.wait_until(self._no_jobs, 2.0):
            with self._lock():
                held = [node.name for node in self.status().nodes if node.state != "idle"]
                if held:
                    names = f"nodename={','.join(held)}"
                    self.command("scontrol", "update", names, "state=down", "reason=reset", check=False)
                    self._start_nodes(held, timeout=timeout)
        daemons.wait_for(self._no_jobs, timeout, "every job's end", self.layout.log / "slurmctld.log")
        # Slurm drains a node that surprised it, such as by a job of a former controller's.
        self._wait_for_nodes([node.name for node in self.status().nodes], since=0.0, timeout=2 * timeout)

    # faults

    def kill_node(self, name: str, *, silent: bool = False) -> int:
        """Let a node die at once: SIGKILL for its slurmd, its slurmstepds and all that they started.

        `silent`: all of them are stopped instead, so that no connection closes and nobody answers, as after a
        power cut. Returns how many processes it were. MissingError when nothing of the node runs. Out of reach is
        only a process of a job that threw away its environment and its parents (`env -i`, then a double fork).
        """
        self._check_node(name)
        find = self._finder(name)
        count = len(processes.freeze(find)) if silent else processes.kill(find)
        if not count:
            raise MissingError(f"nothing of {name} runs", hint=f"pretrainctl sandbox revive-node {name}")
        return count

    def revive_node(self, name: str, *, timeout: float = 60.0) -> None:
        """Start a node again as if it had rebooted, and wait at most `timeout` seconds until it takes jobs.

        On a node that lives, only the wait.
        """
        self._check_node(name)
        with self._lock():
            running = self._daemons().get(name)
            if running is None or running.stopped:
                self._start_nodes([name], timeout=timeout)
            else:
                self._wait_for_nodes([name], since=0.0, timeout=timeout)

    def _check_node(self, name: str) -> None:
        shape = self.shape
        if shape is None:
            raise MissingError(f"there is no sandbox in {self.root}", hint="pretrainctl sandbox up")
        if name not in shape.names:
            raise InputError(f"there is no node {name!r}", hint=f"the nodes are {', '.join(shape.names)}")

    def _start_nodes(self, names: list[str], *, timeout: float) -> None:
        processes.kill(self._finder(*names))
        # Slurm tells a slurmd from its predecessor by the second of its start
        last = max(self._slurmd_starts().values(), default=0.0)
        processes.wait_until(lambda: time.time() >= last + 1.0, 1.0)
        since = float(int(time.time()))
        for name in names:
            daemons.start_node(self.layout, name)
        self._wait_for_nodes(names, since=since, timeout=timeout)

    def _wait_for_nodes(self, names: list[str], *, since: float, timeout: float) -> None:
        """Until Slurm has heard of slurmds started `since` then: before, it knows the nodes of a former life."""

        def ready() -> bool:
            for name in names:
                if daemons.has_ended(f"{name}@{self.root}"):
                    daemons.ended(self.layout, name)
            states, starts = self._node_states(), self._slurmd_starts()
            late = [name for name in names if starts.get(name, 0.0) < since or not _takes_jobs(states.get(name, ""))]
            held = [name for name in late if starts.get(name, 0.0) >= since and _is_held(states.get(name, ""))]
            if held:
                self.command("scontrol", "update", f"nodename={','.join(held)}", "state=resume", check=False)
            return not late

        daemons.wait_for(ready, timeout, "every node", self.layout.log / "slurmctld.log")

    # looking

    def status(self) -> SandboxStatus:
        """What runs now; asks Slurm only when its controller runs."""
        shape = self.shape
        running = self._daemons()
        states = self._node_states() if "slurmctld" in running else {}
        nodes = tuple(
            NodeStatus(
                name=name,
                state=states.get(name, "?"),
                pid=running[name].pid if name in running else None,
                silent=name in running and running[name].stopped,
            )
            for name in (shape.names if shape is not None else ())
        )
        control = {name: running[name].pid if name in running else None for name in daemons.CONTROL_DAEMONS}
        return SandboxStatus(
            root=str(self.root),
            cluster=self.cluster,
            slurm_conf=str(self.layout.slurm_conf),
            up=bool(states) and all(pid is not None for pid in control.values()),
            daemons=control,
            nodes=nodes,
        )

    def lives(self) -> bool:
        """Whether any process of the sandbox runs, also of one whose folder is gone."""
        return bool(self._members())

    def _node_states(self) -> dict[str, str]:
        """Node -> state as sinfo names it (`idle`, `down*`); nothing while Slurm does not answer."""
        answer = self._ask("sinfo", "-h", "-N", "-o", "%N %T")
        return dict(line.split(maxsplit=1) for line in answer.splitlines())

    def _slurmd_starts(self) -> dict[str, float]:
        """Node -> when the slurmd that Slurm last heard of was started, in seconds since the epoch."""
        answer = self._ask("scontrol", "show", "node", "--oneliner")
        found = re.findall(r"^NodeName=(\S+).* SlurmdStartTime=(\d\S+)", answer, flags=re.MULTILINE)
        return {name: time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")) for name, text in found}

    def _no_jobs(self) -> bool:
        queue = self.command("squeue", "-h", "-o", "%i", check=False)
        return queue.status == 0 and not queue.stdout.strip()

    def _ask(self, *argv: str) -> str:
        try:
            return self.command(*argv, check=False).stdout
        except CommandError:
            return ""

    def _cancel_all(self) -> None:
        self.command("scancel", f"--user={daemons.user_name()}", check=False)

    def _members(self) -> set[Process]:
        return processes.members(processes.scan(), root=self.root, slurm_conf=self.layout.slurm_conf)

    def _finder(self, *names: str) -> Callable[[], set[Process]]:
        """What looks for the processes of these daemons or nodes, each time it is called."""
        return lambda: processes.members(
            processes.scan(), root=self.root, slurm_conf=self.layout.slurm_conf, names=names
        )

    def _daemons(self) -> dict[str, Process]:
        """The daemons that run, by name; slurmstepds and helpers carry the same mark and are left out."""
        return {
            str(one.daemon).partition("@")[0]: one
            for one in self._members()
            if one.daemon is not None and one.name in (*daemons.CONTROL_DAEMONS, "slurmd")
        }

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        self.layout.make()
        with (self.root / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _takes_jobs(state: str) -> bool:
    return state in ("idle", "mixed", "allocated", "completing", "planned")


def _is_held(state: str) -> bool:
    return state.startswith(("down", "drain")) and not state.endswith("*")
