"""The Debian packages that a sandbox is made of: which are missing, and how they are installed quietly."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from pretrainctl import process
from pretrainctl.errors import CommandError, MissingError
from pretrainctl.sandbox import processes
from pretrainctl.sandbox.daemons import DAEMON_PATH

__all__ = ["PACKAGES", "can_install", "install", "install_hint", "missing"]

PACKAGES = ("slurm-wlm", "slurmdbd", "munge", "mariadb-server-core")
"""Slurm and its database. No compiler: the reference trainer does without DeepSpeed's compiled extension."""

_PROGRAMS = {
    "slurm-wlm": ("slurmctld", "slurmd", "sbatch", "srun", "sacctmgr"),
    "slurmdbd": ("slurmdbd",),
    "munge": ("munged",),
    "mariadb-server-core": ("mariadbd",),
}
_POLICY = Path("/usr/sbin/policy-rc.d")
"""Debian's invoke-rc.d asks this program before it starts a service; status 101 means: do not."""


def missing() -> list[str]:
    """The packages whose programs are not on this machine, however they would have come here."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *DAEMON_PATH])
    return [
        package
        for package, programs in _PROGRAMS.items()
        if not all(shutil.which(program, path=path) for program in programs)
    ]


def install_hint(packages: list[str]) -> str:
    """The exact command that installs them, for a person to run."""
    return "as root: apt-get update && apt-get install -y --no-install-recommends " + " ".join(packages)


def can_install() -> bool:
    """Whether `install` can work here."""
    return os.getuid() == 0 and shutil.which("apt-get") is not None


def install(packages: list[str], *, say: Callable[[str], None]) -> None:
    """Install packages by apt-get without starting a service; MissingError where that cannot be done here."""
    hint = install_hint(packages)
    if not can_install():
        raise MissingError(f"these Debian packages are missing: {', '.join(packages)}", hint=hint)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    before = _services()
    with _no_services():
        say("apt-get update")
        process.run(["apt-get", "-q", "update"], timeout=600.0, env=env, check=False)
        say(f"apt-get install {' '.join(packages)}")
        argv = ["apt-get", "-q", "install", "-y", "--no-install-recommends", *packages]
        done = process.run(argv, timeout=1800.0, env=env, check=False)
    if done.status != 0:
        raise CommandError(
            f"apt-get failed with status {done.status}: {(done.stderr or done.stdout).strip()[-2000:]}",
            hint=hint,
            status=done.status,
        )
    absent = [package for package in missing() if package in packages]
    if absent:
        raise MissingError(f"installed, but still not usable: {', '.join(absent)}", hint=hint)
    started = _services() - before
    if started:
        raise CommandError(
            f"the installation left services running: {', '.join(sorted(started))}", hint="stop them and try again"
        )


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Let Debian start no service meanwhile; what stood there comes back, also what an interrupted run moved."""
    aside = _POLICY.with_name("policy-rc.d.before-pretrainctl")
    if _POLICY.exists() and not aside.exists():
        _POLICY.rename(aside)
    _POLICY.write_text("#!/bin/sh\n# pretrainctl installs packages and starts no service; gone in a minute\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()
        if aside.exists():
            aside.rename(_POLICY)


def _services() -> set[str]:
    """The daemons that run on this machine outside any sandbox, as `name pid`."""
    names = ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd")
    return {f"{one.name} {one.pid}" for one in processes.scan() if one.name in names and one.daemon is None}
