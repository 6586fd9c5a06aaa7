"""What a site allows: queues and their limits, accounts, network, storage, chaining."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from pretrainctl.schema.base import (
    ChainJobs,
    Date,
    Known,
    Limit,
    Part,
    Positive,
    Size,
    SlurmWord,
    TimeLimit,
    VariableName,
    Word,
    at_most,
)

__all__ = [
    "Account",
    "Accounting",
    "Attributed",
    "Hosts",
    "Internet",
    "Provenance",
    "Queue",
    "SiteChain",
    "Sourced",
    "Tier",
]


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from error
    return value


Pattern = Annotated[Word, AfterValidator(_pattern)]


class Provenance(Part):
    """Where a value comes from."""

    source: Word
    """Document, measurement or person."""
    as_of: Date
    """Date of the source, or of its reading where it bears none: YYYY-MM or YYYY-MM-DD."""
    confidence: Literal["official", "measured", "script", "guess"]
    """How far it can be trusted; `script` = somebody runs it so."""

    def __str__(self) -> str:
        return f"{self.source}, {self.as_of}"


class Attributed(Part):  # noqa: PLW1641 - pydantic makes the hash, of the fields
    """What knows of its values where they stand, beside what its provenance tells of."""

    _elsewhere: dict[str, str] = PrivateAttr(default_factory=dict)
    # No part of the values: a profile that was written down and read again has none, and is the same.

    def attribute(self, places: Mapping[str, str]) -> None:
        """Say which keys somebody else wrote than the provenance tells of, and where (`FILE:LINE`, `--set KEY`)."""
        self._elsewhere.update(places)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__dict__ == other.__dict__

    def origin_of(self, told: Provenance, *keys: str) -> str:
        """Where the values of these keys come from, of all that are set where none is named; `told` by provenance."""
        chosen = keys or [key for key in type(self).model_fields if key in self.model_fields_set - {"provenance"}]
        places = {key: self._elsewhere[key] for key in chosen if key in self._elsewhere}
        if not places:
            return str(told)
        if len(places) == len(chosen):
            return ", ".join(dict.fromkeys(places.values())) if keys else next(iter(places.values()))
        return "; ".join((str(told), *(f"{key}: {place}" for key, place in places.items())))


class Sourced(Attributed):
    """A section whose values were looked up somewhere."""

    provenance: Provenance | None = None
    """Where these values come from, where not from the profile's own source."""


class Hosts(Part):
    """How to tell from a host name that one is on this cluster."""

    login: tuple[Pattern, ...] = ()
    """Regular expressions of full login host names."""
    compute: tuple[Pattern, ...] = ()
    """Regular expressions of full compute host names."""


class Queue(Sourced):
    """One row of partition and QoS with its limits."""

    name: Word
    """What recipes call it."""
    partition: SlurmWord | None = None
    """`--partition`; null = not given."""
    qos: SlurmWord | None = None
    """`--qos`; null = not given."""
    family: Word | None = None
    """Kind of allocation that may use it; null = every account may."""
    purpose: Literal["production", "debug", "long", "preemptible", "urgent"]
    """A recipe that names no queue gets the first `production` row that fits."""
    min_nodes: Positive = 1
    """Fewest nodes of a job."""
    max_nodes: Limit
    """Most nodes of a job."""
    max_walltime: TimeLimit
    """Longest time limit of a job."""
    max_jobs: Limit = "unknown"
    """Most jobs that one user may have in it, queued ones included."""

    @model_validator(mode="after")
    def _holds_some(self) -> Queue:
        if isinstance(self.max_nodes, int) and self.min_nodes > self.max_nodes:
            raise ValueError(
                f"queue {self.name!r} takes no job: min_nodes {self.min_nodes} is more than max_nodes {self.max_nodes}"
            )
        return self


class Account(Sourced):
    """The account that is charged."""

    required: bool
    """Whether the site refuses jobs without one."""
    name: SlurmWord | None = None
    """`--account`; never in a shipped profile, but in your own that extends it."""


class Accounting(Sourced):
    """How the site counts what a job costs."""

    unit: Word
    """What it counts, such as `core-hours`."""
    per_node_hour: Annotated[float, Field(gt=0), AfterValidator(at_most(10**9))] | Literal["unknown"]
    """Units of a whole node for an hour."""


class Internet(Sourced):
    """Which nodes reach hosts outside."""

    login: Known = "unknown"
    """Whether login nodes do."""
    compute: Known = "unknown"
    """Whether compute nodes do; where not, trackers and model hubs are told to stay offline."""


class Tier(Sourced):
    """One space of the file systems."""

    name: Word
    """What people call it."""
    path: Annotated[Word, Field(pattern=r"^/")] | None = None
    """Where it lies, each folder of a user's or group's own as `*`; null = only the variable tells."""
    variable: VariableName | None = None
    """The variable that names it there."""
    lasts: Literal["permanent", "purged", "job", "unknown"]
    """How long files stay: `purged` = until they are old, `job` = until the job ends."""
    purge_days: Limit = "unknown"
    """Age in days at which files are removed, where they are."""
    quota: Word = "unknown"
    """How much fits, in the site's words."""
    size: Size = "unknown"
    """The same in bytes, where it is a number, which checkpoints are compared with; unknown = not compared."""

    @model_validator(mode="after")
    def _found(self) -> Tier:
        if self.path is None and self.variable is None:
            raise ValueError(f"storage {self.name!r} has neither a path nor a variable")
        if self.lasts != "purged" and isinstance(self.purge_days, int):
            raise ValueError(f"storage {self.name!r} has purge_days, but lasts: {self.lasts}")
        return self


class SiteChain(Sourced):
    """How the next job of a run comes into the queue."""

    strategy: Literal["inside", "prequeued"]
    """`inside` = sbatch works on compute nodes; `prequeued` = only on login nodes."""
    jobs: ChainJobs = 3
    """Jobs of a run at once, the running one included: `prequeued` queues all at launch, `inside` keeps as many, two at
    least. Of three one may be lost before its first line runs, to a prolog that fails, and another goes on. More than
    20 would only keep attempts waiting: each queues what is missing before it trains."""
    sbatch_inside: Known = "unknown"
    """Whether sbatch works on compute nodes; unknown = the launch queues several, and each job tries."""

    @model_validator(mode="after")
    def _possible(self) -> SiteChain:
        if self.strategy == "inside" and self.sbatch_inside == "no":
            raise ValueError("strategy `inside` needs sbatch on compute nodes, and sbatch_inside says no")
        return self
