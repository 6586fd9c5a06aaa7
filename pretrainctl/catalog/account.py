"""The account that a variable of the shell gives, over the one that a profile names."""

from __future__ import annotations

import os
from pathlib import Path

from pretrainctl.catalog.files import find, short_path
from pretrainctl.catalog.reading import Document, Origin, read_document

__all__ = ["ACCOUNT_VARIABLE", "give_account", "replaced_account"]

ACCOUNT_VARIABLE = "PRETRAINCTL_ACCOUNT"
"""Environment variable with the account that jobs are charged to."""


def give_account(document: Document) -> None:
    """Put the variable's account into a profile whose site wants one."""
    account = document.values.get("account")
    given = os.environ.get(ACCOUNT_VARIABLE)
    if given and isinstance(account, dict) and account.get("required") is True:
        account["name"] = given
        document.origins["account", "name"] = Origin(f"${ACCOUNT_VARIABLE}")


def replaced_account(name: str) -> str:
    """The other account that a profile names itself, and where, where the variable replaces it; else empty."""
    document = read_document("cluster_profiles", find("cluster_profiles", name))
    before = document.values.get("account")
    own, origin = (before or {}).get("name"), document.origin(("account", "name"))
    give_account(document)
    after = (document.values.get("account") or {}).get("name")
    return "" if own is None or own == after else f"{own} ({short_path(Path(origin.source))}:{origin.line})"
