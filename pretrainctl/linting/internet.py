"""What needs a network that compute nodes do not have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Hit, Rule, source
from pretrainctl.linting.programs import launcher, program, python_script
from pretrainctl.linting.variables import settings

__all__ = ["RULES"]

_INSIDE = r"localhost\b|127\.|10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.|[\w.-]+\.(internal|local)\b"
"""Hosts that a cluster may have itself."""
_REMOTE = re.compile(rf"(https?|ftp|ssh|git)://(?!{_INSIDE})[\w-]+\.[\w.-]+|[\w.-]+@(?!{_INSIDE})[\w.-]+:")
_IMAGE = re.compile(r"(docker|oras|library|shub)://")
_PROXY = re.compile(r"\b(https?_proxy|all_proxy)=|\bproxychains", re.IGNORECASE)
_OFFLINE_MODE = re.compile(r"wandb[-_.]?mode\b['\"]?[ =:]+['\"]?(offline|disabled|dryrun)", re.IGNORECASE)
_OFFLINE_OTHERWISE = re.compile(r"\bWANDB_DISABLED=['\"]?(true|1)|\bwandb (offline|disabled)\b", re.IGNORECASE)
_AHEAD = "do it before the job, on a node that has internet, and keep the result on a file system that the job sees"
_AFTER = "do it after the job, on a node that has internet"
_SENDS = re.compile(r" (push|upload|sync)`")


def _no_internet(batch: Batch) -> Iterator[Hit]:
    """Compute nodes without internet: what downloads hangs until it times out. Source: the profile's internet.compute.

    A script that names a proxy is not judged.
    """
    profile = batch.profile
    text = "\n".join(statement.text for statement in batch.script.statements)
    if profile is None or profile.internet.compute != "no" or _PROXY.search(text):
        return
    where = f"compute nodes of {profile.name} have no internet ({source(profile, profile.internet)})"
    for command, words in batch.programs:
        what = _reaching_out(batch, words)
        if what:
            yield command.line, f"{what}: {where}", _AFTER if _SENDS.search(what) else _AHEAD
    line = _wandb_online(batch, text)
    if line is not None:
        yield line, f"W&B is not told to be offline: {where}", "export WANDB_MODE=offline, and `wandb sync` later"


def _reaching_out(batch: Batch, words: Sequence[str]) -> str | None:
    """What a command downloads, as people say it; None where it needs no network, as far as can be seen."""
    name, rest = words[0].rsplit("/", 1)[-1], [word for word in words[1:] if word]
    if re.fullmatch(r"python[0-9.]*", name) and rest[:1] == ["-m"] and len(rest) > 1:
        name, rest = rest[1], rest[2:]
    if name == "uv" and rest[:1] == ["pip"]:
        name, rest = rest[0], rest[1:]
    verb = next((word for word in rest if not word.startswith("-")), "")
    if re.fullmatch(r"pip[0-9.]*|uv|conda|mamba|micromamba|poetry", name):
        local = {"--no-index", "--no-deps", "--offline", "--help"} & set(rest) or any(batch.assigned("PIP_NO_INDEX"))
        local = local or _is_here(rest[rest.index(verb) + 1 :] if verb in rest else ())
        fetches = verb in ("install", "download", "sync", "create", "update", "add")
        return f"`{name} {verb}`" if fetches and not local else None
    if name == "git":
        return _git(rest)
    if name in ("wget", "curl", "aria2c"):
        return f"`{name}`" if any(_REMOTE.search(word) for word in rest) else None
    if name in ("huggingface-cli", "hf"):
        return f"`{name} {verb}`" if verb in ("download", "upload", "login", "auth", "repo") else None
    if name == "wandb":
        return f"`wandb {verb}`" if verb in ("login", "sync", "artifact", "pull") else None
    if name in ("singularity", "apptainer", "docker", "podman", "enroot"):
        return f"`{name} {verb}` of an image elsewhere" if verb == "pull" or any(map(_IMAGE.match, rest)) else None
    return None


def _git(words: Sequence[str]) -> str | None:
    """What git fetches or sends: to the remote of a clone, which is mostly elsewhere, unless a path is named."""
    while words and words[0].startswith("-"):
        words = words[2 if words[0] in ("-C", "-c", "--git-dir", "--work-tree") else 1 :]
    verb, rest = (words[0], words[1:]) if words else ("", ())
    if verb in ("lfs", "submodule", "remote") and rest:
        far = rest[0] in {"lfs": ("pull", "fetch", "push"), "submodule": ("update",), "remote": ("update",)}[verb]
        verb = f"{verb} {rest[0]}"
    else:
        far = verb in ("pull", "fetch", "push", "ls-remote") and "--help" not in rest
    far = far and not any(word.startswith(("/", ".", "file:")) for word in rest)
    return f"`git {verb}`" if far or (verb == "clone" and any(map(_REMOTE.match, rest))) else None


def _is_here(words: Sequence[str]) -> bool:
    """Whether pip is given files alone: wheels, or folders that are built with what is installed."""
    named = [word for word in words if not word.startswith("-")]
    built = "--no-build-isolation" in words
    return bool(named) and all(word.endswith(".whl") or (built and word.startswith((".", "/"))) for word in named)


def _wandb_online(batch: Batch, text: str) -> int | None:
    """The line that shows that W&B is used, or is told to be online; None where it is told to be offline."""
    for each in settings(batch, "WANDB_MODE"):
        if each.sure and each.value.lower() == "online":
            return each.line
    # What another file sets is not seen, and the mode may be set there.
    if _OFFLINE_MODE.search(text) or _OFFLINE_OTHERWISE.search(text) or any(batch.assigned("WANDB_MODE")):
        return None
    if any(command.name in ("source", ".") for command in batch.script.commands):
        return None
    named = [each.line for each in batch.assigned("WANDB_PROJECT", "WANDB_API_KEY", "WANDB_ENTITY", "WANDB_NAME")]
    named += [command.line for command, words in batch.programs if _may_train(words) and _names_wandb(words)]
    return min(named, default=None)


def _names_wandb(words: Sequence[str]) -> bool:
    """Whether an option of a program asks for W&B; a folder of that name does not."""
    option = ""
    for word in words[1:]:
        option = word if word.startswith("-") else option
        if re.match(r"--?(use[-_])?wandb|--(report[-_]to|\w*logger|\w*tracker)=wandb$", word):
            return True
        if word == "wandb" and re.search(r"report|logger|track", option):
            return True
    return False


def _may_train(words: Sequence[str]) -> bool:
    """Whether a command may be a training: Python, a launcher, a script, a program of the user's own."""
    started = program(words)
    if not started or launcher(words) or python_script(words):
        return bool(started)
    module = started[2] if started[1:2] == ("-m",) and len(started) > 2 else ""
    if re.fullmatch(r"(.*/)?python[0-9.]*", started[0]):
        return module not in ("", "pip", "wandb", "venv")
    shell = started[0].rsplit("/", 1)[-1] in ("bash", "sh", "zsh")
    return shell or re.match(r"\$|\.{1,2}/|.*\.(sh|py)$", started[0]) is not None


RULES = (Rule("no-internet", "error", _no_internet),)
"""What needs a network."""
