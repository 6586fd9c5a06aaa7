"""A node's beats: answered, refused, and to an attempt that takes connections and says nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

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

    def __init__(self, port: int, token: str, name: str = "a") -> None:
        self.lost: list[str] = []
        self.beat = Beat(
            *("127.0.0.1", port, RULE.interval),
            node=name,
            token=token,
            silent_after=RULE.silent_after,
            on_lost=self.lost.append,
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


def test_who_only_asks_is_answered_and_is_no_node(listener: Listener) -> None:
    assert answers("127.0.0.1", listener.port, listener.token, timeout=5)
    assert not answers("127.0.0.1", listener.port, "wrong", timeout=0.5)
    assert listener.seen() == frozenset()
