"""`python -m pretrainctl` and the `pretrainctl` command."""

from __future__ import annotations

from pretrainctl.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
