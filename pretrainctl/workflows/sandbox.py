"""The sandbox's verbs: up, down, status, env, and nodes that die and come back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pretrainctl.errors import MissingError
from pretrainctl.sandbox import Sandbox, SandboxStatus, Shape, packages

__all__ = ["Say", "down", "env", "kill_node", "revive_node", "status", "up"]

Say = Callable[[str], None]


def up(
    root: Path | None,
    *,
    nodes: int | None = None,
    gpus: int | None = None,
    say: Say,
    confirm: Callable[[str], bool],
) -> SandboxStatus:
    """Start what does not run of the sandbox in `root`; packages that are missing are installed first.

    `nodes` and `gpus` default to the sandbox's last shape. `confirm` is asked before packages are installed.
    """
    absent = packages.missing()
    if absent:
        say(f"these Debian packages are missing: {' '.join(absent)}")
        if packages.can_install() and not confirm("Install them now?"):
            raise MissingError("the packages were not installed", hint=packages.install_hint(absent))
        packages.install(absent, say=say)
    sandbox = Sandbox(root, say=say)
    return sandbox.up(_shape(sandbox.shape, nodes, gpus))


def _shape(last: Shape | None, nodes: int | None, gpus: int | None) -> Shape | None:
    if nodes is None and gpus is None:
        return None
    shape = last or Shape()
    return replace(shape, nodes=shape.nodes if nodes is None else nodes, gpus=shape.gpus if gpus is None else gpus)


def down(root: Path | None, *, say: Say) -> int:
    """End every process of the sandbox; how many there were."""
    return Sandbox(root, say=say).down()


def status(root: Path | None) -> SandboxStatus:
    """What runs of the sandbox."""
    return Sandbox(root).status()


def env(root: Path | None) -> dict[str, str]:
    """The variables by which plain Slurm commands find the sandbox; MissingError when it is not up."""
    sandbox = Sandbox(root)
    if not sandbox.status().up:
        raise MissingError(f"the sandbox in {sandbox.root} is not up", hint="pretrainctl sandbox up")
    return sandbox.env()


def kill_node(root: Path | None, name: str, *, silent: bool = False) -> int:
    """Let a node die with all its processes, or fall silent; how many processes."""
    return Sandbox(root).kill_node(name, silent=silent)


def revive_node(root: Path | None, name: str) -> None:
    """Start a node again and wait until it takes jobs."""
    Sandbox(root).revive_node(name)
