"""`python -m pretrainctl` and the `pretrainctl` command."""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["main"]


_HELD = {signal.SIGUSR1, signal.SIGTERM, signal.SIGINT}


def main() -> None:
    """Run the command; Ctrl-C while its modules are still read ends it at once with 130, since nothing has begun.

    For the attempt signals wait until it listens (`workflows.attempt.signals`): one that ended it while its modules are
    read, which takes long on a file system that is cold, would end the job before the next one is queued.
    """
    if sys.argv[1:2] == ["attempt"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    # What `nohup` and its like ignore stays ignored.
    elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(130))

    from pretrainctl.cli.main import main as run  # an exception amid an import may be swallowed

    run()


if __name__ == "__main__":
    main()
