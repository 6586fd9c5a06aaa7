"""One rank of a training: `python -m pretrainctl.trainer TRAINING.json`, started once a rank.

The environment names the ranks (RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT), the run
(PRETRAINCTL_RUN_DIR _ATTEMPT _RESTART) and the checkpoint to resume from (PRETRAINCTL_RESUME_TAG).
Exit codes are those of `records.contract.ExitCode`.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

from pretrainctl.errors import PretrainctlError
from pretrainctl.records import codec
from pretrainctl.records.contract import ExitCode
from pretrainctl.records.training import TrainingSettings
from pretrainctl.telemetry import Reporter, Requests, own_rank

__all__ = ["main"]


def main() -> int:
    """Run one rank to its end and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m pretrainctl.trainer", description=__doc__.split("\n\n")[0])
    parser.add_argument("settings", type=Path, metavar="TRAINING.json", help="the training settings")
    settings_file = parser.parse_args().settings
    requests = Requests()  # before torch is imported, which takes seconds: a signal now is not lost
    try:
        reporter = Reporter()
        reporter.phase("start", 0)
        settings = codec.read(TrainingSettings, settings_file)
        from pretrainctl.trainer.startup import prepare

        prepare()
        from pretrainctl.trainer.loop import Training

        return Training(settings, requests, reporter).run()
    except PretrainctlError as error:
        print(f"rank {own_rank()}: error: {error}", file=sys.stderr)
        if error.hint:
            print(f"rank {own_rank()}: hint: {error.hint}", file=sys.stderr)
    except BaseException:  # noqa: BLE001  whatever it was, the exit below must be reached
        traceback.print_exc()
    return ExitCode.FAILED


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: leaving a process group in good order waits for peers, and a dead peer never answers.
    os._exit(code)
