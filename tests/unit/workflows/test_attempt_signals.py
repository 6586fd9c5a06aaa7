"""Signals of the attempt: from its first line on none of them ends it, and none is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# A signal comes amid the imports of the command; what the attempt has heard when it listens is printed.
PROGRAM = """
import json, os, signal, sys

number = int(sys.argv.pop())
if sys.argv[1] == "attempt":
    from pretrainctl.workflows.attempt import run
    from pretrainctl.workflows.attempt.signals import Signals

    def run_attempt(run_dir):
        signals = Signals()
        signals.install()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        print(json.dumps([signals.time_limit_near, signals.terminated, len(blocked)]))
        return 0

    run.run_attempt = run_attempt

class Sender:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pretrainctl.cli.main":
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Sender)
from pretrainctl.__main__ import main
main()
"""


def start(folder: Path, number: int, *command: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", PROGRAM, *command, str(number)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=folder)


@pytest.mark.parametrize(
    ("number", "heard"),
    [(signal.SIGUSR1, [True, False, 0]), (signal.SIGTERM, [False, True, 0]), (signal.SIGINT, [False, True, 0])],
)
def test_a_signal_amid_its_imports_waits_until_the_attempt_listens(
    tmp_path: Path, number: int, heard: list[object]
) -> None:
    done = start(tmp_path, number, "attempt", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == heard


def test_other_commands_end_at_once(tmp_path: Path) -> None:
    assert start(tmp_path, signal.SIGTERM, "status").returncode == -signal.SIGTERM
    assert start(tmp_path, signal.SIGINT, "status").returncode == 130
