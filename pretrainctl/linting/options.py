"""The options of sbatch and srun as getopt reads them: short and long, with `=` or a space, with and without value.

Source of the names: src/common/slurm_opt.c of Slurm 25.05 and later, sbatch(1) and srun(1) of 22.05.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["PLUGINS", "SBATCH", "SRUN", "needs_value", "read_options"]

_SHORT = {
    "A": "account",
    "B": "extra-node-info",
    "C": "constraint",
    "D": "chdir",
    "F": "nodefile",
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
    "E": "preserve-env",
    "H": "hold",
    "I": "immediate",
    "K": "kill-on-bad-exit",
    "O": "overcommit",
    "Q": "quiet",
    "V": "version",
    "X": "disable-status",
    "Z": "no-allocate",
    "h": "help",
    "k": "no-kill",
    "l": "label",
    "s": "oversubscribe",
    "u": "unbuffered",
    "v": "verbose",
}
"""Short options without a value, or with one that can only be glued to them (`-K0`)."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BOTH_FLAGS = _names(
    "consolidate-segments contiguous exclusive help hold nice no-kill oom-kill-step overcommit oversubscribe parsable "
    "propagate quiet reboot resv-ports spread-job spread-segments stepmgr test-only usage use-min-nodes verbose "
    "version"
)
_BOTH_VALUED = _names(
    "account acctg-freq autocomplete bb bbf begin chdir cluster cluster-constraint clusters comment constraint "
    "container container-id context core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline "
    "delay-boot dependency distribution error exclude export extra extra-node-info gid gpu-bind gpu-freq gpus "
    "gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name licenses mail-type mail-user "
    "mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network nodefile nodelist nodes ntasks "
    "ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output partition power "
    "prefer priority profile qos reservation resources runtime segment signal sockets-per-node switches tasks-per-node "
    "thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid wckey"
)
SBATCH = (
    _BOTH_FLAGS
    | _BOTH_VALUED
    | _names("external get-user-env ignore-pbs no-requeue requeue wait")
    | _names("array batch export-file kill-on-invalid-dep wait-all-nodes wrap")
)
"""Long options of sbatch, whatever the version; of those that nothing else begins like, the beginning will do."""
PLUGINS = ("container-", "no-container-")
"""Beginnings of options that a plugin of the site's adds: those of pyxis. Source: pyxis's own README."""
_FLAGS = (
    _BOTH_FLAGS
    | frozenset(_SHORT_FLAGS.values())
    | _names("external get-user-env ignore-pbs no-requeue requeue")
    | _names(
        "async bcast compress debugger-test exact external-launcher interactive multi-prog no-allocate overlap "
        "preserve-env pty quit-on-interrupt send-libs wait-for-children whole x11"
    )
    | _names("container-mount-home container-readonly container-remap-root container-writable")
    | frozenset(("container-entrypoint",))
)
"""Long options whose value, if any, needs a `=`; so do all that begin with `no-`."""
SRUN = (
    _FLAGS
    | _BOTH_VALUED
    | _names(
        "accel-bind bcast-exclude cpu-bind epilog het-group ignore-signals jobid mpi msg-timeout prolog relative "
        "slurmd-debug task-epilog task-prolog threads treewidth wait"
    )
)
"""Long options of srun, whatever the version."""
_ALIASES = {"tasks-per-node": "ntasks-per-node", "cluster": "clusters"}
"""Second names. Source: src/common/slurm_opt.c."""


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


def needs_value(word: str) -> bool:
    """Whether the last word of a line is a long option of sbatch's that lacks its value."""
    name = word.removeprefix("--")
    return word.startswith("--") and name in SBATCH and not _flag(name, "sbatch")


def _flag(name: str, command: str) -> bool:
    return name in _FLAGS or name.startswith("no-") or (name == "wait" and command == "sbatch")


def _whole(name: str, known: frozenset[str]) -> str:
    """The option that a name means: itself, or the only one that begins with it."""
    if name not in known:
        meant = [each for each in known if each.startswith(name)]
        name = meant[0] if len(meant) == 1 else name
    return _ALIASES.get(name, name)


def _long(word: str, following: str | None, command: str) -> Iterator[tuple[str, str, int]]:
    name, equals, value = word[2:].partition("=")
    name = _whole(name, SBATCH if command == "sbatch" else SRUN)
    if equals or _flag(name, command) or following is None:
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
