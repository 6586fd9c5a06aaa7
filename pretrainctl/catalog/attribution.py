"""Which values of a profile stand elsewhere than what its provenance tells of: in a file of one's own, or `--set`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from pretrainctl.catalog.files import short_path
from pretrainctl.catalog.reading import Document, Key, Origin
from pretrainctl.schema import ClusterProfile
from pretrainctl.schema.site import Attributed, Sourced

__all__ = ["attribute"]


def attribute(profile: ClusterProfile, document: Document) -> None:
    """Tell each section which of its values are laid over its provenance, by a file that is nearer, or by a setting.

    `document` is what the profile was read from. Who writes a new provenance speaks for what lies under it too.
    """

    def layer(origin: Origin) -> int:
        return document.files.index(origin.source) if origin.source in document.files else -1

    for place, section in _sections(profile, ()):
        own = isinstance(section, Sourced) and section.provenance is not None
        told = layer(document.origin((*(place if own else ()), "provenance", "source")))
        keys = section.model_fields_set - {"provenance"}
        origins = {key: document.origin((*place, key)) for key in keys}
        section.attribute({key: _shown(origin) for key, origin in origins.items() if layer(origin) < told})


def _sections(value: object, place: Key) -> Iterator[tuple[Key, Attributed]]:
    if isinstance(value, BaseModel):
        if isinstance(value, Attributed):
            yield place, value
        for name in value.model_fields_set:
            yield from _sections(getattr(value, name), (*place, name))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _sections(item, (*place, index))


def _shown(origin: Origin) -> str:
    """A file as people name it with its line, or a setting without its value."""
    if origin.line is None:
        return origin.source.partition("=")[0]
    return f"{short_path(Path(origin.source))}:{origin.line}"
