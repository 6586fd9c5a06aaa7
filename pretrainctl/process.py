"""The only door to other programs: argv lists, bounded in time, never through a shell."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from pretrainctl.errors import CommandError, MissingError

__all__ = ["Child", "Completed", "Runner", "find_program", "run", "start"]

_FORK_TRIES = 5


@dataclass(frozen=True)
class Completed:
    """What a program answered: `status` is its exit status, negative for the signal that ended it."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str


class Runner(Protocol):
    """The shape of `run`; the one place where tests may put a stand-in."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: str | None = None,
        check: bool = True,
    ) -> Completed:
        """Run a program to its end; see `run`."""
        ...


def find_program(name: str, *, hint: str = "") -> str:
    """The path of a program on PATH; MissingError with `hint` where there is none."""
    found = shutil.which(name)
    if found is None:
        raise MissingError(f"the program {name!r} is not on the PATH", hint=hint)
    return found


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    check: bool = True,
) -> Completed:
    """Run a program to its end and return what it answered.

    `timeout` is in seconds. `env` replaces the environment. With `check`, a status other than 0 is a
    CommandError that carries status and output. A time-out is always a CommandError with status None,
    a program that does not exist a MissingError.
    """
    process = _fork(
        argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        session=False,
    )
    try:
        out, err = process.communicate(stdin.encode() if stdin is not None else None, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        process.kill()
        out, err = process.communicate()
        raise CommandError(
            f"{argv[0]} did not answer within {timeout:g} s",
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
        ) from error
    except BaseException:
        process.kill()
        process.wait()
        raise
    done = Completed(tuple(argv), process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
    if check and done.status != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise CommandError(
            f"{argv[0]} failed with status {done.status}" + (f": {said[-1]}" if said else ""),
            status=done.status,
            stdout=done.stdout,
            stderr=done.stderr,
        )
    return done


@dataclass(frozen=True)
class Child:
    """A long-lived program that runs beside us, in a session of its own so that Ctrl-C does not reach it."""

    argv: tuple[str, ...]
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the child's process group."""
        return self.process.pid

    def poll(self) -> int | None:
        """The exit status, negative for a signal, or None while it runs."""
        return self.process.poll()

    def wait(self, timeout: float) -> int | None:
        """Wait at most `timeout` seconds; the exit status, or None while it still runs."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child and its process group; a child that is gone is no error."""
        if self.poll() is None:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                return

    def stop(self, grace: float = 5.0) -> None:
        """SIGTERM, `grace` seconds of patience, then SIGKILL."""
        self.signal(signal.SIGTERM)
        if self.wait(grace) is None:
            self.signal(signal.SIGKILL)
            self.wait(grace)


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: IO[bytes] | int | None = None,
    stderr: IO[bytes] | int | None = None,
) -> Child:
    """Start a long-lived program and return at once; input comes and output goes where the last three say."""
    return Child(
        tuple(argv),
        _fork(argv, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, session=True),
    )


def _fork(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    stdin: int,
    stdout: IO[bytes] | int | None,
    stderr: IO[bytes] | int | None,
    session: bool,
) -> subprocess.Popen[bytes]:
    # Only a failed fork is tried again: the program never ran, so nothing can happen twice.
    for attempt in range(_FORK_TRIES):
        try:
            return subprocess.Popen(
                list(argv),
                env=dict(env) if env is not None else None,
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=session,
            )
        except FileNotFoundError as error:
            raise MissingError(f"the program {argv[0]!r} cannot be started: {error.strerror}") from error
        except PermissionError as error:
            raise CommandError(f"the program {argv[0]!r} cannot be started: {error.strerror}") from error
        except BlockingIOError:
            if attempt == _FORK_TRIES - 1:
                raise
            time.sleep(0.1 * 2**attempt)
    raise AssertionError("unreachable")
