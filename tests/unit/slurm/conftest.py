from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.process import Completed
from pretrainctl.slurm.client import Slurm

DATA = Path(__file__).parents[2] / "data" / "slurm"


@pytest.fixture
def data():
    return lambda name: (DATA / name).read_text(encoding="utf-8")


class Recorded:
    """Answers of Slurm's commands, given out in order; an answer is (program, stdout, stderr, status) or an error."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []
        self.environments = []

    def __call__(self, argv, *, timeout, env=None, cwd=None, stdin=None, check=True):
        assert timeout > 0
        self.calls.append(list(argv))
        self.environments.append(dict(env))
        assert self.answers, f"no answer is left for {argv}"
        program, *rest = self.answers.pop(0)
        assert argv[0] == program, f"{argv} where {program} was to be called"
        if isinstance(rest[0], Exception):
            raise rest[0]
        stdout, stderr, status = (*rest, "", 0)[:3] if len(rest) == 1 else rest
        return Completed(tuple(argv), status, stdout, stderr)


@pytest.fixture
def slurm_with():
    """A client whose runner gives these answers; every answer must have been asked for at the end."""
    runners = []

    def build(*answers, env=None, now=1_700_000_000.0, **settings):
        runner = Recorded(*answers)
        runners.append(runner)
        pauses = []
        client = Slurm(runner, env or {"PATH": "/usr/bin"}, sleep=pauses.append, clock=lambda: now, **settings)
        return client, runner, pauses

    yield build
    for runner in runners:
        assert runner.answers == [], "some answers were never asked for"
