"""The node's side: connect to the attempt and beat. Standard library only; runs outside any container.

`python -m pretrainctl.liveness.beat HOST PORT INTERVAL`, the token in the environment. Ends by itself when the
attempt has not been reachable for PATIENCE seconds.
"""

from __future__ import annotations

import os
import socket
import sys
import time

__all__ = ["PATIENCE", "TOKEN_VARIABLE", "beat", "main"]

TOKEN_VARIABLE = "PRETRAINCTL_BEAT_TOKEN"  # noqa: S105 - the name of a variable
"""Shared secret of one attempt; a connection that does not know it is closed."""
PATIENCE = 60.0
"""Seconds without a connection after which a beating process gives up."""

_RETRY = 0.2


def beat(host: str, port: int, interval: float, *, node: str, token: str) -> None:
    """Beat each `interval` seconds until the attempt has been out of reach for PATIENCE seconds."""
    last_contact = time.monotonic()
    while time.monotonic() - last_contact < PATIENCE:
        try:
            with socket.create_connection((host, port), timeout=5.0) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(f"{token} {node}\n".encode())
                while True:
                    connection.sendall(b".\n")
                    last_contact = time.monotonic()
                    time.sleep(interval)
        except OSError:
            time.sleep(_RETRY)


def main() -> None:
    """Entry of the program; the node is Slurm's own name of it."""
    host, port, interval = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    beat(host, port, interval, node=node, token=os.environ.get(TOKEN_VARIABLE, ""))


if __name__ == "__main__":
    main()
