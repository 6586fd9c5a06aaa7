"""Options and values that sbatch itself refuses, before any scheduler has seen the job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Hit, Rule
from pretrainctl.linting.options import PLUGINS, SBATCH, SRUN, needs_value, read_options

__all__ = ["RULES"]

_PUT_IN = re.compile(r"[$`{}<>@%]")
"""In a word that a shell or a template is to put in."""
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_UNITS = re.compile(r"(?i)[kmgt]i?b?")
_MEMORY = re.compile(r"(?i)\d+([kmgt]b?)?")
_GRES = re.compile(r"(gres[:/])?(?!gpus?-?\d)[A-Za-z_][\w.-]*(:[^:=]+)?(:\d+[kmgtp]?)?", re.IGNORECASE)
_SIGNAL = re.compile(
    r"(?i)([rb]{1,2}:)?(sig)?(\d+|hup|int|quit|abrt|kill|alrm|term|usr1|usr2|urg|cont|stop|xcpu)(@\d+)?"
)
_FORMS = {
    "mem": (_MEMORY, "a whole number with K, M, G or T: 64G"),
    "mem-per-cpu": (_MEMORY, "a whole number with K, M, G or T: 4G"),
    "mem-per-gpu": (_MEMORY, "a whole number with K, M, G or T: 64G"),
    "tmp": (_MEMORY, "a whole number with K, M, G or T: 64G"),
    "signal": (_SIGNAL, "a signal and the seconds before the end: B:USR1@300"),
    "open-mode": (re.compile(r"(?i)a(p(p(e(n(d)?)?)?)?)?|t(r(u(n(c(a(t(e)?)?)?)?)?)?)?"), "append or truncate"),
    "kill-on-invalid-dep": (re.compile(r"(?i)y(es)?|no?"), "yes or no"),
}


def _refused_option(batch: Batch) -> Iterator[Hit]:
    """sbatch: "unrecognized option", "Invalid directive found in batch script". Source: sbatch of Slurm 22.05.

    The names are those of every version up to 25.05; an option that is like none of them may be a plugin's.
    """
    for line, words in batch.script.header.words:
        options, taken = read_options(words, command="sbatch")
        rest = words[taken:]
        if rest and not re.search(r"[$`{}<]", " ".join(words)):
            yield line, f"{rest[0]!r} is no option, and sbatch refuses the script", _instead_of(words[:taken], rest)
            continue
        for word in words[:taken]:
            long = word[1:].partition("=")[0]
            if re.match(r"-[a-z]", word) and len(long) > 2 and long in SBATCH:
                yield (
                    line,
                    f"{word} is read as -{word[1]} with the value {word[2:]!r}: long options begin with --",
                    f"#SBATCH -{word}",
                )
                break
        else:
            for name in options:
                near = _near(name)
                if near and not _known(name):
                    shown = f"-{name}" if len(name) == 1 else f"--{name}"
                    yield line, f"sbatch has no option {shown}, and refuses the script", near
            if needs_value(words[-1] if words else ""):
                yield (
                    line,
                    f"{words[-1]} needs a value, and sbatch refuses the script",
                    f"{words[-1]}=VALUE, or drop it",
                )


def _instead_of(before: tuple[str, ...], rest: tuple[str, ...]) -> str:
    bare = rest[0].lstrip(_DASHES)
    name = bare.partition("=")[0]
    if bare != rest[0]:
        return f"a plain hyphen, not a long dash: --{bare}" if name in SBATCH else f"a plain hyphen: -{bare}"
    if name in SBATCH:
        return f"--{bare}"
    if before and "=" in before[-1] and _UNITS.fullmatch(rest[0]):
        return f"no blank inside a value: {before[-1]}{rest[0][0]}"
    if before and before[-1] == "=":
        return "no blanks around ="
    return "no blank inside a value; each option begins with - or --"


def _known(name: str) -> bool:
    return name in SBATCH or name.startswith(PLUGINS) or bool(_PUT_IN.search(name))


_RENAMED = {"share": "oversubscribe", "workdir": "chdir"}


def _near(name: str) -> str | None:
    """What an option was meant to be; None where it may be a plugin's."""
    if name in _RENAMED:
        return f"--{_RENAMED[name]}, as it is called now"
    if name in SRUN and name not in SBATCH:
        return "an option of srun's: give it to srun"
    several = sorted(each for each in SBATCH if each.startswith(name))
    if len(name) == 1:
        return f"its name with two hyphens, such as --{several[0]}" if several else "drop it"
    if several:
        return f"one of --{', --'.join(several)}, all of which begin so"
    close = get_close_matches(name.replace("_", "-"), SBATCH, n=1, cutoff=0.75)
    return f"--{close[0]}" if close else None


def _unknown_option(batch: Batch) -> Iterator[Hit]:
    """A name that Slurm does not have: a plugin of the site's may. Source: sbatch of Slurm 22.05; spank(7)."""
    for line, words in batch.script.header.words:
        for name in read_options(words, command="sbatch")[0]:
            if not _known(name) and _near(name) is None:
                yield (
                    line,
                    f"sbatch up to 25.05 has no option --{name}: it refuses the script, unless a plugin adds it",
                    "drop it where the site's guide does not name it",
                )


def _refused_value(batch: Batch) -> Iterator[Hit]:
    """sbatch: "Invalid --mem specification", "Invalid generic resource (gres) specification".

    Source: sbatch of Slurm 22.05.
    """
    for directive in batch.script.header.directives:
        name, value = directive.name, directive.value
        if _PUT_IN.sub("", value) != value and not (name == "signal" and "@" in value and "$" not in value):
            continue
        form, told = _FORMS.get(name, (None, ""))
        if name == "gres" and value:
            parts = re.sub(r"\([^)]*\)", "", value).split(",")
            if not all(part == "none" or _GRES.fullmatch(part) for part in parts):
                yield (
                    directive.line,
                    f"sbatch cannot read --gres={value}",
                    "NAME:TYPE:COUNT, such as gpu:4 or gpu:a100:4",
                )
        elif form and value and not form.fullmatch(value):
            yield directive.line, f"sbatch cannot read --{name}={value}", told


RULES = (
    Rule("refused-option", "error", _refused_option),
    Rule("unknown-option", "warning", _unknown_option),
    Rule("refused-value", "error", _refused_value),
)
"""What sbatch refuses."""
