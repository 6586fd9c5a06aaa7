"""Reach: which Slurm a profile or a run means, and whether that is the one that answers here.

Folders are shared between clusters, and job ids count from 1 on each: asked of the wrong Slurm, a run that trains
has no job, and would be submitted a second time.
"""

from __future__ import annotations

import os
from pathlib import Path

from pretrainctl.errors import MissingError, RunError
from pretrainctl.runs.folder import RunFolder
from pretrainctl.sandbox import Sandbox
from pretrainctl.schema import ClusterProfile
from pretrainctl.slurm.client import Slurm

__all__ = ["find_slurm_conf", "find_slurm_name", "reach", "reach_own", "slurm_at"]


def find_slurm_conf(profile: ClusterProfile) -> str:
    """SLURM_CONF for a launch on this profile, empty for the host's own; MissingError where the sandbox is not up."""
    if profile.slurm_conf != "sandbox":
        return str(profile.slurm_conf or "")
    sandbox = Sandbox()
    if not sandbox.status().up:
        raise _not_up(sandbox)
    return sandbox.env()["SLURM_CONF"]


def find_slurm_name(profile: ClusterProfile) -> str:
    """Slurm's own name of the cluster of a profile. A sandbox has it in its settings, up or not; another Slurm must
    answer, else SlurmError. MissingError where no sandbox was made."""
    known = Sandbox().cluster if profile.slurm_conf == "sandbox" else ""
    return known or slurm_at(find_slurm_conf(profile)).cluster_name()


def _not_up(sandbox: Sandbox) -> MissingError:
    return MissingError(
        f"the sandbox in {sandbox.root} is not up",
        hint="start it with `pretrainctl sandbox up`; PRETRAINCTL_SANDBOX names another one",
    )


def slurm_at(slurm_conf: str) -> Slurm:
    """The Slurm of this configuration, or of the host where it is empty."""
    return Slurm(env={**os.environ, "SLURM_CONF": slurm_conf}) if slurm_conf else Slurm()


def reach(run: RunFolder) -> Slurm:
    """The Slurm that a run was submitted to, to be asked about it; no command is run.

    MissingError where its configuration is gone, or it is a sandbox that was taken down: nobody would answer, and
    Slurm's commands wait long before they say so.
    """
    slurm_conf = run.record.slurm_conf
    if slurm_conf and not Path(slurm_conf).exists():
        raise MissingError(
            f"the Slurm of the run {run.record.name!r} is gone: there is no {slurm_conf}",
            hint="start that sandbox again, or launch the run anew",
        )
    if slurm_conf:
        sandbox = Sandbox(Path(slurm_conf).parent.parent)
        is_its_own = sandbox.shape is not None and str(sandbox.layout.slurm_conf) == slurm_conf
        if is_its_own and not sandbox.runs:
            raise _not_up(sandbox)
    return slurm_at(slurm_conf)


def reach_own(run: RunFolder) -> Slurm:
    """The same, to act on a run; RunError where it is another user's, its folder a copy or moved, or Slurm here is
    another cluster's.

    SlurmError where the controller does not answer.
    """
    run.refuse_foreign()
    slurm = reach(run)
    wanted = run.record.slurm_cluster
    if wanted:
        found = slurm.cluster_name()
        if found != wanted:
            raise RunError(
                f"the run {run.record.name!r} was submitted to the Slurm cluster {wanted}; this host speaks to {found}",
                hint=f"log in on {run.record.cluster}",
            )
    return slurm
