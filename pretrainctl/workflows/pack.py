"""Pack: pretrainctl and all that it needs as wheels with an install script, for a cluster without internet."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import io
import os
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pretrainctl
from pretrainctl import catalog, process, rendering
from pretrainctl.errors import CommandError, InputError, MissingError
from pretrainctl.process import Runner
from pretrainctl.records.pack import Pack, Wheel
from pretrainctl.schema import ClusterProfile

__all__ = ["Packed", "own_wheel", "pack"]

Say = Callable[[str], None]

_USUAL_PYTHON = "3.11"
"""Where nothing says which Python a cluster has."""
_OLDEST_PYTHON = 10
"""Minor version: `requires-python` of pretrainctl."""
_NEWEST_GLIBC = 28
"""Wheels that need a newer glibc than 2.28 are not taken: RHEL 8 has it, the oldest system of the shipped profiles."""
_PIP_SECONDS = 3600.0
_RETRIES = 2
_NOT_REACHED = re.compile(r"Retry\(total=0,.*connection broken by|Could not fetch URL")
_NO_WHEEL = (
    r"No matching distribution found for (\S+)",
    r"no matching distributions available for your environment:\s+(\S+)",
    r"The conflict is caused by:\s+\S+ \S+ depends on (\S+)",  # pip 23.2 does not say that it is a missing wheel
)
_NOT_IN_A_WHEEL = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


@dataclass(frozen=True)
class Packed:
    """A pack that was written: the folder or archive, and what is in it."""

    path: Path
    pack: Pack


def pack(cluster: str, output: Path | None, *, python: str | None, say: Say, run: Runner = process.run) -> Packed:
    """Write a pack for the Python version `python` (`3.11`) on a cluster's architecture.

    None means that of the profile's modules, else 3.11; which one it is, and why, is said.
    `output` that ends in `.tar.gz` is an archive with one folder in it, all else a folder; None means an archive
    in the current folder. It must not exist, and appears whole or not at all. The user's own files of the profile go
    with it, side by side. pip judges the conditions of
    requirements (`; python_version < ...`) by the Python that runs it, not by `python`: no core dependency has one
    that differs on Linux. InputError, MissingError or CommandError say what is in the way.
    """
    profile = catalog.load_profile(cluster)
    arch = profile.node.arch
    if arch == "unknown":
        raise InputError(
            f"the architecture of {profile.name} is unknown",
            hint=f"say node.arch: x86_64 or aarch64 in a profile of your own that `extends: {profile.name}`",
        )
    python, why = _choose_python(python, profile)
    profiles = {file.name: file for file in reversed(catalog.own_files("cluster_profiles", cluster))}
    name = f"pretrainctl-{pretrainctl.__version__}-{profile.name}-{arch}-py{python}"
    path = (output or Path(f"{name}.tar.gz")).absolute()
    if os.path.lexists(path):
        raise InputError(f"{path} exists already", hint="name another --output, or remove it; nothing was written")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}", hint="make it, or name another --output")
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent, ignore_cleanup_errors=True) as temporary:
        made = Path(temporary) / name
        wheels = made / "wheels"
        wheels.mkdir(parents=True)
        say(f"for Python {python}: {why}")
        own = own_wheel(Path(temporary), say=say, run=run)
        say(f"fetching what it needs for Python {python} on {arch}")
        _fetch(own, wheels, python, arch, run)
        record = Pack(
            version=pretrainctl.__version__,
            cluster=profile.name,
            arch=arch,
            python=python,
            wheels=tuple(_describe(file) for file in sorted(wheels.iterdir())),
        )
        for file, text in rendering.render_pack(record, catalog.template_dir()).items():
            (made / file).write_text(text, encoding="utf-8")
        (made / "install.sh").chmod(0o755)
        if profiles:
            (made / "cluster_profiles").mkdir()
        for file, source in profiles.items():
            say(f"your own profile {source} goes with it")
            shutil.copyfile(source, made / "cluster_profiles" / file)
        say(f"writing {path}")
        if path.name.endswith(".tar.gz"):
            made = _archive(made, Path(temporary) / path.name)
        made.rename(path)
    return Packed(path, record)


def own_wheel(folder: Path, *, say: Say, run: Runner = process.run) -> Path:
    """The wheel of this very pretrainctl: built from the checkout it runs in, else made of its installed files."""
    checkout = Path(pretrainctl.__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").is_file():
        say(f"building the wheel of pretrainctl {pretrainctl.__version__} from {checkout}")
        _pip(run, folder, "wheel", "--no-deps", "--wheel-dir", str(folder), str(checkout))
        (wheel,) = folder.glob("pretrainctl-*.whl")
        return wheel
    say(f"making the wheel of pretrainctl {pretrainctl.__version__} of its installed files")
    return _wheel_of_installed(folder)


def _choose_python(asked: str | None, profile: ClusterProfile) -> tuple[str, str]:
    """The version to pack for, and why it is that one."""
    module = profile.python_module
    if asked is not None:
        _check_python(asked)
        other = f"; the module {module[0]} of {profile.name} is another" if module and module[1] != asked else ""
        return asked, f"--python says so{other}"
    if module is not None:
        _check_python(module[1])
        return module[1], f"the module {module[0]} of {profile.name}"
    return _USUAL_PYTHON, f"assumed, since no module of {profile.name} names one; --python says another"


def _check_python(python: str) -> None:
    match = re.fullmatch(r"3\.(\d{1,2})", python)
    if match is None:
        raise InputError(f"{python!r} is not a Python version", hint="write it as 3.11")
    if int(match[1]) < _OLDEST_PYTHON:
        raise InputError(
            f"pretrainctl needs Python 3.{_OLDEST_PYTHON} or newer, not {python}",
            hint="the cluster's `module avail python` shows which versions it has",
        )


def _fetch(own: Path, wheels: Path, python: str, arch: str, run: Runner) -> None:
    """The own wheel and all that it needs, as wheels for one Python and architecture."""
    platforms = [f"manylinux_2_{minor}_{arch}" for minor in range(_NEWEST_GLIBC, 4, -1)]
    platforms += [f"manylinux{name}_{arch}" for name in ("2014", "2010", "1")]
    try:
        _pip(
            run,
            own.parent,
            *("download", "--only-binary", ":all:", "--dest", str(wheels)),
            *("--implementation", "cp", "--python-version", python),
            *(word for platform in platforms for word in ("--platform", platform)),
            str(own),
        )
    except CommandError as error:
        said = error.stdout + error.stderr
        missing = next((found[1] for pattern in _NO_WHEEL if (found := re.search(pattern, said))), None)
        if missing is None or _NOT_REACHED.search(error.stderr):
            raise
        raise MissingError(
            f"the index has no wheel of {missing} for Python {python} on {arch} with glibc 2.{_NEWEST_GLIBC}",
            hint="choose another --python that the cluster has",
        ) from error


def _pip(run: Runner, scratch: Path, command: str, *arguments: str) -> None:
    argv = (sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "--retries", str(_RETRIES))
    try:
        # A pip that is killed leaves its temporary files: here they go away with ours.
        run((*argv, command, *arguments), timeout=_PIP_SECONDS, env={**os.environ, "TMPDIR": str(scratch)})
    except CommandError as error:
        if error.status is None:
            raise
        if re.search(r"No module named '?pip\b", error.stderr):
            raise MissingError(
                f"{sys.executable} has no pip, which fetches the wheels", hint=f"{sys.executable} -m ensurepip"
            ) from error
        unreachable = _NOT_REACHED.search(error.stderr) is not None
        said = re.search(r"ERROR: (.*)", error.stderr)
        raise CommandError(
            "the package index cannot be reached" if unreachable else f"pip {command}: {said[1] if said else error}",
            hint="pack where there is internet; `pip config list` shows which index is asked" if unreachable else "",
            status=error.status,
            stdout=error.stdout,
            stderr=error.stderr,
        ) from error


def _describe(file: Path) -> Wheel:
    name, version = file.name.split("-")[:2]
    content = file.read_bytes()
    return Wheel(name.replace("_", "-").lower(), version, file.name, hashlib.sha256(content).hexdigest(), len(content))


def _archive(folder: Path, path: Path) -> Path:
    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(path, "w:gz", compresslevel=1) as archive:  # wheels are compressed already
        archive.add(folder, folder.name, filter=anonymous)
    return path


def _wheel_of_installed(folder: Path) -> Path:
    """The installed files as a wheel again, which they were: RECORD lists them, and it is pure Python."""
    distribution = importlib.metadata.distribution("pretrainctl")
    files = {
        str(file): Path(str(distribution.locate_file(file)))
        for file in distribution.files or ()
        if file.parts[0] != ".." and file.name not in _NOT_IN_A_WHEEL and file.suffix != ".pyc"
    }
    absent = [name for name, path in files.items() if not path.is_file()]
    if not files or absent:
        raise MissingError(
            f"the installed pretrainctl is not whole: {absent[0] if absent else 'no RECORD of its files'}",
            hint="install pretrainctl again",
        )
    wheel = folder / f"pretrainctl-{distribution.version}-py3-none-any.whl"
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            content = path.read_bytes()
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            writer.writerow((name, f"sha256={digest}", len(content)))
        record = f"pretrainctl-{distribution.version}.dist-info/RECORD"
        writer.writerow((record, "", ""))
        archive.writestr(zipfile.ZipInfo(record), rows.getvalue(), zipfile.ZIP_DEFLATED)
    return wheel
