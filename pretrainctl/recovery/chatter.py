"""Words that look like a cause and are none: what a program handles, and what it only quotes.

A program that goes on after an error says so in the same line: its level is a warning, or it tries again, skips, falls
back. Settings, help and samples of the data quote errors that never happened. What is left is said outright.
"""

from __future__ import annotations

import enum
import re

from pretrainctl.recovery.log_lines import STAMP

__all__ = ["Manner", "attempts_in", "manner_of"]


class Manner(enum.IntEnum):
    """How a line says something: as it is, as something that is dealt with, or as somebody else's words."""

    OUTRIGHT = 0
    HANDLED = 1
    QUOTED = 2


_MILD = re.compile(
    r"(?:^|[\s\[(|:.,-])(?:WARN(?:ING)?|INFO|DEBUG|TRACE|NOTICE|[Ww]arning|\w+Warning|NeMo [WID])(?=$|[\s\])|:,-])"
)
_GRAVE = re.compile(r"\b(?:ERROR|CRITICAL|FATAL|SEVERE)\b")
_TOLD_MILDLY = re.compile(r"NCCL WARN|zero checkpoints paths are missing|load path: \S+ does not exist")
"""Libraries that warn, and mean it: NCCL, and DeepSpeed of its checkpoints."""
_TOOL = re.compile(r"(?:wandb|tensorboard|mlflow|comet|codecarbon|clearml|aim|git|pip)(?:\[\d+\])?: ", re.IGNORECASE)
"""Companions of a training, which do not end it."""
_DEALT_WITH = re.compile(
    r"\b(?:retrying|(?:will|to) (?:be )?(?:retry|retried|continue|skip|ignore)|retry (?:in|ok|#?\d)|retry loop|"
    r"ignor(?:ed|ing)|(?<!many )(?<!max )skipp(?:ed|ing)|"
    r"(?<!no )fall(?:s|ing)?[ -]?backs?|tolerated|recovered|continuing|proceeding|"
    r"(?:re)?building it|this is (?:fine|ok|harmless|expected)|harmless|non-?fatal|not fatal|best[- ]effort)\b"
    r"|[,;:.(-] *(?:now )?trying (?!to\b)|\b(?:disabled|stopped|turned off|switched off)\)"
    r"|(?:Import|NotFound)Error\b.*[,;(-] ?using "
    r"|\buse[sd]? \S+ instead",
    re.IGNORECASE,
)
_ATTEMPT = re.compile(r"(?:\b(?:attempt|try|retry) |\()#?(\d+) ?(?:/|of) ?(\d+)")
_GIVEN_UP = re.compile(r"giv(?:ing|en|es) up|exhausted|no more (?:retries|attempts)|\babort|\bexiting", re.IGNORECASE)

_ERROR_NAME = r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Timeout)\b"
_PREFIX = re.compile(
    rf"(?:\s*(?:{STAMP}|(?:ERROR|CRITICAL|FATAL|WARNING|INFO|DEBUG)\b:?|"
    rf"(?!{_ERROR_NAME}|[Ee]rror:|[Ff]atal:|FATAL:)[\w./-]+(?:\[\d+\])?:(?=\s)))*\s*"
)
_RAISED = re.compile(
    rf"{_ERROR_NAME}|[Ee]rror\b|[Ff]atal\b|FATAL\b|terminate called|what\(\):|"
    r"Exception (?:in|raised|ignored)|E   "
)
"""How a line begins that an exception, or an error of a tool, printed."""
_DATA = re.compile(
    r"\b(?:samples?|prompts?|questions?|answers?|completions?|documents?|config(?:uration)?|settings|arg(?:ument)?s|"
    r"argv|options|help|usage|tip|note|faq|examples?|excerpt|quote|namespace)\b(?!\.\w)(?: [\w/#-]+){0,2} ?[:=](?!\d)"
    r"|\b(?:[Nn]amespace|[Cc]onfig|[Aa]rgs)\(",
    re.IGNORECASE,
)
_QUOTE = re.compile(r"(?<!\w)'|'(?!\w)")
_PLAIN_WORD = re.compile(r"(?<![\w.=])[a-z]{2,}(?![\w(=])")
_WHY = re.compile(r"rror|xception|fail|terminat|caught|rais|abort|due to|because|kill|cannot|unable", re.IGNORECASE)
_KERNEL = re.compile(r"\b(?:NVRM|kernel|Lustre(?:Error)?|mlx[45]_core|amdgpu|EXT4-fs|XFS|nvme|NFS|nfs)\b[^:]{0,40}: ")
"""The system's own log names who speaks, and then the process (`pid=1, name=python`): no sentence around a quote."""
_SENTENCE = 3
"""Plain words before something that is no name of an exception: then it stands in a sentence."""
_LEVEL = re.compile(r"[\"'](?:level|levelname|severity|lvl)[\"']: ?[\"'](\w+)[\"']", re.IGNORECASE)
_KEY = re.compile(
    r"\s{2,}(?!error|exception|message|reason|cause)[a-z_][\w.-]*: (?![A-Z\[])|\s*[\w.-]+ ?\.{4,}|\s*\+ \S"
)
"""Begins a line of settings that are written out, or of a script that shows what it runs."""


def manner_of(text: str, start: int, end: int) -> Manner:
    """How `text` says what stands from `start` to `end` in it."""
    head = text[:start]
    level = _LEVEL.search(text)
    if level is not None:  # a line of a log in JSON
        return Manner.OUTRIGHT if _GRAVE.search(level[1].upper()) else Manner.HANDLED
    if _is_quoted(text, head, end):
        return Manner.QUOTED
    if _TOLD_MILDLY.search(text):
        return Manner.OUTRIGHT
    return Manner.HANDLED if _is_handled(text, head) else Manner.OUTRIGHT


def attempts_in(text: str) -> list[tuple[str, str]]:
    """The attempts that a line counts: which it is, of how many."""
    return _ATTEMPT.findall(text) if "/" in text or " of " in text else []


def _is_quoted(text: str, head: str, end: int) -> bool:
    if _GRAVE.search(head):
        return False
    data = _DATA.search(head)
    if _KEY.match(head) or (data is not None and not _WHY.search(head[: data.start()])):
        return True
    body = _PREFIX.match(text)
    if body is not None and _RAISED.match(text, body.end()):
        return False
    if text[end : end + 1] == "?" or text[end:].lstrip().startswith("->"):
        return True
    return head.count('"') % 2 == 1 or len(_QUOTE.findall(head)) % 2 == 1 or head.count("{") > head.count("}")


def _is_handled(text: str, head: str) -> bool:
    if any(int(number) < int(most) for number, most in attempts_in(text)):
        return True
    if _GIVEN_UP.search(text):
        return False
    body = _PREFIX.match(text)
    tool = any(_TOOL.match(text, at) for at in {0, text.find("wandb: ")} if at >= 0)
    if tool or _MILD.search(head) or _DEALT_WITH.search(text):
        return not any(number == most for number, most in attempts_in(text))
    if _KERNEL.search(head) or (body is not None and _RAISED.match(text, body.end())):
        return False
    said = head.rpartition(":")[2]
    return len(_PLAIN_WORD.findall(said)) >= _SENTENCE and not _WHY.search(said)
