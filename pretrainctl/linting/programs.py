"""What a command really runs, behind `env`, `timeout` or a container; and whether that is a launcher.

Source of what stands in front of a program: the manual pages of those commands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["LAUNCHERS", "launcher", "program", "python_script", "unwrapped"]

LAUNCHERS = ("torchrun", "deepspeed", "mpirun", "mpiexec", "accelerate")
"""Programs that start ranks themselves."""

_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "deepspeed.launcher.runner": "deepspeed",
    "accelerate.commands.launch": "accelerate",
}
"""Launchers as `python -m` starts them."""
_TELLING = frozenset({"--help", "-h", "--version", "-V"})
"""First arguments with which a launcher only says something."""
_PYTHON = re.compile(r"python[0-9.]*")


@dataclass(frozen=True)
class _Carrier:
    """A command that runs the program named behind its own words."""

    valued: frozenset[str] = frozenset()
    """Its options whose value is the next word."""
    own: int = 0
    """Its own words in front of the program, such as the time of `timeout`, or an image."""
    verbs: frozenset[str] = frozenset()
    """First words with which it runs a program; none needed where empty."""


def _carrier(valued: str = "", own: int = 0, verbs: str = "") -> _Carrier:
    return _Carrier(frozenset(valued.split()), own, frozenset(verbs.split()))


_WRAPPERS = {
    "exec": _carrier("-a"),
    "time": _carrier("-f -o --format --output"),
    "env": _carrier("-u --unset -C --chdir"),
    "timeout": _carrier("-s -k --signal --kill-after", own=1),
    "stdbuf": _carrier("-i -o -e --input --output --error"),
    "strace": _carrier("-o -e -p -s"),
    "chrt": _carrier("-T -P -D", own=1),
    "flock": _carrier("-w -E --timeout --conflict-exit-code", own=1),
    "sudo": _carrier("-u -g --user --group"),
    "nice": _carrier("-n --adjustment"),
    "ionice": _carrier("-c -n --class --classdata"),
    "taskset": _carrier(own=1),
    "numactl": _carrier("-i -p -m -N -C -w --interleave --preferred --membind --cpunodebind --physcpubind"),
    **dict.fromkeys(("nohup", "command", "builtin", "setsid", "unbuffer", "coproc", "prlimit"), _carrier()),
}
_IMAGE = _carrier(
    "-B --bind --env --env-file -H --home -W --workdir --pwd --cwd -o --overlay -S --scratch --mount -M --network "
    "--hostname --fusemount --add-caps --drop-caps --security --app --apply-cgroups --dns --no-mount",
    own=1,
    verbs="exec run",
)
_DOCKER = _carrier(
    "-v --volume -e --env --env-file --name --gpus --shm-size --ulimit -w --workdir --mount --network --net -u --user "
    "--ipc --entrypoint -p --publish --device -h --hostname -m --memory --cpus",
    own=1,
    verbs="exec run",
)
_CONDA = _carrier("-n --name -p --prefix --cwd", verbs="run")
_CONTAINERS = {
    **dict.fromkeys(("singularity", "apptainer"), _IMAGE),
    **dict.fromkeys(("docker", "podman", "podman-hpc"), _DOCKER),
    **dict.fromkeys(("conda", "mamba", "micromamba"), _CONDA),
    **dict.fromkeys(("uv", "poetry", "pixi"), _carrier("--with --extra --group --project --env-file -p -e", 0, "run")),
    "enroot": _carrier("-e --env -m --mount -c --conf", own=1, verbs="start"),
    "shifter": _carrier("--image -i --volume -V --module -m --workdir -w"),
    "ch-run": _carrier("-b --bind -c --cd", own=1),
    "nsys": _carrier("-o --output -t --trace -s --sample -c --capture-range -w -f -x -y -d -e", verbs="profile"),
    "ncu": _carrier("-o --export -k --kernel-name -c -s --set --section"),
}


def unwrapped(words: Sequence[str]) -> tuple[str, ...]:
    """The command behind `VARIABLE=value`, `exec`, `env`, `timeout` and their like; of `command -v` nothing."""
    return _behind(words, _WRAPPERS)


def program(words: Sequence[str]) -> tuple[str, ...]:
    """The program that a command runs, with its arguments, in a container or an environment too."""
    found = _behind(words, _WRAPPERS | _CONTAINERS)
    named = re.fullmatch(r"\$\((?:which|command -v) ([\w.-]+)\)", found[0]) if found else None
    return (named[1], *found[1:]) if named else found


def _behind(words: Sequence[str], carriers: dict[str, _Carrier]) -> tuple[str, ...]:
    rest = tuple(words)
    while rest:
        name = rest[0].rsplit("/", 1)[-1]
        if re.match(r"\w+=", rest[0]):
            rest = rest[1:]
        elif name not in carriers:
            break
        elif name == "command" and rest[1:2] in (("-v",), ("-V",)):
            return ()
        else:
            carrier, after = carriers[name], rest[1:]
            if carrier.verbs:
                after = _options(after, carrier)
                if not after or after[0] not in carrier.verbs:
                    break
                after = after[1:]
            rest = _options(after, carrier)[carrier.own :]
    return rest


def _options(words: tuple[str, ...], carrier: _Carrier) -> tuple[str, ...]:
    """What stands behind the options at the beginning."""
    while words and words[0].startswith("-"):
        if words[0] == "--":
            return words[1:]
        words = words[2 if words[0] in carrier.valued else 1 :]
    return words


def launcher(words: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """The launcher that a command starts, and its arguments; None where it starts none.

    The name of a launcher as an argument (`pip install deepspeed`, `python train.py mpirun`) is none.
    """
    started = program(words)
    name, arguments = (started[0].rsplit("/", 1)[-1], started[1:]) if started else ("", ())
    if _PYTHON.fullmatch(name):
        arguments = _python_arguments(arguments)
        if arguments[:1] != ("-m",) or len(arguments) == 1:
            return None
        module = arguments[1]
        name, arguments = _MODULES.get(module, ""), arguments[2:]
        if module == "accelerate.commands.launch":
            arguments = ("launch", *arguments)
    if name not in LAUNCHERS or _TELLING & set(arguments[:1]):
        return None
    return None if name == "accelerate" and arguments[:1] != ("launch",) else (name, arguments)


def python_script(words: Sequence[str]) -> tuple[str, ...] | None:
    """The file and arguments that `python FILE ...` runs; None where a command runs none, such as `python -m`."""
    started = program(words)
    if not started or not _PYTHON.fullmatch(started[0].rsplit("/", 1)[-1]):
        return None
    arguments = _python_arguments(started[1:])
    return arguments if arguments and not arguments[0].startswith("-") else None


def _python_arguments(words: tuple[str, ...]) -> tuple[str, ...]:
    """What stands behind Python's own options, except `-m` and `-c`."""
    while words and words[0].startswith("-") and words[0] not in ("-m", "-c", "-"):
        words = words[2 if words[0] in ("-W", "-X") else 1 :]
    return words
