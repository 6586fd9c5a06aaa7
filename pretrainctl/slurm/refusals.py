"""What sbatch's refusals mean: one table, matched in order, case ignored."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

__all__ = ["REFUSALS", "Refusal", "RefusalClass", "Retry", "one_line", "read_refusal"]


class RefusalClass(Enum):
    """Why Slurm refused a job."""

    ACCOUNT = "account"
    OWN_LIMIT = "own_limit"
    """The user's own limit of submitted jobs is reached."""
    TIME_LIMIT = "time_limit"
    TOO_LARGE = "too_large"
    POLICY = "policy"
    """A limit of the account or queue; Slurm does not say which."""
    IMPOSSIBLE = "impossible"
    PARTITION = "partition"
    RESERVATION = "reservation"
    DEPENDENCY = "dependency"
    SITE_FILTER = "site_filter"
    SCRIPT = "script"
    BUSY = "busy"
    """The controller is overloaded or away: the job may have been accepted all the same."""
    NO_CONFIGURATION = "no_configuration"
    """Slurm's commands found no configuration, and asked nobody."""
    UNKNOWN = "unknown"


class Retry(Enum):
    """Whether the same request may be tried again without a person."""

    NO = "no"
    LATER = "later"
    """When own jobs have left the queue."""
    BACK_OFF = "back_off"
    """After a look whether the job is there, and after a growing pause."""


@dataclass(frozen=True)
class Refusal:
    """One kind of refusal: `pattern` is searched in all that sbatch said, `hint` is for people."""

    refusal_class: RefusalClass
    retry: Retry
    pattern: str
    hint: str

    @property
    def spoke(self) -> bool:
        """Whether it was the controller that said no."""
        return self.refusal_class not in {RefusalClass.BUSY, RefusalClass.NO_CONFIGURATION}


REFUSALS = (
    Refusal(
        RefusalClass.NO_CONFIGURATION,
        Retry.NO,
        r"resolve_ctls_from_dns_srv|could not establish a configuration source|no such file.*slurm\.conf",
        "this host belongs to no Slurm cluster, or SLURM_CONF names a file that is gone",
    ),
    Refusal(
        RefusalClass.OWN_LIMIT,
        Retry.LATER,
        r"\b(QOS|Assoc)(Max|Grp)SubmitJob",
        "wait until jobs of your own have left the queue, or cancel one",
    ),
    Refusal(
        RefusalClass.TIME_LIMIT,
        Retry.NO,
        r"(QOS|Assoc)\w*Wall|requested time limit is invalid|time limit exceeds",
        "ask for a shorter time, or another queue",
    ),
    Refusal(
        RefusalClass.TOO_LARGE,
        Retry.NO,
        r"\b(QOS|Assoc)(Max|Grp|Min)\w+",
        "ask for fewer nodes, or another queue",
    ),
    Refusal(
        RefusalClass.ACCOUNT,
        Retry.NO,
        r"invalid account|invalid qos|access/permission denied|user's group not permitted|invalid wckey",
        "check the account, the queue and your rights on this partition",
    ),
    Refusal(
        RefusalClass.SITE_FILTER,
        Retry.NO,
        r"cli_filter plugin terminated|job_submit plugin|rejected by .*submit",
        "the site refuses this request; its own words say what it wants",
    ),
    Refusal(
        RefusalClass.PARTITION,
        Retry.NO,
        r"invalid partition|partition.*(not available|is down|inactive)",
        "check the partition's name with sinfo",
    ),
    Refusal(
        RefusalClass.RESERVATION,
        Retry.NO,
        r"reservation (is |was )?(invalid|not )|invalid reservation",
        "drop the reservation",
    ),
    Refusal(
        RefusalClass.IMPOSSIBLE,
        Retry.NO,
        r"node configuration is not available|invalid generic resource|can not be satisfied"
        r"|node count specification invalid|more processors requested|invalid feature|invalid node name",
        "the partition has no such nodes; compare nodes, cores and GPUs with sinfo",
    ),
    Refusal(
        RefusalClass.DEPENDENCY,
        Retry.NO,
        r"dependency problem|invalid dependency",
        "the job that it should wait for is gone",
    ),
    Refusal(
        RefusalClass.SCRIPT,
        Retry.NO,
        r"unable to open file|invalid option|unrecognized option|invalid argument|script.*(empty|DOS)",
        "the rendered script or its options are wrong",
    ),
    Refusal(
        RefusalClass.BUSY,
        Retry.BACK_OFF,
        r"socket timed out|unable to contact slurm controller|temporarily unable|connection (refused|reset)"
        r"|zero bytes were transmitted|communication connection failure|did not answer within|try again",
        "the controller is busy or away: try again in a while",
    ),
    Refusal(
        RefusalClass.POLICY,
        Retry.NO,
        r"violates accounting/qos policy",
        "a limit of the account or queue; look at `sacctmgr show qos` and your own jobs",
    ),
)
_UNKNOWN = Refusal(RefusalClass.UNKNOWN, Retry.NO, "", "Slurm's own words are all that is known")


def read_refusal(text: str) -> Refusal:
    """The refusal that a Slurm command's stderr stands for; RefusalClass.UNKNOWN where the table has no entry."""
    for refusal in REFUSALS:
        if re.search(refusal.pattern, text, re.IGNORECASE):
            return refusal
    return _UNKNOWN


def one_line(text: str) -> str:
    """What a command said, on one line: its errors where it marks them, else all."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.partition("error: ")[2] for line in lines if "error: " in line]
    return "; ".join(errors or lines) or "no reason given"
