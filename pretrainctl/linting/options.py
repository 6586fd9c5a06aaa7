"""The options of sbatch and srun as getopt reads them: short and long, with `=` or a space, with and without value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["read_options"]

_SHORT = {
    "A": "account",
    "B": "extra-node-info",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "L": "licenses",
    "M": "clusters",
    "N": "nodes",
    "S": "core-spec",
    "T": "threads",
    "W": "wait",
    "a": "array",
    "b": "begin",
    "c": "cpus-per-task",
    "d": "dependency",
    "e": "error",
    "i": "input",
    "m": "distribution",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "r": "relative",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}
"""Short options that take a value, by their long name."""

_SHORT_FLAGS = {
    "H": "hold",
    "I": "immediate",
    "K": "kill-on-bad-exit",
    "O": "overcommit",
    "Q": "quiet",
    "X": "disable-status",
    "Z": "no-allocate",
    "k": "no-kill",
    "l": "label",
    "s": "oversubscribe",
    "u": "unbuffered",
    "v": "verbose",
}
"""Short options without a value, or with one that can only be glued to them (`-K0`)."""

_FLAGS = {
    *_SHORT_FLAGS.values(),
    "container-mount-home",
    "container-readonly",
    "container-remap-root",
    "container-writable",
    "contiguous",
    "exact",
    "exclusive",
    "get-user-env",
    "ignore-pbs",
    "multi-prog",
    "nice",
    "overlap",
    "parsable",
    "preserve-env",
    "propagate",
    "pty",
    "reboot",
    "requeue",
    "spread-job",
    "test-only",
    "use-min-nodes",
}
"""Long options whose value, if any, needs a `=`; so do all that begin with `no-`."""


def read_options(words: Sequence[str], *, command: str = "srun") -> tuple[dict[str, str], int]:
    """Options by their long names, and the index of the first word that is none.

    An option without a value has the value `""`; the last of two wins, as in Slurm. `command` is needed because
    sbatch's `-W` takes no value and srun's does.
    """
    found: dict[str, str] = {}
    index = 0
    while index < len(words):
        word = words[index]
        if word == "--":
            return found, index + 1
        if not word.startswith("-") or word == "-":
            break
        read = _long if word.startswith("--") else _short
        following = words[index + 1] if index + 1 < len(words) else None
        taken = 0
        for name, value, used in read(word, following, command):
            found[name] = value
            taken = used
        index += 1 + taken
    return found, index


def _long(word: str, following: str | None, command: str) -> Iterator[tuple[str, str, int]]:
    name, equals, value = word[2:].partition("=")
    flag = name in _FLAGS or name.startswith("no-") or (name == "wait" and command == "sbatch")
    if equals or flag or following is None:
        yield name, value, 0
    else:
        yield name, following, 1


def _short(word: str, following: str | None, command: str) -> Iterator[tuple[str, str, int]]:
    for position, letter in enumerate(word[1:], start=2):
        rest = word[position:]
        if letter == "W" and command == "sbatch":
            yield "wait", "", 0
        elif letter in _SHORT:
            yield (_SHORT[letter], rest, 0) if rest else (_SHORT[letter], following or "", 1)
            return
        else:
            value = rest if rest.isdigit() else ""
            yield _SHORT_FLAGS.get(letter, letter), value, 0
            if value:
                return
