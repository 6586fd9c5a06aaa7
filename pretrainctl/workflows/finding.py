"""What doctor says of one end, with the names of its run filled into what is to be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pretrainctl.records.launch import RecoveryRule
from pretrainctl.records.run import Action, Diagnosis
from pretrainctl.recovery.decision import course_of, hint_of
from pretrainctl.recovery.policies import Course
from pretrainctl.slurm import nodes as node_names

__all__ = ["Finding", "as_decided", "fill_names", "finding_of"]

_TYPED = re.compile(r"`[^`]*`")


@dataclass(frozen=True)
class Finding:
    """What doctor says. `action` is the course of its class (`recovery.policies`), or that the run was stopped instead;
    `hint` is what a person can do.

    `attempt`, `restart` and `done`, what pretrainctl did about it, are those of a run; `restart` is None where the
    program was never started. `notes` say what could not be looked at, and what else is wrong.
    """

    failure_class: str
    message: str
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    evidence: tuple[str, ...]
    confidence: str
    action: str
    hint: str
    run: str = ""
    attempt: int | None = None
    restart: int | None = None
    done: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def finding_of(
    diagnosis: Diagnosis, rule: RecoveryRule | None = None, *, run: str = "", job_id: int | None = None
) -> Finding:
    """A diagnosis with what follows from it; `rule` None where no recipe says otherwise, `run` empty and `job_id` None
    where they are not known."""
    return Finding(
        failure_class=diagnosis.failure_class,
        message=diagnosis.message,
        nodes=diagnosis.nodes,
        ranks=diagnosis.ranks,
        evidence=diagnosis.evidence,
        confidence=diagnosis.confidence,
        action=course_of(diagnosis, rule).value,
        hint=fill_names(hint_of(diagnosis, rule), run=run, nodes=diagnosis.nodes, job_id=job_id),
        run=run,
    )


def as_decided(found: Finding, action: str) -> Finding:
    """A finding of a run with the `action` that was taken: where it was stopped against the usual course of its class,
    a person has to say that it goes on."""
    if action != Action.STOP.value or found.action in {Course.STOP.value, Course.FINISH.value}:
        return found
    hint = fill_names("it was stopped: `pretrainctl resume RUN` goes on", run=found.run)
    return replace(found, action=Course.STOP.value, hint="; ".join(filter(None, (found.hint, hint))))


def fill_names(hint: str, *, run: str = "", nodes: Sequence[str] = (), job_id: int | None = None) -> str:
    """A hint of the tables with RUN, NODE and JOB of its commands filled in; what is not known stays as it is."""
    known = {
        "RUN": shlex.quote(run) if run else "",
        "NODE": shlex.quote(node_names.fold(nodes)) if nodes else "",
        "JOB": str(job_id or ""),
    }

    def fill(command: re.Match[str]) -> str:
        return re.sub(r"\b(RUN|NODE|JOB)\b", lambda word: known[word[1]] or word[1], command[0])

    return _TYPED.sub(fill, hint)
