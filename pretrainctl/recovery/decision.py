"""What happens after an end: finish, restart here, hand over to the chained job, or stop the chain.

`policies` has what each class calls for. A class that restarts does so here while enough healthy nodes, time and
budget are there, else the chained job goes on. An error that restarts once stops the chain where it comes twice in a
row at the same step, with no newer checkpoint; one that may pass by itself is waited for before. `progress_gate` ends
what goes on for other reasons without getting anywhere, starts that fail early one after the other stop before that,
and `recovery.budgets` has the last word.

Nodes are left out where the diagnosis names them and its class lays it on nodes: the first time where the fault is the
node's own, the second time where a node is only a suspect.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from pretrainctl.records.launch import RecoveryRule
from pretrainctl.records.run import Action, Decision, Diagnosis
from pretrainctl.recovery.budgets import Spent, check_spent
from pretrainctl.recovery.policies import Course, FailureClass, policy_of

__all__ = [
    "AttemptSummary",
    "RestartSummary",
    "course_of",
    "decide",
    "decide_after_attempt",
    "hint_of",
    "hold_to_limits",
    "left_out",
    "progress_gate",
    "stops_chain",
]

_ONCE = {Course.RESTART_ONCE, Course.FALL_BACK}
_SUSPECTS_NODES = {FailureClass.FABRIC, FailureClass.COLLECTIVE_TIMEOUT, FailureClass.HANG, FailureClass.FILESYSTEM}
_FROM_OUTSIDE = {FailureClass.NODE_FAILURE, FailureClass.BOOT_FAILURE, FailureClass.PREEMPTED}
_LASTING = "it stays so until a person acts"
_EARLY = 60.0
"""Seconds: a start that failed within them, and before its first step, has cost little, and so has the next."""
_EARLY_FAILURES = 3
"""Early failures in a row, of whatever class, after which a further start is not worth trying."""


@dataclass(frozen=True)
class RestartSummary:
    """One start of the training program that is over.

    `start_step`: the step it resumed from (0 = fresh). `end_step`: the last step it did, None for none.
    `checkpoint_step`: step of the newest complete checkpoint after it, 0 for none. `nodes`: those that its
    diagnosis named. `seconds` from its start to its end, None where that is not known. `refused`: the tag that it
    proved to be one that cannot be loaded, empty for none.
    """

    attempt: int
    restart: int
    failure_class: str
    start_step: int
    end_step: int | None
    checkpoint_step: int
    nodes: tuple[str, ...] = ()
    seconds: float | None = None
    refused: str = ""


@dataclass(frozen=True)
class AttemptSummary:
    """One attempt that is over.

    `start_step`: the step its first restart resumed from. `end_step`: the highest step it did, None for none.
    `checkpoint_step`: step of the newest complete checkpoint after it, 0 for none.
    """

    attempt: int
    start_step: int
    end_step: int | None
    checkpoint_step: int
    failure_class: str = ""


def course_of(diagnosis: Diagnosis, rule: RecoveryRule | None = None) -> Course:
    """What the diagnosis calls for by itself, whatever happened before; `rule` is that of its run."""
    if diagnosis.lasting:
        return Course.STOP
    chosen = rule.policies if rule is not None else {}
    course = policy_of(FailureClass(diagnosis.failure_class), chosen).course
    # Where no node is named there is none to leave out.
    return Course.RESTART if course is Course.EXCLUDE_NODE and not diagnosis.nodes else course


def hint_of(diagnosis: Diagnosis, rule: RecoveryRule | None = None) -> str:
    """What a person can do, or need not do; `rule` is that of its run, whose policies may choose another course."""
    chosen = rule.policies if rule is not None else {}
    return diagnosis.hint or policy_of(FailureClass(diagnosis.failure_class), chosen).hint


def stops_chain(diagnosis: Diagnosis, rule: RecoveryRule | None = None) -> Decision | None:
    """FINISH or STOP where the diagnosis by itself forbids going on, else None."""
    course = course_of(diagnosis, rule)
    if course is Course.FINISH:
        return Decision(Action.FINISH, diagnosis.message)
    if course is Course.STOP:
        policy = policy_of(FailureClass(diagnosis.failure_class), rule.policies if rule is not None else {})
        why = policy.why if policy.why and policy.course is Course.STOP else _LASTING
        return Decision(Action.STOP, f"{diagnosis.message}; {why}")
    return None


def decide(
    diagnosis: Diagnosis,
    history: Sequence[RestartSummary],
    rule: RecoveryRule,
    *,
    healthy_nodes: int,
    needed_nodes: int,
    job_is_ending: bool = False,
    false_alarm: bool = False,
) -> Decision:
    """What to do in an attempt whose training program has just ended.

    `history` holds the run's restarts in order, the one just ended last; its attempt is the present one.
    `healthy_nodes` of this allocation are alive, `needed_nodes` train. `job_is_ending`: Slurm has said that
    it will take the allocation. `false_alarm`: the program was asked to leave for a loss that was none; what would be
    handed over goes on here.
    """
    forbidden = stops_chain(diagnosis, rule)
    kind = FailureClass(diagnosis.failure_class)
    course = policy_of(kind, rule.policies).course
    pauses = _pauses(diagnosis, history, rule)
    times = _same_error(kind, history)
    # What is full may be emptied, what lasts may be repaired, within the pauses: they cost less than a night.
    if forbidden is not None and (not pauses or times > len(pauses)):
        return forbidden
    exclude = left_out(diagnosis, history, rule)
    if diagnosis.lasting and healthy_nodes - len(exclude) < needed_nodes:
        exclude = ()  # the next job would stop at once: what is full is waited for here, on whichever node
    if course is Course.HAND_OVER and not false_alarm:
        return Decision(Action.HAND_OVER, diagnosis.message, exclude)
    if course in _ONCE and times > max(1, len(pauses)):
        last = history[-1].end_step
        where = "before the first step" if last is None else f"after step {last}"
        often = "twice" if times == 2 else f"{times} times"
        repeated = f"the same error {often} in a row {where}, and no newer checkpoint"
        return Decision(Action.STOP, f"{diagnosis.message}; {repeated}")
    # A dead node is not among the healthy ones; one that is bad and alive is.
    usable = healthy_nodes - (len(exclude) if kind is not FailureClass.NODE_FAILURE else 0)
    used = history[-1].restart if history else 0
    if job_is_ending:
        why = "this allocation is ending"
    elif used >= rule.restarts_per_attempt:
        why = f"all {rule.restarts_per_attempt} restarts of this attempt are used"
    elif usable < needed_nodes:
        why = f"{usable} healthy nodes are left, {needed_nodes} are needed"
    else:
        reason = f"{diagnosis.message}; {usable} healthy nodes are here, {needed_nodes} are needed"
        pause = pauses[min(times, len(pauses)) - 1] if pauses else 0.0
        reason += f"; after a pause of {pause:.0f} s" if pause else ""
        return Decision(Action.RESTART_HERE, reason, exclude, pause)
    return Decision(Action.HAND_OVER, f"{diagnosis.message}; {why}", exclude)


def hold_to_limits(found: Decision, history: Sequence[RestartSummary], rule: RecoveryRule, spent: Spent) -> Decision:
    """`found`, what `decide` says, or STOP where it would go on and the last starts failed early, or the run has
    `spent` one of its budgets."""
    if found.action not in {Action.RESTART_HERE, Action.HAND_OVER}:
        return found
    why = (_fails_early(history, rule) if found.pause == 0 else "") or check_spent(spent, rule)
    return Decision(Action.STOP, f"{found.reason}; but {why}") if why else found


def decide_after_attempt(
    diagnosis: Diagnosis, history: Sequence[AttemptSummary], rule: RecoveryRule
) -> Decision | None:
    """FINISH or STOP where the run must not go on after the newest attempt of `history`, else None."""
    return stops_chain(diagnosis, rule) or progress_gate(history, rule)


def _fails_early(history: Sequence[RestartSummary], rule: RecoveryRule) -> str:
    """Why further starts are not worth trying: the last ones all failed at once; empty where they did not, or where
    one node, which can be left out, explains them."""
    last = history[-_EARLY_FAILURES:]
    if len(last) < _EARLY_FAILURES or any(
        restart.end_step is not None or restart.seconds is None or restart.seconds > _EARLY for restart in last
    ):
        return ""
    if any(_is_explained(restart, rule) for restart in last):
        return ""
    explained = set(last[0].nodes).intersection(*(restart.nodes for restart in last))
    if len(explained) == 1:
        return ""
    classes = ", ".join(dict.fromkeys(restart.failure_class for restart in last))
    return f"{len(last)} starts in a row failed in their first minute, before a step ({classes}), and on no one node"


def _is_explained(restart: RestartSummary, rule: RecoveryRule) -> bool:
    """Whether it came from outside the program, is laid on nodes that are left out, or on a tag set aside."""
    kind = FailureClass(restart.failure_class)
    at_fault = policy_of(kind, rule.policies).course is Course.EXCLUDE_NODE and restart.nodes
    return kind in _FROM_OUTSIDE or bool(at_fault) or bool(restart.refused)


def left_out(
    diagnosis: Diagnosis, history: Sequence[RestartSummary], rule: RecoveryRule | None = None
) -> tuple[str, ...]:
    """The nodes that a diagnosis names and its class lays it on: those to go on without. A stop leaves out none."""
    course = policy_of(FailureClass(diagnosis.failure_class), rule.policies if rule is not None else {}).course
    if course is Course.STOP:
        return ()
    kind = FailureClass(diagnosis.failure_class)
    if course is Course.EXCLUDE_NODE and diagnosis.confidence != "low":
        return diagnosis.nodes
    if course is not Course.EXCLUDE_NODE and kind not in _SUSPECTS_NODES:
        return ()
    before = {node for restart in history[:-1] if restart.failure_class == kind.value for node in restart.nodes}
    return tuple(node for node in diagnosis.nodes if node in before)


def _pauses(diagnosis: Diagnosis, history: Sequence[RestartSummary], rule: RecoveryRule) -> tuple[float, ...]:
    """Those of the class; an error of the program of which no line is known is as good as unknown.

    What nobody knows is tried once more, at once. Only before the first step it may be a server that is away, and is
    waited for: one that comes twice after the same step is the program's own.
    """
    kind = FailureClass(diagnosis.failure_class)
    policy = policy_of(kind, rule.policies)
    wordless = kind is FailureClass.APPLICATION_ERROR and diagnosis.confidence == "low"
    if wordless and policy.course is not Course.STOP:
        policy = policy_of(FailureClass.UNKNOWN, {})
    elif kind is not FailureClass.UNKNOWN:
        return policy.pauses
    has_stepped = bool(history) and history[-1].end_step is not None
    return policy.pauses[:1] if has_stepped else policy.pauses


def _same_error(kind: FailureClass, history: Sequence[RestartSummary]) -> int:
    """How many restarts in a row, the last included, failed in this way at the same step for nothing."""
    times = 1
    for before, last in itertools.pairwise(history):
        same = before.failure_class == last.failure_class == kind.value
        # The next start takes another tag, as often as recovery.older_checkpoints allows.
        same = same and (not last.refused or last.refused == before.refused)
        stuck = before.end_step == last.end_step and last.checkpoint_step <= before.checkpoint_step
        times = times + 1 if same and stuck else 1
    return times


def progress_gate(history: Sequence[AttemptSummary], rule: RecoveryRule) -> Decision | None:
    """STOP where the last attempts did not get anywhere, else None.

    An attempt advanced if the newest complete checkpoint after it is newer than every one before it; the
    highest step printed does not count. The chain stops after `attempts_without_progress` attempts in a row
    that did not, and already after two that did the same steps for nothing, unless a lost node or a
    preemption ended them.
    """
    stuck = _without_progress(history)
    if not stuck:
        return None
    replayed = (
        len(stuck) >= 2
        and stuck[-1].end_step is not None
        and (stuck[-2].start_step, stuck[-2].end_step) == (stuck[-1].start_step, stuck[-1].end_step)
        and stuck[-1].failure_class not in _FROM_OUTSIDE
    )
    if len(stuck) < rule.attempts_without_progress and not replayed:
        return None
    lost = sum(max(0, attempt.end_step - attempt.start_step) for attempt in stuck if attempt.end_step is not None)
    steps = f"{lost} repeated steps were lost" if lost else "no step was done"
    numbers = ", ".join(str(attempt.attempt) for attempt in stuck)
    newest = stuck[-1].checkpoint_step
    where = f"still that of step {newest}" if newest else "still missing"
    return Decision(
        Action.STOP,
        f"attempts {numbers} made no progress: the newest complete checkpoint is {where}; {steps}",
    )


def _without_progress(history: Sequence[AttemptSummary]) -> list[AttemptSummary]:
    """The attempts at the end of the history that did not advance, in order."""
    stuck: list[AttemptSummary] = []
    newest = history[0].start_step if history else 0
    for attempt in history:
        if attempt.checkpoint_step > newest:
            stuck = []
            newest = attempt.checkpoint_step
        else:
            stuck.append(attempt)
    return stuck
