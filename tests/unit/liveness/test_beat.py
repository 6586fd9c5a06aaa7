"""A node's beats: answered, refused, and to an attempt that takes connections and says nothing."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from pretrainctl.liveness import beat as beats
from pretrainctl.liveness.beat import Beat, answers
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
    """A beating node in a thread; `lost` is how it lost the attempt, each time."""

    def __init__(self, port: int, token: str, name: str = "a", **options) -> None:
        self.lost: list[str] = []
        self.beat = Beat(
            *("127.0.0.1", port, RULE.interval),
            node=name,
            token=token,
            silent_after=RULE.silent_after,
            on_lost=self.lost.append,
            **options,
        )
        self.thread = threading.Thread(target=self.beat.run, daemon=True)
        self.thread.start()


def wait_for(condition, what: str, timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_an_attempt_that_answers_is_not_lost_and_its_goodbye_ends_the_beats(listener: Listener) -> None:
    node = Node(listener.port, listener.token)
    wait_for(lambda: listener.seen() == {"a"}, "the first beat")
    time.sleep(3 * RULE.silent_after)
    assert listener.dead() == ()
    listener.close()
    node.thread.join(5)
    assert not node.thread.is_alive()
    assert node.lost == []


def test_an_attempt_that_is_gone_is_lost_as_closed_and_found_again(listener: Listener) -> None:
    probe = socket.create_server(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    node = Node(port, "token")
    wait_for(lambda: node.lost == ["closed"], "the loss")
    time.sleep(RULE.silent_after)
    assert node.lost == ["closed"], "one loss is told once"
    assert not answers("127.0.0.1", port, "token", timeout=0.5)


def test_an_attempt_that_takes_connections_and_never_answers_is_lost_as_silent() -> None:
    # A stopped process: the kernel takes connections for it.
    with socket.create_server(("127.0.0.1", 0), backlog=64) as mute:
        node = Node(mute.getsockname()[1], "token")
        begun = time.monotonic()
        wait_for(lambda: node.lost == ["silent"], "the loss")
        assert time.monotonic() - begun > 1.4 * RULE.silent_after
        assert not answers("127.0.0.1", mute.getsockname()[1], "token", timeout=0.3)


def test_a_loss_that_lasts_is_told_again_unless_somebody_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beats, "_AGAIN", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    node, other = Node(port, "token"), Node(port, "token", busy=lambda: True)
    wait_for(lambda: node.lost == ["closed"] * 3, "it to be told again")
    assert other.lost == ["closed"]


def test_a_connection_to_oneself_is_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_itself(_address: tuple[str, int], timeout: float) -> socket.socket:
        made = socket.socket()
        made.settimeout(timeout)
        made.bind(("127.0.0.1", 0))
        made.connect(made.getsockname())
        return made

    monkeypatch.setattr(beats.socket, "create_connection", to_itself)
    assert not answers("127.0.0.1", 1, "token", timeout=1.0)
    node = Node(1, "token")
    wait_for(lambda: node.lost == ["closed"], "the loss")


def test_who_only_asks_is_answered_and_is_no_node(listener: Listener) -> None:
    assert answers("127.0.0.1", listener.port, listener.token, timeout=5)
    assert not answers("127.0.0.1", listener.port, "wrong", timeout=0.5)
    assert listener.seen() == frozenset()


def test_a_node_answers_a_question_and_beats_meanwhile(listener: Listener) -> None:
    def think(question: dict[str, object]) -> str:
        time.sleep(3 * RULE.silent_after)
        return json.dumps({"id": question["id"], "ranks": ["x" * 50_000], "about": question["about"]})

    node = Node(listener.port, listener.token, look=think)
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
    assert node.lost == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_look_that_fails_is_an_answer_too(listener: Listener) -> None:
    def fail(_question: dict[str, object]) -> str:
        raise RuntimeError("a fault of ours")

    node = Node(listener.port, listener.token, look=fail)
    wait_for(lambda: listener.seen() == {"a"}, "the first beat")
    listener.ask({})
    time.sleep(2 * RULE.silent_after)
    assert listener.answers() == {}
    assert (listener.dead(), node.lost) == ((), [])
