"""The `pretrainctl` command: every command, and how errors are shown."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from pretrainctl import __version__
from pretrainctl.cli import control, demo, doctor, drill, job, lint, nodes, pack, plan, run, sandbox
from pretrainctl.cli.once import OnceGroup
from pretrainctl.errors import InputError, PretrainctlError

__all__ = ["app", "main"]

DEBUG_VARIABLE = "PRETRAINCTL_DEBUG"
"""`1` shows tracebacks, as `--debug` does."""

app = typer.Typer(
    name="pretrainctl",
    cls=OnceGroup,
    help="LLM pretraining on Slurm: runs that carry themselves to their token target.",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"pretrainctl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"


for part in (plan, lint, run, control, doctor, demo, drill, pack, job):
    part.register(app)
app.add_typer(nodes.app, name="nodes")
app.add_typer(sandbox.app, name="sandbox")


def main() -> None:
    """Run a command; an error is one clear line, a hint, and a documented exit code (see `errors`)."""
    _open_closed_streams()
    _print_anything()
    if signal.getsignal(signal.SIGINT) not in {signal.SIG_IGN, signal.SIG_DFL}:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # What `nohup` ignores stays ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)
    try:
        app()
    except PretrainctlError as error:
        _fail(str(error), error.hint, error.exit_code, error)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
        code = InputError.exit_code if error.errno == errno.ENAMETOOLONG else PretrainctlError.exit_code
        _fail(what, _OS_HINTS.get(error.errno or 0, ""), code, error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _open_closed_streams() -> None:
    """What nobody reads (`>&-`) is thrown away; else the next file that is opened would stand in its place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def _print_anything() -> None:
    """A terminal of another encoding than UTF-8 shows the code of what it lacks, and ends no command.

    Under the locales C and C.UTF-8 Python's own handler, surrogateescape, prints the bytes of a name that is no text,
    and fails for other lone surrogates: the code of both is shown, as under any other locale.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in {"strict", "surrogateescape"}:
            stream.reconfigure(errors="backslashreplace")


def _leave(number: int, _frame: FrameType | None) -> None:
    """An end from outside is an exception, as Ctrl-C is: what was begun is undone, or recorded."""
    sys.exit(128 + number)


_OS_HINTS = {
    errno.ENOSPC: "the file system is full: free some space",
    errno.EDQUOT: "your quota is used up: free some space",
    errno.EACCES: "check the permissions",
    errno.EROFS: "the file system is read-only",
    errno.ENAMETOOLONG: "give a shorter name",
}


def _fail(message: str, hint: str, code: int, error: BaseException) -> None:
    if os.environ.get(DEBUG_VARIABLE) == "1":
        raise error
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    sys.exit(code)
