"""How a start of the training program can end, and what each end calls for. One table, one row a class.

| course | what is done |
|---|---|
| finish | nothing more: the target was reached |
| hand_over | the allocation ends: the chained job goes on |
| restart | here while nodes, time and budget last, else in the chained job |
| restart_once | the same, but the same error at the same step with no newer checkpoint stops the chain; what may
pass by itself first gets the pauses of its row, each before one more try |
| exclude_node | restart, without the nodes that are named |
| fall_back | restart_once, from an older complete checkpoint: the checkpoint gate sets the bad one aside |
| stop | nothing goes on until a person has acted and says `resume` |
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from pretrainctl.errors import InputError

__all__ = ["POLICIES", "Course", "FailureClass", "Policy", "check_policies", "policy_of"]


class FailureClass(str, Enum):
    """How something ended; the value is `Diagnosis.failure_class`."""

    FINISHED = "finished"
    CHECKPOINTED = "checkpointed"
    """Saved and left, nobody says why: most likely a signal to the ranks."""
    STOPPED = "stopped"
    """A person asked for it (`stop --save`)."""
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    NODE_FAILURE = "node_failure"
    BOOT_FAILURE = "boot_failure"
    """The nodes of the job did not come up: nothing of ours ran."""
    GPU_HARDWARE = "gpu_hardware"
    FABRIC = "fabric"
    """The network between nodes or GPUs, by its own words; a peer that is gone is none."""
    COLLECTIVE_TIMEOUT = "collective_timeout"
    """Ranks waited in vain for another one: a symptom, and all that is known."""
    HOST_OOM = "host_oom"
    GPU_OOM = "gpu_oom"
    FILESYSTEM = "filesystem"
    """Reading or writing failed, or there is no space."""
    QUOTA = "quota"
    CHECKPOINT_INCOMPLETE = "checkpoint_incomplete"
    CHECKPOINT_WORLD_SIZE = "checkpoint_world_size"
    DIVERGENCE = "divergence"
    PORT_IN_USE = "port_in_use"
    ENVIRONMENT = "environment"
    """A module, library, program, driver, permission or limit of the machine that the program needs."""
    CONFIG = "config"
    """What the recipe or the program's arguments say cannot work."""
    APPLICATION_ERROR = "application_error"
    HANG = "hang"
    USER_CANCEL = "user_cancel"
    ADMIN_CANCEL = "admin_cancel"
    FENCED = "fenced"
    CHANGED = "changed"
    """What it trains with is not what it trained with before, and nobody has accepted that."""
    BUDGET = "budget"
    """The node-hours or restarts that the recipe allows are used up."""
    UNKNOWN = "unknown"


class Course(str, Enum):
    """What a class calls for; the module docstring says what each means."""

    FINISH = "finish"
    HAND_OVER = "hand_over"
    RESTART = "restart"
    RESTART_ONCE = "restart_once"
    EXCLUDE_NODE = "exclude_node"
    FALL_BACK = "fall_back"
    STOP = "stop"


@dataclass(frozen=True)
class Policy:
    """`why` is why a STOP is one, as the decision says it; `hint` what a person can do, or need not do.

    `pauses`: seconds before each new try of what may pass by itself, where the same error came once, twice ...
    """

    course: Course
    hint: str
    why: str = ""
    pauses: tuple[float, ...] = ()


_AGAIN = "nothing goes on until `resume`"
_TWICE = "leave a node out that comes twice"
_AWAY = (30.0, 120.0)
"""A file server that fails over, or a quota that is being raised, takes a minute or two."""
_PERHAPS_AWAY = (0.0, 120.0)
_STEP_ENDING = (2.0, 5.0, 15.0, 30.0)
"""After a restart of its controller Slurm 22.05 refuses a step beside one that dies on a lost node, until that one has
ended (seen)."""

POLICIES: dict[FailureClass, Policy] = {
    FailureClass.FINISHED: Policy(Course.FINISH, "nothing to do"),
    FailureClass.CHECKPOINTED: Policy(Course.HAND_OVER, "nothing is lost; resume if no chained job is queued"),
    FailureClass.STOPPED: Policy(Course.STOP, "`pretrainctl resume RUN` goes on from the save", _AGAIN),
    FailureClass.TIME_LIMIT: Policy(
        Course.HAND_OVER,
        "nothing to do where the chained job is queued; if the save did not get done, raise the signal lead time",
    ),
    FailureClass.PREEMPTED: Policy(Course.HAND_OVER, "nothing to do: it goes on when the nodes are free again"),
    FailureClass.NODE_FAILURE: Policy(
        Course.EXCLUDE_NODE, "tell the site: `pretrainctl nodes report NODE` prints which node, when, and what was seen"
    ),
    FailureClass.BOOT_FAILURE: Policy(
        Course.EXCLUDE_NODE,
        "nothing of the run was lost; tell the site which node: `pretrainctl nodes report NODE`",
        pauses=_STEP_ENDING,
    ),
    FailureClass.GPU_HARDWARE: Policy(
        Course.EXCLUDE_NODE,
        "send the site what `pretrainctl nodes report NODE` prints, the GPU and the line; keep off the node until then",
    ),
    FailureClass.FABRIC: Policy(Course.RESTART, f"ask the site about the links of the nodes that are named; {_TWICE}"),
    FailureClass.COLLECTIVE_TIMEOUT: Policy(
        Course.RESTART,
        f"look at what the ranks named here did, not at those that waited; {_TWICE}",
    ),
    FailureClass.HOST_OOM: Policy(
        Course.RESTART_ONCE,
        "ask for more memory a node, use fewer loader workers, or load and save checkpoints in smaller parts",
    ),
    FailureClass.GPU_OOM: Policy(
        Course.RESTART_ONCE, "a smaller micro batch, more recomputation, a higher ZeRO stage or more model parallelism"
    ),
    FailureClass.FILESYSTEM: Policy(
        Course.RESTART_ONCE,
        "see whether the path can be read and written from the node that is named",
        pauses=_AWAY,
    ),
    FailureClass.QUOTA: Policy(
        Course.STOP,
        "free space or ask for more; see which quota: home, project or scratch, bytes or files",
        "nothing can be saved until space is made",
    ),
    FailureClass.CHECKPOINT_INCOMPLETE: Policy(
        Course.FALL_BACK, "`pretrainctl checkpoints RUN` says which tag is complete, and what the others lack"
    ),
    FailureClass.CHECKPOINT_WORLD_SIZE: Policy(
        Course.STOP,
        "use the number of GPUs that saved it, or convert the checkpoint (DeepSpeed: universal checkpoint)",
        "the checkpoint does not fit this number of ranks",
    ),
    FailureClass.DIVERGENCE: Policy(
        Course.STOP,
        "go back: `pretrainctl checkpoints RUN --verify` says which are whole, `pretrainctl resume RUN --from TAG` "
        "takes one of before it; with bf16 instead of fp16, a lower learning rate, or other data at that step",
        "the same checkpoint with the same settings would diverge again",
    ),
    FailureClass.PORT_IN_USE: Policy(
        Course.RESTART, "nothing to do: each start takes another port; if it comes again, see what else runs there"
    ),
    FailureClass.ENVIRONMENT: Policy(
        Course.STOP, "repair what the line names in modules, container or virtual environment", "it would lack it again"
    ),
    FailureClass.CONFIG: Policy(
        Course.STOP, "change the recipe where the line says", "the same settings would fail again"
    ),
    FailureClass.APPLICATION_ERROR: Policy(
        Course.RESTART_ONCE, "read the traceback of the rank that is named; an error that repeats is in the program"
    ),
    FailureClass.HANG: Policy(Course.RESTART, f"see the stacks of the ranks that stood still; {_TWICE}"),
    FailureClass.USER_CANCEL: Policy(Course.STOP, "`pretrainctl resume RUN` goes on", _AGAIN),
    FailureClass.ADMIN_CANCEL: Policy(
        Course.STOP, "ask the site why, then `pretrainctl resume RUN`", "ask why before `resume`"
    ),
    FailureClass.FENCED: Policy(Course.STOP, "nothing to do: see the newest attempt", "another job has the run"),
    FailureClass.CHANGED: Policy(
        Course.STOP,
        "`pretrainctl resume RUN` shows the difference; put back what was not meant, or give "
        "`pretrainctl resume RUN --accept`",
        "`resume --accept` goes on with it",
    ),
    FailureClass.BUDGET: Policy(
        Course.STOP, "see what it was spent on; `pretrainctl resume RUN --set recovery.KEY=VALUE` allows more", _AGAIN
    ),
    FailureClass.UNKNOWN: Policy(
        Course.RESTART_ONCE,
        "read the end of the log and Slurm's own: `sacct -j JOB -o State,ExitCode,NodeList,Comment`",
        pauses=_PERHAPS_AWAY,
    ),
}

_RECIPE_STOPS = "recovery.policies of the recipe says stop"
_OVER = "the allocation ends, so it can only be handed over or stopped"
_PERSON = "a person asked for it"
_FIXED = {
    FailureClass.FINISHED: "there is nothing left to train",
    FailureClass.STOPPED: _PERSON,
    FailureClass.USER_CANCEL: _PERSON,
    FailureClass.ADMIN_CANCEL: "the site asked for it",
    FailureClass.FENCED: "another job has the run, and two would write it",
    FailureClass.CHANGED: "that is what `resume --accept` is for",
    FailureClass.BUDGET: "raise recovery.node_hours or recovery.restarts_per_hour instead",
    FailureClass.CHECKPOINT_INCOMPLETE: "the checkpoint gate and recovery.older_checkpoints decide it",
    FailureClass.CHECKPOINT_WORLD_SIZE: "no further start can load it",
}
"""Classes whose course no recipe changes, and why."""
_ENDING = {FailureClass.CHECKPOINTED, FailureClass.TIME_LIMIT, FailureClass.PREEMPTED}
_CHOICES = (Course.RESTART, Course.RESTART_ONCE, Course.EXCLUDE_NODE, Course.HAND_OVER, Course.STOP)


def policy_of(kind: FailureClass, chosen: Mapping[str, str]) -> Policy:
    """The policy of a class, with the course that the recipe has `chosen` for it where it has."""
    usual = POLICIES[kind]
    course = chosen.get(kind.value, usual.course.value)
    if kind in _FIXED or course == usual.course.value:
        return usual
    pauses = () if course == Course.STOP.value else usual.pauses
    hint = _hint(usual.hint, Course(course))
    return replace(usual, course=Course(course), hint=hint, why=_RECIPE_STOPS, pauses=pauses)


def _hint(usual: str, course: Course) -> str:
    """The hint of a class under another course than its own: it must not advise what is done, nor deny what is not."""
    if course is Course.EXCLUDE_NODE:
        return usual.replace(_TWICE, "nodes that are named are left out, as recovery.policies of the recipe says")
    if course is Course.STOP:
        kept = usual.removesuffix(_TWICE).removesuffix("; ")
        kept = "" if kept.startswith("nothing to do") else f"{kept}; then "
        return f"{kept}`pretrainctl resume RUN`: {_RECIPE_STOPS}"
    return usual


def check_policies(chosen: Mapping[str, str]) -> None:
    """InputError where `chosen`, failure class to course, names none, or changes what cannot be changed."""
    for name, course in chosen.items():
        key = f"recovery.policies.{name}"
        free = [kind.value for kind in FailureClass if kind not in _FIXED]
        if name not in {kind.value for kind in FailureClass}:
            raise InputError(f"{key}: {name!r} is no failure class", hint=_near(name, free))
        kind = FailureClass(name)
        if kind in _FIXED:
            raise InputError(
                f"{key} cannot be changed from {POLICIES[kind].course.value}: {_FIXED[kind]}",
                hint=f"leave it out; those that can be changed: {', '.join(free)}",
            )
        choices = [one.value for one in _CHOICES]
        if course not in choices:
            raise InputError(f"{key}: {course!r} is nothing that can be done", hint=_near(course, choices))
        if kind in _ENDING and course not in {Course.HAND_OVER.value, Course.STOP.value}:
            raise InputError(f"{key} cannot be {course}: {_OVER}", hint="write hand_over or stop")


def _near(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
