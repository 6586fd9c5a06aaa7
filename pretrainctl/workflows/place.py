"""Place: which cluster a command means that names none."""

from __future__ import annotations

import os
from pathlib import Path

from pretrainctl import catalog
from pretrainctl.errors import InputError
from pretrainctl.sandbox import Sandbox

__all__ = ["find_cluster", "find_told", "this_cluster"]


def find_cluster() -> str | None:
    """The profile that knows this host, else `sandbox` in a shell that speaks to the sandbox; None where neither is."""
    return catalog.here() or ("sandbox" if _speaks_to_sandbox() else None)


def find_told() -> tuple[str | None, str]:
    """The same, and what is to be said of it: that it was taken and not another one which knows this host too."""
    found = catalog.find_here()
    if found is None:
        return find_cluster(), ""
    if not found.instead_of:
        return found.name, ""
    others = ", ".join(found.instead_of)
    verb = "knows" if len(found.instead_of) == 1 else "know"
    return found.name, f"cluster {found.name} ({found.file}), and not {others}, which {verb} this host too"


def this_cluster() -> str:
    """The same; InputError where no profile is meant."""
    found = find_cluster()
    if found is None:
        raise InputError(
            "no cluster profile knows this host",
            hint=f"say --cluster, one of {', '.join(catalog.names('cluster_profiles'))}, or a path",
        )
    return found


def _speaks_to_sandbox() -> bool:
    """Whether plain Slurm commands of this shell go to the sandbox of ours, as after `sandbox env`."""
    conf = os.environ.get("SLURM_CONF", "")
    return conf != "" and Path(conf) == Sandbox().layout.slurm_conf
