"""The attempt's side: accept beats, answer them, and say which nodes are dead."""

from __future__ import annotations

import contextlib
import json
import math
import resource
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pretrainctl.liveness.beat import ANONYMOUS, GOODBYE
from pretrainctl.records.launch import LivenessRule

__all__ = ["DeadNode", "Listener", "make_room"]

_READ = 1 << 16
_LINE_LIMIT = 4096
_ANSWER_LIMIT = 1 << 20
"""Bytes of an answer about the ranks of a node; a rank's stacks are 8 KiB at most."""
_LOOK = 0.5
"""Longest wait between two looks at the clock, seconds: a longer one was this process's own absence."""
_GATHER = 0.05
"""Seconds in which what arrives is heard together: to wake for each of a thousand beats a second costs three times as
much as to hear them."""
_OVERDUE = 2.5
"""Intervals after which a beat is overdue."""
_TOGETHER = 1.5
"""Intervals within which the last beats of nodes lie that fell silent together."""
_OTHER_FILES = 256
"""Open files that the attempt may need beside the connections of its nodes."""


def make_room(nodes: int) -> str:
    """Let this process, and those that it starts, open as many files as beats of `nodes` nodes take: two each, since a
    node may come back before its old connection is seen to be closed.

    Returns why that cannot be, else an empty text. Slurm hands the login shell's soft limit to the job, often 1024.
    """
    needed = 2 * nodes + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in {soft, hard} or needed <= hard:
        if soft != resource.RLIM_INFINITY and soft < needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        return ""
    return f"{needed} open files are needed for the beats of {nodes} nodes, and the hard limit is {hard} (ulimit -Hn)"


@dataclass(frozen=True)
class DeadNode:
    """A node that is taken for dead: how it was noticed (`closed` or `silent`), and its last beat (monotonic s)."""

    node: str
    how: str
    last_beat: float


@dataclass
class _Node:
    last_beat: float
    closed_at: float | None = None


class Listener:
    """Collects the beats of one attempt.

    A node is watched from its first beat on. It is dead when its connection closed and did not come back within
    `rule.closed_after`, or when it was silent for `rule.silent_after`. When *all* of two or more nodes fall
    silent together, that is the network or this process, not the nodes: nothing is known, and nobody is dead. The
    beat of `host`, where this process runs, needs no network and is no witness of it: that rule holds for the others
    alone too. So the first silent node waits for those whose beats were overdue by then: until each has beaten, or is
    silent as well. Those that are heard again after such a silence give the others as long as they had to be heard.

    `serve` listens in a thread of its own, so that nodes are answered while the attempt waits for a slow file system
    or for Slurm: a batch host that does not answer is taken for dead.
    """

    def __init__(
        self, rule: LivenessRule, *, host: str = "", bind: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rule = rule
        self._host = host
        self.token = secrets.token_hex(16)
        self._clock = clock
        self._nodes: dict[str, _Node] = {}
        self._known_dead: set[str] = set()
        self._unknown = False
        self._names: dict[socket.socket, str] = {}
        self._buffers: dict[socket.socket, bytes] = {}
        self._selector = selectors.DefaultSelector()
        self._server = socket.create_server((bind, 0), backlog=1024)
        self._server.settimeout(0.0)
        self._selector.register(self._server, selectors.EVENT_READ)
        self._answers: dict[str, Any] = {}
        self._question = 0
        self._last_look = clock()
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that nodes connect to."""
        return int(self._server.getsockname()[1])

    def serve(self) -> None:
        """Listen from now on until `close`."""
        self._thread = threading.Thread(target=self._serve, name="beats", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._closing.wait(_GATHER):
            self._hear(_LOOK)

    def say_goodbye(self) -> None:
        """Let the nodes end their beats. Who asks whether the attempt is there is answered until `close`."""
        with self._lock:
            for connection in self._names:
                with contextlib.suppress(OSError):
                    connection.send(GOODBYE + b"\n")

    def close(self) -> None:
        """Say goodbye, and close all connections."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self.say_goodbye()
        for connection in list(self._buffers):
            self._drop(connection)
        self._selector.unregister(self._server)
        self._server.close()
        self._selector.close()

    def poll(self, timeout: float) -> None:
        """Read what has arrived, waiting at most `timeout` seconds for something to arrive."""
        deadline = self._clock() + timeout
        while True:
            self._hear(max(0.0, min(_LOOK, deadline - self._clock())))
            if self._clock() >= deadline:
                break

    def _hear(self, timeout: float) -> None:
        """Wait for something to arrive, and read what has."""
        ready = self._selector.select(timeout)
        with self._lock:
            self._forgive_own_absence()
            for key, _ in ready:
                if key.fileobj is self._server:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._receive(key.fileobj)

    def forget(self) -> None:
        """Forget the nodes whose connection is closed: their beats are being started anew."""
        with self._lock:
            self._nodes = {name: node for name, node in self._nodes.items() if node.closed_at is None}

    def seen(self) -> frozenset[str]:
        """Nodes that have beaten at least once."""
        with self._lock:
            return frozenset(self._nodes)

    def dead(self) -> tuple[DeadNode, ...]:
        """Nodes that are dead now, in order of their names."""
        with self._lock:
            gone = self._gone()
            self._known_dead &= gone.keys()
            before, self._unknown = self._unknown, self._nothing_known(gone)
            if before and not self._unknown:
                self._count_anew(gone)
            if before or self._unknown:
                gone = {name: node for name, node in gone.items() if name in self._known_dead}
            dead = self._beyond_doubt(gone)
            self._known_dead |= {node.node for node in dead}
        return tuple(dead)

    def undecided(self) -> bool:
        """Whether a silent node is not dead yet, since others may be about to fall silent too. It does not last: each
        of them beats, or is silent, within `rule.silent_after`."""
        with self._lock:
            gone = self._gone()
            return not self._nothing_known(gone) and len(self._beyond_doubt(gone)) < len(gone)

    def all_silent(self) -> bool:
        """Whether nothing is heard of any node that was ever seen, or of any but this host: the network, or this host,
        and nothing is known."""
        with self._lock:
            gone = self._gone()
            silent = (node.closed_at is not None or name in gone for name, node in self._nodes.items())
            return bool(self._nodes) and (all(silent) or self._nothing_known(gone))

    def _gone(self) -> dict[str, DeadNode]:
        """Nodes whose connection closed, or that are silent, for long enough to be dead; in order of their names."""
        now, found = self._clock(), {}
        for name, node in sorted(self._nodes.items()):
            if node.closed_at is not None and now - node.closed_at >= self.rule.closed_after:
                found[name] = DeadNode(name, "closed", node.last_beat)
            elif now - node.last_beat >= self.rule.silent_after:
                found[name] = DeadNode(name, "silent", node.last_beat)
        return found

    def _nothing_known(self, gone: Mapping[str, DeadNode]) -> bool:
        """Whether of two or more nodes that are not known to be dead none is heard, this host among them or not.

        Where it is heard, the end of the connections of all others did reach it: then they are dead.
        """
        watched = self._nodes.keys() - self._known_dead
        others = watched - {self._host}
        if len(others) > 1 and others <= gone.keys() and any(gone[name].how == "silent" for name in others):
            return True
        return len(watched) > 1 and watched <= gone.keys()

    def _beyond_doubt(self, gone: Mapping[str, DeadNode]) -> list[DeadNode]:
        """Those of `gone` but the silent ones at whose end another node was overdue, which is still neither heard nor
        gone itself."""
        rule = self.rule
        last_beats = (
            node.last_beat
            for name, node in self._nodes.items()
            if name not in gone and name != self._host and node.closed_at is None
        )
        quietest = min(last_beats, default=math.inf)
        until = max(rule.silent_after - _OVERDUE * rule.interval, _TOGETHER * rule.interval)
        return [
            node
            for node in gone.values()
            if node.how == "closed" or node.node in self._known_dead or quietest >= node.last_beat + until
        ]

    def _count_anew(self, gone: Iterable[str]) -> None:
        # A network that comes back brings one node after the other: TCP's tries lie seconds apart by then.
        now = self._clock()
        for name in gone:
            if name not in self._known_dead:
                node = self._nodes[name]
                node.last_beat = now
                node.closed_at = None if node.closed_at is None else now

    def settled_since(self, moment: float, nodes: Iterable[str]) -> bool:
        """Whether each of `nodes` that was ever seen has beaten after `moment` (monotonic s), or is dead."""
        with self._lock:
            gone = {node.node for node in self.dead()}
            return all(
                name in gone or (self._nodes[name].closed_at is None and self._nodes[name].last_beat > moment)
                for name in nodes
                if name in self._nodes
            )

    def ask(self, question: dict[str, Any]) -> None:
        """Ask every node that is connected; `answers` has what they say, until the next question."""
        with self._lock:
            self._question += 1
            self._answers = {}
            line = json.dumps({**question, "id": self._question}).encode() + b"\n"
            for connection in self._names:
                with contextlib.suppress(OSError):
                    connection.send(line)

    def answers(self) -> dict[str, Any]:
        """What nodes have answered so far, by name."""
        with self._lock:
            return dict(self._answers)

    def _forgive_own_absence(self) -> None:
        # A process that was stopped, or hung in a file system, has heard nobody: that is its own silence.
        now = self._clock()
        absence, self._last_look = now - self._last_look, now
        if absence > self.rule.silent_after / 2:
            for node in self._nodes.values():
                node.last_beat += absence
                if node.closed_at is not None:
                    node.closed_at += absence

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                connection.settimeout(0.0)
                self._buffers[connection] = b""
                self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        *lines, rest = (self._buffers[connection] + data).split(b"\n")
        self._buffers[connection] = rest[-(_ANSWER_LIMIT if connection in self._names else _LINE_LIMIT) :]
        for line in lines:
            if connection not in self._names and not self._greet(connection, line):
                self._drop(connection)
                return
            if line.startswith(b"{") and connection in self._names:
                self._take_answer(self._names[connection], line)
        if connection in self._names:
            self._nodes[self._names[connection]].last_beat = self._clock()
            self._answer(connection)

    def _greet(self, connection: socket.socket, line: bytes) -> bool:
        token, _, name = line.decode(errors="replace").partition(" ")
        if not secrets.compare_digest(token.encode(), self.token.encode()) or not name:
            return False
        if name == ANONYMOUS:
            self._answer(connection)
            return False
        self._names[connection] = name
        self._nodes[name] = _Node(self._clock())
        return True

    def _take_answer(self, name: str, line: bytes) -> None:
        with contextlib.suppress(ValueError, RecursionError):
            answer = json.loads(line)
            if isinstance(answer, dict) and answer.get("id") == self._question:
                self._answers[name] = answer

    @staticmethod
    def _answer(connection: socket.socket) -> None:
        # A node that does not read has its buffer full: it has been told often enough.
        with contextlib.suppress(OSError):
            connection.send(b".\n")

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        self._buffers.pop(connection, None)
        name = self._names.pop(connection, None)
        connection.close()
        if name is not None and name not in self._names.values():
            self._nodes[name].closed_at = self._clock()
