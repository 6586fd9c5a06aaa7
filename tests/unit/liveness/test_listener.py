"""Beats over real sockets on loopback, with a clock in the test's hand."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pretrainctl.liveness.listener import Listener, make_room
from pretrainctl.records.launch import LivenessRule

RULE = LivenessRule(interval=1.0, silent_after=5.0, closed_after=1.0)
CONNECTIONS: list[socket.socket] = []


class Clock:
    """Stands still until told, but lets a poll of 0 seconds end."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def listener(clock: Clock) -> Iterator[Listener]:
    made = Listener(RULE, bind="127.0.0.1", clock=clock)
    yield made
    made.close()
    while CONNECTIONS:
        CONNECTIONS.pop().close()


def node(listener: Listener, name: str, token: str | None = None) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", listener.port), timeout=5)
    CONNECTIONS.append(connection)
    connection.sendall(f"{token or listener.token} {name}\n".encode())
    hear(listener)
    return connection


def hear(listener: Listener) -> None:
    # A few polls: a connection is accepted in one and read in the next.
    for _ in range(50):
        listener.poll(0.0)


def pass_time(listener: Listener, clock: Clock, seconds: float, beating: dict[str, socket.socket]) -> None:
    for _ in range(int(seconds * 2)):
        clock.now += 0.5
        for connection in beating.values():
            connection.sendall(b".\n")
        hear(listener)


def test_nodes_that_beat_are_alive(listener: Listener, clock: Clock) -> None:
    nodes = {name: node(listener, name) for name in ("a", "b")}
    pass_time(listener, clock, 20, nodes)
    assert listener.seen() == {"a", "b"}
    assert listener.dead() == ()


def test_a_closed_connection_is_death_after_a_moment(listener: Listener, clock: Clock) -> None:
    nodes = {name: node(listener, name) for name in ("a", "b")}
    nodes.pop("b").close()
    hear(listener)
    assert listener.dead() == ()
    pass_time(listener, clock, 1.5, nodes)
    assert [(dead.node, dead.how) for dead in listener.dead()] == [("b", "closed")]


def test_a_node_that_connects_again_was_not_dead(listener: Listener, clock: Clock) -> None:
    nodes = {name: node(listener, name) for name in ("a", "b")}
    nodes.pop("b").close()
    hear(listener)
    nodes["b"] = node(listener, "b")
    pass_time(listener, clock, 4, nodes)
    assert listener.dead() == ()


def test_silence_is_death_after_a_while(listener: Listener, clock: Clock) -> None:
    nodes = {name: node(listener, name) for name in ("a", "b")}
    del nodes["b"]
    pass_time(listener, clock, 4.5, nodes)
    assert listener.dead() == ()
    pass_time(listener, clock, 1, nodes)
    assert [(dead.node, dead.how) for dead in listener.dead()] == [("b", "silent")]


def test_all_silent_together_is_unknown(listener: Listener, clock: Clock) -> None:
    node(listener, "a")
    node(listener, "b")
    assert not listener.all_silent()
    pass_time(listener, clock, 10, {})
    assert listener.dead() == ()
    assert listener.all_silent()


@pytest.fixture
def heard(clock: Clock) -> Iterator[Listener]:
    """A listener that knows that it runs on the node `host`."""
    made = Listener(RULE, host="host", bind="127.0.0.1", clock=clock)
    yield made
    made.close()
    while CONNECTIONS:
        CONNECTIONS.pop().close()


def names(listener: Listener) -> list[str]:
    return [dead.node for dead in listener.dead()]


def test_a_host_that_hears_only_itself_knows_nothing(heard: Listener, clock: Clock) -> None:
    nodes = {name: node(heard, name) for name in ("host", "a", "b", "c")}
    pass_time(heard, clock, 2, nodes)
    # The network goes between two beats: those of a and b came half an interval later than that of c.
    pass_time(heard, clock, 0.5, {name: nodes[name] for name in ("host", "a", "b")})
    found = []
    for _ in range(20):
        pass_time(heard, clock, 0.5, {"host": nodes["host"]})
        found += names(heard)
    assert found == []
    assert heard.all_silent()
    assert not heard.undecided()


def test_after_a_silence_of_all_the_first_that_is_heard_condemns_no_other(heard: Listener, clock: Clock) -> None:
    nodes = {name: node(heard, name) for name in ("host", "a", "b", "c")}
    for _ in range(20):
        pass_time(heard, clock, 0.5, {"host": nodes["host"]})
        assert names(heard) == []
    for _ in range(8):
        pass_time(heard, clock, 0.5, {name: nodes[name] for name in ("host", "a")})
        assert names(heard) == []
    assert not heard.all_silent()
    for _ in range(8):
        pass_time(heard, clock, 0.5, {name: nodes[name] for name in ("host", "a", "b")})
    assert names(heard) == ["c"], "it alone has not come back"


def test_the_other_node_of_two_is_dead_as_soon_as_ever(heard: Listener, clock: Clock) -> None:
    nodes = {name: node(heard, name) for name in ("host", "a")}
    pass_time(heard, clock, 4.5, {"host": nodes["host"]})
    assert names(heard) == []
    pass_time(heard, clock, 0.5, {"host": nodes["host"]})
    assert names(heard) == ["a"]
    assert not heard.all_silent()


def test_a_silent_node_among_well_ones_waits_for_none(heard: Listener, clock: Clock) -> None:
    nodes = {name: node(heard, name) for name in ("host", "a", "b", "c")}
    gone = nodes.pop("b")
    pass_time(heard, clock, 4.5, nodes)
    assert names(heard) == []
    pass_time(heard, clock, 0.5, nodes)
    assert names(heard) == ["b"]
    gone.sendall(b".\n")
    hear(heard)
    assert names(heard) == [], "it is heard again"


def test_a_silent_node_waits_for_one_that_is_overdue(heard: Listener, clock: Clock) -> None:
    nodes = {name: node(heard, name) for name in ("host", "a", "b", "c")}
    well = {name: nodes[name] for name in ("host", "c")}
    pass_time(heard, clock, 2, {**well, "b": nodes["b"]})
    pass_time(heard, clock, 3, well)
    assert names(heard) == []
    assert heard.undecided()
    nodes["b"].sendall(b".\n")
    hear(heard)
    assert names(heard) == ["a"]
    assert not heard.undecided()


def test_two_that_fall_silent_one_after_the_other_are_both_dead(heard: Listener, clock: Clock) -> None:
    nodes = {name: node(heard, name) for name in ("host", "a", "b", "c")}
    well = {name: nodes[name] for name in ("host", "c")}
    pass_time(heard, clock, 2, {**well, "b": nodes["b"]})
    pass_time(heard, clock, 4.5, well)
    assert names(heard) == []
    pass_time(heard, clock, 0.5, well)
    assert names(heard) == ["a", "b"]


def test_the_last_of_the_other_nodes_is_dead_after_one_that_died_before(heard: Listener, clock: Clock) -> None:
    nodes = {name: node(heard, name) for name in ("host", "a", "b")}
    del nodes["a"]
    pass_time(heard, clock, 5, nodes)
    assert names(heard) == ["a"]
    pass_time(heard, clock, 5, {"host": nodes["host"]})
    assert names(heard) == ["a", "b"]


def test_others_whose_end_reaches_the_host_are_dead(heard: Listener, clock: Clock) -> None:
    nodes = {name: node(heard, name) for name in ("host", "a", "b")}
    nodes["a"].close()
    nodes["b"].close()
    pass_time(heard, clock, 1.5, {"host": nodes["host"]})
    assert names(heard) == ["a", "b"]


def test_own_absence_is_not_the_silence_of_others(listener: Listener, clock: Clock) -> None:
    nodes = {name: node(listener, name) for name in ("a", "b")}
    del nodes["b"]
    clock.now += 60.0
    nodes["a"].sendall(b".\n")
    hear(listener)
    assert listener.dead() == ()


def test_a_pause_inside_the_wait_is_own_absence_too(
    listener: Listener, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The process is stopped while it waits for beats: the time passes inside select.
    nodes = {"a": node(listener, "a")}
    pass_time(listener, clock, 2, nodes)
    select = listener._selector.select

    def stopped(timeout: float) -> object:
        clock.now += 60.0
        return select(timeout)

    with monkeypatch.context() as patch:
        patch.setattr(listener._selector, "select", stopped)
        listener.poll(0.0)
    assert listener.dead() == ()


def test_a_stranger_is_not_heard(listener: Listener) -> None:
    stranger = node(listener, "a", token="wrong")
    assert listener.seen() == frozenset()
    assert not listener.all_silent(), "of no node anything was ever heard"
    stranger.settimeout(5)
    with contextlib.suppress(ConnectionResetError):
        assert stranger.recv(1) == b""


def test_settled_means_that_each_node_has_beaten_since_or_is_dead(listener: Listener, clock: Clock) -> None:
    nodes = {name: node(listener, name) for name in ("a", "b")}
    moment = clock.now
    gone = nodes.pop("b")
    pass_time(listener, clock, 0.5, nodes)
    assert not listener.settled_since(moment, ["a", "b"])
    gone.close()
    pass_time(listener, clock, 1.5, nodes)
    assert listener.settled_since(moment, ["a", "b"])


@pytest.fixture
def few_files() -> Iterator[int]:
    """A soft limit of open files that leaves room for some thirty more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 32
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_more_nodes_than_the_login_shell_lets_a_process_open_files(few_files: int) -> None:
    assert make_room(200) == ""
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > few_files + 200
    made = Listener(RULE, bind="127.0.0.1")
    made.serve()
    try:
        nodes = []
        for number in range(200):
            nodes.append(socket.create_connection(("127.0.0.1", made.port), timeout=5))
            nodes[-1].sendall(f"{made.token} node{number}\n".encode())
        deadline = time.monotonic() + 10
        while len(made.seen()) < len(nodes) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(made.seen()) == len(nodes)
        assert made.dead() == ()
    finally:
        made.close()
        for one in nodes:
            one.close()


def test_a_hard_limit_below_the_nodes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, limits: asked.append(limits))
    asked: list[tuple[int, int]] = []
    assert make_room(300) == ""
    assert make_room(1900) == ""
    told = "5000 open files are needed for the beats of 2372 nodes, and the hard limit is 4096 (ulimit -Hn)"
    assert make_room(2372) == told
    assert asked == [(4056, 4096)]
