"""What is carried to a cluster without internet: wheels, and who they are for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pack", "Wheel"]


@dataclass(frozen=True)
class Wheel:
    """One wheel; `size` in bytes, `sha256` in hexadecimal."""

    name: str
    version: str
    file: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Pack:
    """`manifest.json` of a pack: pretrainctl `version` with all that it needs, for one Python and architecture."""

    version: str
    cluster: str
    arch: str
    python: str
    wheels: tuple[Wheel, ...]
