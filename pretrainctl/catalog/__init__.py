"""Find, read, extend and override recipes and profiles; know which cluster this is."""

from pretrainctl.catalog.account import ACCOUNT_VARIABLE, replaced_account
from pretrainctl.catalog.files import expand_home, find, names, path_from_here, short_path, template_dir
from pretrainctl.catalog.host import Here, find_here, here
from pretrainctl.catalog.loading import (
    describe,
    lineage,
    load_profile,
    load_recipe,
    own_files,
    profile_document,
    recipe_document,
)

__all__ = [
    "ACCOUNT_VARIABLE",
    "Here",
    "describe",
    "expand_home",
    "find",
    "find_here",
    "here",
    "lineage",
    "load_profile",
    "load_recipe",
    "names",
    "own_files",
    "path_from_here",
    "profile_document",
    "recipe_document",
    "replaced_account",
    "short_path",
    "template_dir",
]
