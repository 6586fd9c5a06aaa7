"""A node's beats, and who only asks: answered, refused, and by an attempt that takes connections and says nothing."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from pretrainctl.liveness import beat as beats
from pretrainctl.liveness.beat import Beat, Hearing, ask
from pretrainctl.liveness.listener import Listener
from pretrainctl.records.launch import LivenessRule

RULE = LivenessRule(interval=0.05, silent_after=0.4, closed_after=0.2)


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener(RULE, bind="127.0.0.1")
    made.serve()
    yield made
    if not made._closing.is_set():
        made.close()


class Node:
    """A beating node in a thread."""

    def __init__(self, port: int, token: str, name: str = "a", **options) -> None:
        self.beat = Beat(
            *("127.0.0.1", port, RULE.interval),
            node=name,
            token=token,
            silent_after=RULE.silent_after,
            **options,
        )
        self.thread = threading.Thread(target=self.beat.run, daemon=True)
        self.thread.start()


def wait_for(condition, what: str, timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_an_attempt_that_answers_hears_the_beats_and_its_goodbye_ends_them(listener: Listener) -> None:
    node = Node(listener.port, listener.token)
    wait_for(lambda: listener.seen() == {"a"}, "the first beat")
    time.sleep(3 * RULE.silent_after)
    assert listener.dead() == ()
    listener.say_goodbye()
    node.thread.join(5)
    assert not node.thread.is_alive()
    port = listener.port
    assert ask("127.0.0.1", port, listener.token, timeout=5) is None, "who only asks is answered until the end"
    listener.close()
    assert ask("127.0.0.1", port, listener.token, timeout=5) == "closed"


def test_beats_to_nobody_give_up_and_come_back_to_an_attempt_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beats, "PATIENCE", 1.5)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    node = Node(port, "token")
    node.thread.join(5)
    assert not node.thread.is_alive()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as mute:  # a stopped process: the kernel answers for it
        node = Node(mute.getsockname()[1], "token")
        node.thread.join(10)
        assert not node.thread.is_alive()


def test_own_absence_is_no_silence_of_the_other_side(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(beats.time, "monotonic", lambda: now[0])
    hearing = Hearing(6.0)
    for moment, heard, silence in [(5.0, False, 5.0), (10.0, False, 10.0), (11.0, True, 0.0), (14.0, False, 3.0)]:
        now[0] = moment
        assert hearing.look(heard=heard) == silence
    now[0] = 100.0
    assert hearing.look() == 0.0


def test_how_an_attempt_is_not_there(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask("127.0.0.1", listener.port, listener.token, timeout=5) is None
    assert ask("127.0.0.1", listener.port, "wrong", timeout=0.5) == "closed"
    assert listener.seen() == frozenset(), "who only asks is no node"
    with socket.create_server(("127.0.0.1", 0), backlog=64) as mute:
        port = mute.getsockname()[1]
        assert ask("127.0.0.1", port, "token", timeout=0.3) == "silent"
    assert ask("127.0.0.1", port, "token", timeout=0.3) == "closed"

    def to_itself(_address: tuple[str, int], timeout: float) -> socket.socket:
        made = socket.socket()
        made.settimeout(timeout)
        made.bind(("127.0.0.1", 0))
        made.connect(made.getsockname())
        return made

    monkeypatch.setattr(beats.socket, "create_connection", to_itself)
    assert ask("127.0.0.1", 1, "token", timeout=1.0) == "closed", "a connection to oneself is no attempt"


def test_a_node_answers_a_question_and_beats_meanwhile(listener: Listener) -> None:
    def think(question: dict[str, object]) -> str:
        time.sleep(3 * RULE.silent_after)
        return json.dumps({"id": question["id"], "ranks": ["x" * 50_000], "about": question["about"]})

    Node(listener.port, listener.token, look=think)
    wait_for(lambda: listener.seen() == {"a"}, "the first beat")
    listener.ask({"about": "goodbye"})
    for _ in range(20):
        assert listener.dead() == ()
        time.sleep(RULE.silent_after / 10)
    wait_for(listener.answers, "the answer")
    answer = listener.answers()["a"]
    assert (answer["about"], len(answer["ranks"][0])) == ("goodbye", 50_000)
    listener.ask({"about": "another"})
    assert listener.answers() == {}, "the answer to an older question is none"
    wait_for(listener.answers, "the second answer")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_look_that_fails_is_an_answer_too(listener: Listener) -> None:
    def fail(_question: dict[str, object]) -> str:
        raise RuntimeError("a fault of ours")

    Node(listener.port, listener.token, look=fail)
    wait_for(lambda: listener.seen() == {"a"}, "the first beat")
    listener.ask({})
    time.sleep(2 * RULE.silent_after)
    assert listener.answers() == {}
    assert listener.dead() == ()
