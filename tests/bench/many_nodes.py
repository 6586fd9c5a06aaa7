"""What it costs the attempt to hear the beats of many nodes: python -m tests.bench.many_nodes [NODES...].

Real connections on loopback, each with a beat a second, as a cluster of that size has them; the nodes themselves are
one process beside. Asked while they beat, as the attempt asks: ten times a second, which of them are dead.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import socket
import time

from pretrainctl.liveness.listener import Listener, make_room
from pretrainctl.records.launch import LivenessRule

SETTLED_AFTER = 5.0
MEASURED = 10.0


def beat(port: int, token: str, nodes: int) -> None:
    """Be `nodes` nodes, each with a beat a second, until the attempt is gone."""
    make_room(nodes)
    connections = []
    for number in range(nodes):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(f"{token} node{number}\n".encode())
        connection.settimeout(0.0)
        connections.append(connection)
    begun, beats = time.monotonic(), 0
    with contextlib.suppress(OSError):
        while True:
            connection = connections[beats % nodes]
            with contextlib.suppress(BlockingIOError):
                connection.recv(4096)
            connection.send(b".\n")
            beats += 1
            time.sleep(max(0.0, begun + beats / nodes - time.monotonic()))


def main() -> None:
    """Print a line for each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nodes", type=int, nargs="*", default=[4, 64, 256, 1024])
    print("nodes   CPU, % of a core")
    for nodes in parser.parse_args().nodes:
        if no_room := make_room(nodes):
            print(f"{nodes:5d}   {no_room}")
            continue
        listener = Listener(LivenessRule(), bind="127.0.0.1")
        listener.serve()
        cluster = multiprocessing.Process(target=beat, args=(listener.port, listener.token, nodes), daemon=True)
        cluster.start()
        time.sleep(SETTLED_AFTER)
        assert len(listener.seen()) == nodes, f"{len(listener.seen())} of {nodes} nodes were heard"
        used, begun = time.process_time(), time.monotonic()
        while time.monotonic() - begun < MEASURED:
            assert not listener.dead()
            time.sleep(0.1)
        spent = (time.process_time() - used) / (time.monotonic() - begun)
        print(f"{nodes:5d}   {100 * spent:.2f}", flush=True)
        listener.close()
        cluster.join(10)


if __name__ == "__main__":
    main()
