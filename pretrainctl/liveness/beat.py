"""The node's side: connect to the attempt, beat, and hear whether it is there. Standard library only, outside any
container.

`python -m pretrainctl.liveness.beat HOST PORT INTERVAL SILENT_AFTER [WITNESS ...]`, the token in the environment. Ends
when the attempt says goodbye, or has not been reachable for PATIENCE seconds. Where the attempt is lost, the program
WITNESS is started, with how it was lost (`closed` or `silent`) as its last argument: a dead batch host leaves a job of
several nodes running, with nobody in charge. A line of the attempt that is a JSON object asks for a look at the ranks
of this node (`ranks.look_at_ranks`); the answer is one line too.
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
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pretrainctl.process import Child

__all__ = ["ANONYMOUS", "GOODBYE", "PATIENCE", "TOKEN_VARIABLE", "Beat", "How", "answers", "main"]

TOKEN_VARIABLE = "PRETRAINCTL_BEAT_TOKEN"  # noqa: S105 - the name of a variable
"""Shared secret of one attempt; a connection that does not know it is closed."""
PATIENCE = 60.0
"""Seconds without a word after which a beating process gives up."""
GOODBYE = b"bye"
"""What the attempt says last: its end is no loss."""
ANONYMOUS = "?"
"""The name of who only asks whether the attempt is there."""

How = Literal["closed", "silent"]

_RETRY = 0.2
_LOOKING = 0.05
"""Seconds between two looks for an answer that is being made."""
_AGAIN = 20.0
"""Seconds after which a loss that lasts is told anew: who looked may have met a stranger's answer on the port, or a
state of the job that has passed."""
_LONGEST_SEND = 5.0
_ENDING = 3.0
"""Seconds after which a closed connection is a loss: a job that ends takes its beats away sooner."""


class Beat:
    """One node's beats to the attempt at `host`:`port`, each `interval` seconds.

    `on_lost` is called at a loss, and now and then while it lasts, with how: `closed` when nothing was to be reached
    for a few seconds, `silent` when it took connections and answered none for one and a half times `silent_after`
    seconds; the direct try that follows makes it twice. `busy` says whether one who was told is at work: then it is not
    told again, and the beats stay.
    `look` makes the answer to a question in a thread of its own: the beats go on meanwhile.
    """

    def __init__(  # noqa: PLR0913 - what a node does besides beating is its caller's
        self,
        host: str,
        port: int,
        interval: float,
        *,
        node: str,
        token: str,
        silent_after: float,
        on_lost: Callable[[How], None] = lambda _how: None,
        busy: Callable[[], bool] = lambda: False,
        look: Callable[[dict[str, Any]], str] = lambda _question: "{}",
    ) -> None:
        self.address = (host, port)
        self.interval = interval
        self.silent_after = silent_after
        self._hello = f"{token} {node}\n".encode()
        self._on_lost = on_lost
        self._busy = busy
        self._make_answer = look
        self._open_questions = 0
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._heard = self._looked = time.monotonic()
        self._told: float | None = None

    def run(self) -> None:
        """Beat until the attempt says goodbye, or PATIENCE is at its end."""
        while time.monotonic() - self._heard < PATIENCE or self._busy():
            taken = False
            with contextlib.suppress(OSError), self._connect() as connection:
                taken = True
                if self._beat(connection):
                    return
            self._look(taken=taken)
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
                self._look(heard=True)
            self._look(taken=True)
            if time.monotonic() - max(begun, self._heard) > self.silent_after:
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

    def _look(self, *, heard: bool = False, taken: bool = False) -> None:
        now = time.monotonic()
        # A process that was stopped has heard nobody: that is its own silence.
        absent = now - self._looked > self.silent_after / 2 + max(self.interval, 5.0)
        self._looked = now
        if heard or absent:
            self._heard, self._told = now, None
        silence = now - self._heard
        lost = silence > (1.5 * self.silent_after if taken else min(_ENDING, self.silent_after))
        if lost and (self._told is None or (now - self._told > _AGAIN and not self._busy())):
            self._told = now
            self._on_lost("silent" if taken else "closed")


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


def answers(host: str, port: int, token: str, *, timeout: float) -> bool:
    """Whether the attempt is there: it takes a connection, and answers within `timeout` seconds."""
    try:
        with _open((host, port), timeout) as connection:
            connection.sendall(f"{token} {ANONYMOUS}\n".encode())
            return bool(connection.recv(256))
    except OSError:
        return False


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
    host, port, interval, silent_after, *witness = words
    children: list[Child] = []

    def on_lost(how: How) -> None:
        from pretrainctl import process  # not before it is needed: a node's beats start in 0.1 s

        if witness:
            children.append(process.start([*witness, how], env=dict(os.environ)))

    Beat(
        host,
        int(port),
        float(interval),
        node=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        token=os.environ.get(TOKEN_VARIABLE, ""),
        silent_after=float(silent_after),
        on_lost=on_lost,
        busy=lambda: any(child.poll() is None for child in children),
        look=_look_at_ranks,
    ).run()


if __name__ == "__main__":
    main()
