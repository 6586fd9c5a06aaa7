"""Commands as ours behave: an option that came again is refused, since the last would win in silence; help without
types of Python."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import typer.core

from pretrainctl.cli.pipe import leave_a_closed_pipe
from pretrainctl.errors import InputError

__all__ = ["OnceGroup"]


class OnceGroup(typer.core.TyperGroup):
    """Commands of which no option with a value is taken twice, unless it is made for that (`--set`)."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        """Read what was typed; `--help` is shown here. Typer would end with 1 where nobody reads what is printed."""
        with leave_a_closed_pipe():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        """The command's work, in the same way."""
        with leave_a_closed_pipe():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is asked for, as always; InputError where one of its options is given again."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            for parameter in (one for one in command.params if one.param_type_name == "argument"):
                _hide_type(parameter)
            own = command.context_class(command, info_name=name, parent=ctx)
            own.resilient_parsing = True  # what cannot be parsed is told when it is parsed for good
            # The parser consumes what it is given.
            order = command.make_parser(own).parse_args(list(rest))[2]
            for parameter, times in Counter(order).items():
                if times > 1 and _comes_once(parameter):
                    raise InputError(
                        f"{max(parameter.opts, key=len)} was given {times} times, and only one is taken",
                        hint="give it once",
                    )
        return name, command, rest


def _hide_type(parameter: Any) -> None:
    """Help says what an argument is, and not which type of Python it becomes (`RUN <str>`)."""
    told = parameter.get_help_record

    def record(context: Any) -> tuple[str, str] | None:
        found: tuple[str, str] | None = told(context)
        return None if found is None else (re.sub(r" <.*>$", "", found[0]), found[1])

    parameter.get_help_record = record


def _comes_once(parameter: Any) -> bool:
    if parameter.param_type_name != "option":
        return False
    return not (parameter.multiple or parameter.count or parameter.is_flag)
