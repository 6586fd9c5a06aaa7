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

from dataclasses import dataclass
from enum import Enum

__all__ = ["POLICIES", "Course", "FailureClass", "Policy"]


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
_AWAY = (30.0, 120.0)
"""A file server that fails over, or a quota that is being raised, takes a minute or two."""
_PERHAPS_AWAY = (0.0, 120.0)
_STEP_ENDING = (2.0, 5.0, 15.0, 30.0)
"""After a restart of its controller Slurm 22.05 refuses a step beside one that dies on a lost node, until that one has
ended (seen)."""

POLICIES: dict[FailureClass, Policy] = {
    FailureClass.FINISHED: Policy(Course.FINISH, "nothing to do"),
    FailureClass.CHECKPOINTED: Policy(Course.HAND_OVER, "nothing is lost; resume if no chained job is queued"),
    FailureClass.STOPPED: Policy(Course.STOP, "`pretrainctl resume` goes on from the save", _AGAIN),
    FailureClass.TIME_LIMIT: Policy(
        Course.HAND_OVER,
        "nothing to do where the chained job is queued; if the save did not get done, raise the signal lead time",
    ),
    FailureClass.PREEMPTED: Policy(Course.HAND_OVER, "nothing to do: it goes on when the nodes are free again"),
    FailureClass.NODE_FAILURE: Policy(Course.EXCLUDE_NODE, "tell the site which node, and when"),
    FailureClass.BOOT_FAILURE: Policy(
        Course.EXCLUDE_NODE, "nothing of the run was lost; tell the site which node", pauses=_STEP_ENDING
    ),
    FailureClass.GPU_HARDWARE: Policy(
        Course.EXCLUDE_NODE, "send the site the node, the GPU, the time and the line; keep off the node until then"
    ),
    FailureClass.FABRIC: Policy(
        Course.RESTART, "ask the site about the links of the nodes that are named; leave a node out that comes twice"
    ),
    FailureClass.COLLECTIVE_TIMEOUT: Policy(
        Course.RESTART,
        "look at what the ranks named here did, not at those that waited; leave a node out that comes twice",
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
        Course.FALL_BACK, "`pretrainctl checkpoints` says which tag is complete, and what the others lack"
    ),
    FailureClass.CHECKPOINT_WORLD_SIZE: Policy(
        Course.STOP,
        "use the number of GPUs that saved it, or convert the checkpoint (DeepSpeed: universal checkpoint)",
        "the checkpoint does not fit this number of ranks",
    ),
    FailureClass.DIVERGENCE: Policy(
        Course.STOP,
        "go back to an older checkpoint; bf16 instead of fp16, a lower learning rate, or other data at that step",
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
    FailureClass.HANG: Policy(
        Course.RESTART, "see the stacks of the ranks that stood still; leave a node out that comes twice"
    ),
    FailureClass.USER_CANCEL: Policy(Course.STOP, "`pretrainctl resume` goes on", _AGAIN),
    FailureClass.ADMIN_CANCEL: Policy(
        Course.STOP, "ask the site why, then `pretrainctl resume`", "ask why before `resume`"
    ),
    FailureClass.FENCED: Policy(Course.STOP, "nothing to do: see the newest attempt", "another job has the run"),
    FailureClass.UNKNOWN: Policy(
        Course.RESTART_ONCE,
        "read the end of the log and Slurm's own: `sacct -j JOB -o State,ExitCode,NodeList,Comment`",
        pauses=_PERHAPS_AWAY,
    ),
}
