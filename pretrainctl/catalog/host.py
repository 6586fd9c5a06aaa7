"""Which profile knows this host; one of the user's own comes before the shipped one that it extends."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

from pretrainctl.catalog.files import find, names, search_path, short_path
from pretrainctl.catalog.loading import load_profile
from pretrainctl.catalog.reading import files_behind
from pretrainctl.errors import InputError

__all__ = ["Here", "find_here", "here"]


@dataclass(frozen=True)
class Here:
    """The profile that is meant on this host, its file as people name it, and others that know the host too."""

    name: str
    file: str
    instead_of: tuple[str, ...] = ()


def here(host: str | None = None) -> str | None:
    """The name of the profile whose login or compute host patterns match this host's full name; None where none does.
    InputError as of `find_here`."""
    found = find_here(host)
    return found.name if found else None


def find_here(host: str | None = None) -> Here | None:
    """The same, with what it came before.

    Of several, one that another one extends gives way, and so do shipped ones to one of the user's own. InputError
    where several are left: which is meant cannot be known.
    """
    full = host or socket.getfqdn()
    matching = [name for name in names("cluster_profiles") if _knows(name, full)]
    files = {name: find("cluster_profiles", name).resolve() for name in matching}
    extended = {path.resolve() for file in files.values() for path in files_behind("cluster_profiles", file)[1:]}
    left = [name for name in matching if files[name] not in extended]
    shipped = search_path("cluster_profiles")[-1].resolve()
    left = [name for name in left if files[name].parent != shipped] or left
    if len(left) > 1:
        shown = " and ".join(f"{name} ({short_path(find('cluster_profiles', name))})" for name in left)
        raise InputError(
            f"{len(left)} cluster profiles know this host, {full}: {shown}",
            hint=f"say {' or '.join(f'--cluster {name}' for name in left)}",
        )
    if not left:
        return None
    return Here(
        left[0], short_path(find("cluster_profiles", left[0])), tuple(one for one in matching if one != left[0])
    )


def _knows(name: str, host: str) -> bool:
    hosts = load_profile(name).hosts
    return any(re.fullmatch(pattern, host) for pattern in (*hosts.login, *hosts.compute))
