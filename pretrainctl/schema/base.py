"""The kinds of value that recipes and profiles are made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from pretrainctl.errors import InputError
from pretrainctl.units import parse_count, parse_duration, parse_size

__all__ = [
    "AbsolutePath",
    "Amount",
    "ChainJobs",
    "Count",
    "Date",
    "Known",
    "Limit",
    "Memory",
    "Part",
    "Positive",
    "Rate",
    "Seconds",
    "Size",
    "SlurmWord",
    "SomePath",
    "TaskVariable",
    "TestTime",
    "Text",
    "TimeLimit",
    "VariableName",
    "VariableText",
    "Word",
    "at_most",
]

T = TypeVar("T")
_LONGEST = 10**9
"""Seconds of the longest duration, 31 years."""
_MOST_DIGITS = 24
"""Of a number in an error; Python writes 1e300 as a whole number out."""


class Part(BaseModel):
    """A section of what people type: frozen, strict, and no key that is not listed."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def _typed(parse: Callable[[str], float]) -> Callable[[Any], Any]:
    """Let a field take text that `parse` reads beside plain numbers; its hint becomes part of the error."""

    def before(value: Any) -> Any:
        if isinstance(value, str):
            try:
                value = parse(value)
            except InputError as error:
                raise ValueError(f"{error} ({error.hint})") from error
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return before


def _duration(value: Any) -> Any:
    """Durations are text: whether a bare number means minutes or seconds would be a guess."""
    if isinstance(value, str):
        return _typed(parse_duration)(value)
    raise ValueError(f"{value!r} is not a duration (write 90s, 30m, 12h, 3d, 00:30:00 or 1-12:00:00)")


def _write_duration(value: int | str | None) -> str | None:
    """As text that can be read again."""
    return f"{value}s" if isinstance(value, int) else value


def _plain(value: str) -> str:
    if "\0" in value:
        raise ValueError("a zero byte cannot be part of a value")
    return value


def _one_line(value: str) -> str:
    if any(not character.isprintable() for character in value):
        raise ValueError(f"{value!r} must be one line of printable characters")
    return _plain(value)


def _slurm_word(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.:,@+=%/-]+", value):
        raise ValueError(f"{value!r} cannot be given to Slurm (letters, digits and _.:,@+=%/- only)")
    return value


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError(f"{value!r} is not the name of an environment variable")
    return value


def _named(value: Any) -> Any:
    if value == "":
        raise ValueError("the path is empty, which would mean the current folder")
    return value


def _absolute(value: Path) -> Path:
    if not value.is_absolute():
        raise ValueError(
            f"{str(value)!r} must be an absolute path: jobs start elsewhere, and `~` and variables are not replaced"
        )
    return value


def _at_least(least: int, text: str) -> Callable[[int | str], int | str]:
    """Refuse what is meant in another unit, such as 2048 for MiB."""

    def check(value: int | str) -> int | str:
        if isinstance(value, int) and value < least:
            raise ValueError(f"{value} is implausibly small, at least {text} is expected: write the unit")
        return value

    return check


def at_most(most: int) -> Callable[[float | str | None], float | str | None]:
    """Refuse a number that is none of its kind: what is worked out from it would go beyond what can be counted."""

    def check(value: float | str | None) -> float | str | None:
        if isinstance(value, (int, float)) and value > most:
            digits = str(value)
            said = digits if len(digits) <= _MOST_DIGITS else f"{digits[0]}.{digits[1:3]}e+{len(digits) - 1}"
            raise ValueError(f"{said} is more than there can be, at most {most} is taken")
        return value

    return check


_RESERVED = {
    "SLURM_": "Slurm tells its jobs and steps by it who they are",
    "SLURMD_": "Slurm tells its jobs and steps by it who they are",
    "SBATCH_": "sbatch would read it as an option, over the script",
    "PRETRAINCTL_": "pretrainctl tells the training program by it which run and attempt it is",
    "RANK": "each task has its own",
    "LOCAL_RANK": "each task has its own",
    "NODE_RANK": "each task has its own",
    "GROUP_RANK": "each task has its own",
    "WORLD_SIZE": "it follows from resources.nodes and resources.tasks_per_node",
    "LOCAL_WORLD_SIZE": "it follows from resources.tasks_per_node",
    "MASTER_ADDR": "it follows from cluster.rendezvous and the nodes of the start",
    "MASTER_PORT": "it follows from cluster.rendezvous and the job",
    "WANDB_MODE": "tracking.wandb says it",
    "WANDB_RUN_ID": "it is the run id, by which attempts join one tracked run",
    "WANDB_RESUME": "attempts join one tracked run by it",
}
"""Variables that are not for recipes and profiles to set, and why; a name that ends in `_` is a beginning."""

_READ_ONLY = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})
"""Variables that bash lets nobody set (bash(1), Shell Variables)."""
_BASHS_OWN = frozenset(
    {
        *("_", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_CMDS", "BASH_COMMAND", "BASH_LINENO"),
        *("BASH_SOURCE", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "FUNCNAME", "GROUPS", "HISTCMD", "LINENO"),
        *("PIPESTATUS", "RANDOM", "SHLVL", "SRANDOM"),
    }
)
"""Variables that bash lets one set and then gives no program, or gives it another value (tried with 5.2)."""


def _task_variable(value: str) -> str:
    if value in _READ_ONLY:
        raise ValueError(f"{value} cannot be set here: bash refuses to set it, which ends the job")
    if value in _BASHS_OWN:
        raise ValueError(f"{value} cannot be set here: bash has its own, and the value would not arrive")
    for name, reason in _RESERVED.items():
        if value == name or (name.endswith("_") and value.startswith(name)):
            raise ValueError(f"{value} cannot be set here: {reason}")
    return _variable(value)


_NAMED_VARIABLE = re.compile(
    r"\$(?!\{?(?:ORIGIN|LIB|PLATFORM)\b)(?:[A-Za-z_][A-Za-z0-9_]*|\{[^}]*\}?|\([^)]*\)?)|`[^`]+`"
)
"""What a shell replaces; ld.so replaces three names by itself (ld.so(8))."""
_HOME = re.compile(r"(?:^|:)(~[A-Za-z0-9_.-]*/|~(?=:|$))")


def _as_written(value: str) -> str:
    """Values are exported in quotes: what only a shell would replace never is."""
    found = _NAMED_VARIABLE.search(value.replace("$$", ""))
    home = _HOME.search(value)
    if found or home:
        what = "a home folder by `~`"
        if found:
            what = f"the {'command' if found[0].startswith(('$(', '`')) else 'variable'} {found[0]}"
        raise ValueError(
            f"{value!r} names {what}, and values are taken as they are written: write out what it stands for on the "
            "compute nodes, or load a module that adds to the path (cluster.modules)"
        )
    return _plain(value)


Text = Annotated[str, AfterValidator(_plain)]
"""Any text; it is quoted wherever a shell reads it."""
VariableText = Annotated[str, AfterValidator(_as_written)]
"""The value of an environment variable: what it is, not how a shell would make it."""
Word = Annotated[str, Field(min_length=1), AfterValidator(_one_line)]
"""Text of one line, not empty."""
SlurmWord = Annotated[str, AfterValidator(_slurm_word)]
"""A value on a `#SBATCH` line, where no shell quoting exists."""
VariableName = Annotated[str, AfterValidator(_variable)]
"""The name of an environment variable."""
TaskVariable = Annotated[str, AfterValidator(_task_variable)]
"""The name of an environment variable that the training tasks may be given."""
Date = Annotated[Word, Field(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?$")]
"""YYYY-MM or YYYY-MM-DD."""
Positive = Annotated[int, Field(ge=1), AfterValidator(at_most(10**12))]
"""A whole number from 1."""
ChainJobs = Annotated[int, Field(ge=1, le=20)]
"""How many jobs of a run are there at once: a start of srun waits until all that are missing are queued."""
Count = Annotated[
    int,
    BeforeValidator(_typed(parse_count)),
    Field(ge=1),
    AfterValidator(at_most(10**18)),
    WithJsonSchema({"type": "count", "examples": ["300000", "60M", "1.5T"]}),
]
"""A whole number from 1, also written 60M or 1.5T."""
Seconds = Annotated[
    int,
    BeforeValidator(_duration),
    Field(ge=1),
    AfterValidator(at_most(_LONGEST)),
    PlainSerializer(_write_duration, when_used="json"),
    WithJsonSchema({"type": "duration", "examples": ["90s", "12h", "00:30:00"]}),
]
"""A duration, in seconds once read."""


def _limit(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def before(value: Any) -> Any:
        return value if value in ("unknown", None) else parse(value)

    return before


Limit = Annotated[
    Annotated[int, Field(ge=1)] | Literal["unknown"] | None,
    BeforeValidator(_limit(_typed(parse_count))),
    AfterValidator(at_most(10**18)),
    WithJsonSchema({"type": "count, `unknown` or null (no limit)"}),
]
"""A limit of a site: a number, `unknown`, or null where the site sets none."""
TimeLimit = Annotated[
    Annotated[int, Field(ge=1)] | Literal["unknown"] | None,
    BeforeValidator(_limit(_duration)),
    AfterValidator(at_most(_LONGEST)),
    PlainSerializer(_write_duration, when_used="json"),
    WithJsonSchema({"type": "duration, `unknown` or null (no limit)"}),
]
"""A time limit of a site: a duration, `unknown`, or null where the site sets none."""
TestTime = Annotated[
    Annotated[int, Field(ge=5, le=120)] | Literal["off"],
    BeforeValidator(lambda value: value if value in ("off", None) else _duration(value)),
    PlainSerializer(_write_duration, when_used="json"),
    WithJsonSchema({"type": "duration from 5s to 120s, or `off`"}),
]
"""How long a test may take, or `off`."""
Size = Annotated[
    Annotated[int, Field(ge=1)] | Literal["unknown"],
    BeforeValidator(_limit(_typed(parse_size))),
    AfterValidator(at_most(10**21)),
    WithJsonSchema({"type": "size or `unknown`", "examples": ["64GiB", "500GB"]}),
]
"""Bytes, also written 64GiB or 80GB, or `unknown`."""
Memory = Annotated[Size, AfterValidator(_at_least(2**30, "1 GiB"))]
"""Memory of a node or a GPU: a size from 1 GiB, or `unknown`."""
Rate = Annotated[Size, AfterValidator(_at_least(10**6, "1 MB a second"))]
"""Bytes a second of a file system: a size from 1 MB, or `unknown`."""
SomePath = Annotated[Path, BeforeValidator(_named)]
"""A path that is not empty."""
AbsolutePath = Annotated[SomePath, AfterValidator(_absolute)]
"""A path that means the same wherever a job starts."""
Amount = Annotated[
    Annotated[int, Field(ge=1)] | Literal["unknown"],
    BeforeValidator(_limit(_typed(parse_count))),
    AfterValidator(_at_least(10**9, "1G operations a second")),
    AfterValidator(at_most(10**18)),
    WithJsonSchema({"type": "count or `unknown`", "examples": ["250T"]}),
]
"""Operations a second from 10**9, also written 250T, or `unknown`."""
Known = Literal["yes", "no", "unknown"]
"""A fact that may not be known."""
