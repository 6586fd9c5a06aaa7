"""A real Slurm on one machine: to test against, to rehearse on, to break nodes of."""

from __future__ import annotations

from pretrainctl.sandbox import packages
from pretrainctl.sandbox.layout import ROOT_VARIABLE, Shape, default_root
from pretrainctl.sandbox.machine import NodeStatus, Sandbox, SandboxStatus

__all__ = ["ROOT_VARIABLE", "NodeStatus", "Sandbox", "SandboxStatus", "Shape", "default_root", "packages"]
