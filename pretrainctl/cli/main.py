"""The `pretrainctl` command: every command, and how errors are shown."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from pretrainctl import __version__
from pretrainctl.cli import control, demo, doctor, drill, job, lint, nodes, pack, plan, run, sandbox, view
from pretrainctl.cli.once import OnceGroup
from pretrainctl.cli.pipe import leave_a_closed_pipe
from pretrainctl.errors import InputError, MissingError, PretrainctlError

__all__ = ["app", "main"]

DEBUG_VARIABLE = "PRETRAINCTL_DEBUG"
"""`1` shows tracebacks, as `--debug` does."""

_USAGE_ERROR: Any = typer.BadParameter.__base__
"""What typer raises for words that are no command of ours."""

app = typer.Typer(
    name="pretrainctl",
    cls=OnceGroup,
    help="LLM pretraining on Slurm: runs that carry themselves to their token target.",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    chosen = os.environ.get("PRETRAINCTL_CONFIG")
    if chosen and not os.path.isdir(os.path.expanduser(chosen)):  # noqa: PTH111, PTH112 - pathlib fails for no home
        view.note(f"warning: PRETRAINCTL_CONFIG names {chosen}, which is no folder")


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
        with leave_a_closed_pipe():
            code = app(prog_name="pretrainctl", standalone_mode=False)
            sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except typer.Abort as error:
        print("nothing was done", file=sys.stderr)
        sys.exit(130 if isinstance(error.__context__, KeyboardInterrupt) else 1)
    except _USAGE_ERROR as error:
        _fail_usage(error)
    except PretrainctlError as error:
        _fail(str(error), error.hint, error.exit_code, error)
    except OSError as error:
        if error.errno == errno.ENOENT and not error.filename and _has_no_folder():
            _fail("the working folder does not exist any more", "go to another one: cd", MissingError.exit_code, error)
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
        code = InputError.exit_code if error.errno == errno.ENAMETOOLONG else PretrainctlError.exit_code
        _fail(what, _OS_HINTS.get(error.errno or 0, ""), code, error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _fail_usage(error: Any) -> NoReturn:
    """A usage error in our words; without a command it is the help."""
    said = error.format_message()
    if "\n" in said:
        print(said, file=sys.stderr)
        sys.exit(InputError.exit_code)
    words = error.ctx.command_path if error.ctx is not None else "pretrainctl"
    _fail(f"{said[:1].lower()}{said[1:].rstrip('.')}", f"`{words} --help` shows how it is called", 2, error)


def _has_no_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - pathlib's asks the same
    except FileNotFoundError:
        return True
    return False


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


def _fail(message: str, hint: str, code: int, error: BaseException) -> NoReturn:
    if os.environ.get(DEBUG_VARIABLE) == "1":
        raise error
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    sys.exit(code)
