"""`python -m pretrainctl` and the `pretrainctl` command."""

from __future__ import annotations

import os
import signal

__all__ = ["main"]


def main() -> None:
    """Run the command; Ctrl-C while its modules are still read ends it at once with 130, since nothing has begun."""
    # What `nohup` and its like ignore stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(130))

    from pretrainctl.cli.main import main as run  # an exception amid an import may be swallowed

    run()


if __name__ == "__main__":
    main()
