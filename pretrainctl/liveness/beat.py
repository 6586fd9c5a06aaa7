"""The node's side: connect to the attempt, beat, and answer questions. Standard library only, outside any container.

`python -m pretrainctl.liveness.beat HOST PORT INTERVAL SILENT_AFTER`, the token in the environment. Ends when the
attempt says goodbye, or has not been reachable for PATIENCE seconds. A line of the attempt that is a JSON object asks
for a look at the ranks of this node (`ranks.look_at_ranks`); the answer is one line too.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

__all__ = ["ANONYMOUS", "GOODBYE", "PATIENCE", "TOKEN_VARIABLE", "Beat", "Hearing", "Silence", "ask", "main"]

TOKEN_VARIABLE = "PRETRAINCTL_BEAT_TOKEN"  # noqa: S105 - the name of a variable
"""Shared secret of one attempt; a connection that does not know it is closed."""
PATIENCE = 60.0
"""Seconds without a word after which a beating process gives up."""
GOODBYE = b"bye"
"""What the attempt says to its nodes when it needs no more beats."""
ANONYMOUS = "?"
"""The name of who only asks whether the attempt is there."""

Silence = Literal["closed", "silent"]
"""How an attempt is not there: nothing is to be reached, or it takes connections and does not answer, as a process
does that is stopped."""

_RETRY = 0.2
_LOOKING = 0.05
"""Seconds between two looks for an answer that is being made."""
_LONGEST_SEND = 5.0


class Hearing:
    """How long nothing was heard, by one who looks at least each `longest` seconds.

    Who did not look for longer was stopped himself: that is no silence of the other side, which counts anew.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._heard = self._looked = time.monotonic()

    def look(self, *, heard: bool = False) -> float:
        """Seconds of silence until now; 0 where something is `heard`."""
        now = time.monotonic()
        if heard or now - self._looked > self._longest:
            self._heard = now
        self._looked = now
        return now - self._heard


class Beat:
    """One node's beats to the attempt at `host`:`port`, each `interval` seconds.

    `look` makes the answer to a question in a thread of its own: the beats go on meanwhile.
    """

    def __init__(
        self,
        host: str,
        port: int,
        interval: float,
        *,
        node: str,
        token: str,
        silent_after: float,
        look: Callable[[dict[str, Any]], str] = lambda _question: "{}",
    ) -> None:
        self.address = (host, port)
        self.interval = interval
        self.silent_after = silent_after
        self._hello = f"{token} {node}\n".encode()
        self._make_answer = look
        self._open_questions = 0
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._hearing = Hearing(silent_after + max(interval, 5.0))

    def run(self) -> None:
        """Beat until the attempt says goodbye, or PATIENCE is at its end."""
        while self._hearing.look() < PATIENCE:
            with contextlib.suppress(OSError), self._connect() as connection:
                if self._beat(connection):
                    return
            time.sleep(_RETRY)

    def _connect(self) -> socket.socket:
        connection = _open(self.address, min(self.silent_after, 5.0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _beat(self, connection: socket.socket) -> bool:
        """True for a goodbye; False, or an OSError, where this connection is of no use any more."""
        connection.sendall(self._hello)
        begun = time.monotonic()
        rest = b""
        while True:
            self._send(connection, ".")
            deadline = time.monotonic() + self.interval
            while (left := deadline - time.monotonic()) > 0:
                self._send_answers(connection)
                connection.settimeout(min(left, _LOOKING) if self._open_questions else left)
                try:
                    said = connection.recv(4096)
                except TimeoutError:
                    continue
                *lines, rest = (rest + said).split(b"\n")
                if not said or GOODBYE in lines:
                    return bool(said)
                for line in lines:
                    self._hear(line)
                self._hearing.look(heard=True)
            if min(self._hearing.look(), time.monotonic() - begun) > self.silent_after:
                return False

    def _hear(self, line: bytes) -> None:
        with contextlib.suppress(ValueError):
            question = json.loads(line) if line.startswith(b"{") else None
            if isinstance(question, dict):
                self._open_questions += 1
                threading.Thread(target=self._reply, args=(question,), daemon=True).start()

    def _reply(self, question: dict[str, Any]) -> None:
        answer = "{}"
        try:
            answer = self._make_answer(question)
        finally:
            self._answers.put(answer)

    def _send_answers(self, connection: socket.socket) -> None:
        while self._open_questions and not self._answers.empty():
            self._open_questions -= 1
            self._send(connection, self._answers.get())

    @staticmethod
    def _send(connection: socket.socket, line: str) -> None:
        connection.settimeout(_LONGEST_SEND)
        connection.sendall(line.encode() + b"\n")


def _open(address: tuple[str, int], timeout: float) -> socket.socket:
    """A connection to the attempt; OSError where it is not there.

    On one machine, a try to reach a port that nobody listens on may be given that very port to come from: it is then
    connected to itself, and hears what it says (TCP's simultaneous open).
    """
    connection = socket.create_connection(address, timeout=timeout)
    if connection.getsockname() == connection.getpeername():
        connection.close()
        raise ConnectionRefusedError("connected to itself")
    return connection


def ask(host: str, port: int, token: str, *, timeout: float) -> Silence | None:
    """Ask the attempt whether it is there, for at most `timeout` seconds; None where it answers, else how it does not.

    A host without power takes no connection, and is `closed` after that time.
    """
    try:
        connection = _open((host, port), timeout)
    except OSError:
        return "closed"
    with connection:
        try:
            connection.sendall(f"{token} {ANONYMOUS}\n".encode())
            return None if connection.recv(256) else "closed"
        except TimeoutError:
            return "silent"
        except OSError:
            return "closed"


def _look_at_ranks(question: dict[str, Any]) -> str:
    """The answer of a node, with the question's `id`; without `ranks` where it could not be made."""
    from pretrainctl.liveness.ranks import look_at_ranks
    from pretrainctl.records.codec import to_json

    answer: dict[str, Any] = {"id": question.get("id")}
    with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
        run, attempt, restart = str(question["run"]), int(question["attempt"]), int(question["restart"])
        answer["ranks"] = to_json(look_at_ranks(run, attempt, restart, stacks=bool(question["stacks"])))
    return json.dumps(answer)


def main(words: Sequence[str] = tuple(sys.argv[1:])) -> None:
    """Entry of the program; the node is Slurm's own name of it."""
    host, port, interval, silent_after = words
    Beat(
        host,
        int(port),
        float(interval),
        node=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        token=os.environ.get(TOKEN_VARIABLE, ""),
        silent_after=float(silent_after),
        look=_look_at_ranks,
    ).run()


if __name__ == "__main__":
    main()
