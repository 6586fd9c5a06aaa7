"""What pack asks of pip, writes and leaves behind, with a stand-in for pip; tests/house has the real one."""

from __future__ import annotations

import hashlib
import itertools
import json
import tarfile
from pathlib import Path

import pytest

from pretrainctl.errors import CommandError, InputError, MissingError
from pretrainctl.process import Completed
from pretrainctl.workflows.pack import pack

OWN = "pretrainctl-0.1.0-py3-none-any.whl"
OTHER = "Typing_Extensions-4.0-py3-none-any.whl"


class Pip:
    """Writes wheels where pip would; raises `error` at the command `fails`."""

    def __init__(self, fails="", error=None):
        self.fails, self.error = fails, error
        self.calls = []

    def __call__(self, argv, *, timeout, env=None, cwd=None, stdin=None, check=True):
        words = list(argv)
        self.calls.append(words)
        command = "wheel" if "wheel" in words else "download"
        option = {"wheel": "--wheel-dir", "download": "--dest"}[command]
        folder = Path(words[words.index(option) + 1])
        (folder / OWN).write_bytes(b"own")
        if command == self.fails:
            raise self.error
        if command == "download":
            (folder / OTHER).write_bytes(b"other")
        return Completed(tuple(argv), 0, "", "")


@pytest.fixture
def cluster(tmp_path):
    def profile(arch):
        path = tmp_path / "profiles" / f"{arch}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"extends: sandbox\nname: far\nnode: {{arch: {arch}}}\n", encoding="utf-8")
        return str(path)

    return profile


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    return tmp_path / "out"


def said(line):
    assert line


def test_a_folder_holds_wheels_script_requirements_and_manifest(cluster, folder):
    pip = Pip()
    made = pack(cluster("aarch64"), folder / "it", python="3.12", say=said, run=pip)
    assert made.path == folder / "it"
    assert sorted(path.name for path in made.path.iterdir()) == [
        "cluster_profiles",
        "install.sh",
        "manifest.json",
        "requirements.txt",
        "wheels",
    ]
    manifest = json.loads((made.path / "manifest.json").read_text())
    assert {key: manifest[key] for key in ("cluster", "arch", "python")} == {
        "cluster": "far",
        "arch": "aarch64",
        "python": "3.12",
    }
    digest = hashlib.sha256(b"other").hexdigest()
    assert manifest["wheels"][0] == {
        "name": "typing-extensions",
        "version": "4.0",
        "file": OTHER,
        "sha256": digest,
        "size": 5,
    }
    assert f"typing-extensions==4.0 --hash=sha256:{digest}\n" in (made.path / "requirements.txt").read_text()
    assert (made.path / "install.sh").stat().st_mode & 0o111
    assert list(folder.iterdir()) == [made.path]


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_pip_is_asked_for_wheels_of_the_clusters_architecture_only(cluster, folder, arch):
    pip = Pip()
    pack(cluster(arch), folder / "it", python="3.12", say=said, run=pip)
    asked = pip.calls[-1]
    platforms = [after for word, after in itertools.pairwise(asked) if word == "--platform"]
    assert all(platform.endswith(f"_{arch}") for platform in platforms)
    assert f"manylinux_2_28_{arch}" in platforms
    assert f"manylinux_2_29_{arch}" not in platforms
    assert asked[asked.index("--only-binary") + 1] == ":all:"
    assert asked[asked.index("--python-version") + 1] == "3.12"


def test_an_archive_has_one_folder_and_no_name_of_a_user(cluster, folder):
    made = pack(cluster("x86_64"), None, python="3.11", say=said, run=Pip())
    assert made.path == folder / "pretrainctl-0.1.0-far-x86_64-py3.11.tar.gz"
    with tarfile.open(made.path) as archive:
        members = archive.getmembers()
    assert {member.name.split("/")[0] for member in members} == {"pretrainctl-0.1.0-far-x86_64-py3.11"}
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}
    assert [path.name for path in folder.iterdir()] == [made.path.name]


@pytest.mark.parametrize(
    ("modules", "asked", "python", "why"),
    [
        ("[Stages/2026, GCC/14.3.0, Python/3.13.5]", None, "3.13", "the module Python/3.13.5 of far"),
        ("[python/3.11.5-gcc]", None, "3.11", "the module python/3.11.5-gcc of far"),
        ("[lang/Python/3.12.3-GCCcore-13.3.0]", None, "3.12", "the module lang/Python/3.12.3-GCCcore-13.3.0 of far"),
        ("[Python/3.13.5]", "3.12", "3.12", "--python says so; the module Python/3.13.5 of far is another"),
        ("[Python/3.13.5]", "3.13", "3.13", "--python says so"),
        ("[python/2.7.18, ipython/8.1, gcc/12]", None, "3.11", "assumed, since no module of far names one"),
    ],
)
def test_the_python_is_that_of_the_modules_unless_asked_for_another(cluster, folder, modules, asked, python, why):
    profile = Path(cluster("aarch64"))
    profile.write_text(profile.read_text() + f"modules: {modules}\n")
    lines = []
    made = pack(str(profile), folder / "it", python=asked, say=lines.append, run=Pip())
    assert made.pack.python == python
    assert lines[0].startswith(f"for Python {python}: {why}")
    assert ("is another" in lines[0]) == (asked == "3.12")


def test_jupiter_gets_the_python_of_its_stage(folder):
    assert pack("jupiter", folder / "it", python=None, say=said, run=Pip()).pack.python == "3.13"


NO_WHEEL = "ERROR: Could not find a version\nERROR: No matching distribution found for pydantic-core==2.50.5\n"
CONFLICT = (
    "Additionally, some packages in these conflicts have no matching distributions available for your environment:\n"
)
CAUSED = "The conflict is caused by:\n    jinja2 3.1.6 depends on MarkupSafe>=2.0\n\n"
BROKEN = "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NewConnectionError(...)'\n"


@pytest.mark.parametrize(
    ("fails", "out", "err", "kind", "message"),
    [
        ("download", "", NO_WHEEL, MissingError, "no wheel of pydantic-core==2.50.5 for Python 3.11 on x86_64"),
        (
            "download",
            CONFLICT + "    pydantic-core\n",
            "ERROR: Cannot install",
            MissingError,
            "no wheel of pydantic-core",
        ),
        ("download", CAUSED, "ERROR: Cannot install", MissingError, "no wheel of MarkupSafe>=2.0"),
        ("download", CAUSED + CONFLICT + "    markupsafe\n", "", MissingError, "no wheel of markupsafe for"),
        ("download", "", BROKEN + NO_WHEEL, CommandError, "the package index cannot be reached"),
        ("wheel", "", BROKEN + NO_WHEEL, CommandError, "the package index cannot be reached"),
        ("wheel", "", "  ERROR: no space left\n", CommandError, "pip wheel: no space left"),
    ],
)
def test_a_failure_says_why_and_leaves_nothing(cluster, folder, fails, out, err, kind, message):
    pip = Pip(fails, CommandError("pip failed", status=1, stdout=out, stderr=err))
    with pytest.raises(kind, match=message):
        pack(cluster("x86_64"), folder / "it", python="3.11", say=said, run=pip)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("fails", ["wheel", "download"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), CommandError("pip did not answer within 3600 s")])
def test_an_interrupt_or_a_time_out_leaves_nothing(cluster, folder, fails, error):
    with pytest.raises(type(error)):
        pack(cluster("x86_64"), None, python="3.11", say=said, run=Pip(fails, error))
    assert list(folder.iterdir()) == []


def test_what_exists_is_never_overwritten(cluster, folder):
    (folder / "it").write_text("mine")
    pip = Pip()
    with pytest.raises(InputError, match="exists already"):
        pack(cluster("x86_64"), folder / "it", python="3.11", say=said, run=pip)
    assert (folder / "it").read_text() == "mine"
    assert pip.calls == []


@pytest.mark.parametrize(
    ("arch", "python", "message"),
    [
        ("unknown", "3.11", "the architecture of far is unknown"),
        ("x86_64", "3.9", "needs Python 3.10 or newer, not 3.9"),
        ("x86_64", "3.11.5", "'3.11.5' is not a Python version"),
        ("x86_64", "2.7", "'2.7' is not a Python version"),
    ],
)
def test_bad_input_is_refused_before_pip_is_asked(cluster, folder, arch, python, message):
    pip = Pip()
    with pytest.raises(InputError, match=message) as caught:
        pack(cluster(arch), folder / "it", python=python, say=said, run=pip)
    assert caught.value.hint
    assert pip.calls == []
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_not_there_is_not_made(cluster, folder):
    with pytest.raises(InputError, match="there is no folder"):
        pack(cluster("x86_64"), folder / "deep" / "it", python="3.11", say=said, run=Pip())
    assert list(folder.iterdir()) == []


def test_a_python_without_pip_is_named(cluster, folder):
    pip = Pip("wheel", CommandError("failed", status=1, stderr="/opt/bin/python: No module named pip\n"))
    with pytest.raises(MissingError, match="has no pip") as caught:
        pack(cluster("x86_64"), folder / "it", python="3.11", say=said, run=pip)
    assert "ensurepip" in caught.value.hint
    assert list(folder.iterdir()) == []


def test_the_users_own_profile_goes_with_it_and_a_shipped_one_does_not(folder, user_configuration):
    own = user_configuration / "cluster_profiles"
    own.mkdir()
    (own / "group.yaml").write_text("extends: sandbox\nnode: {arch: aarch64}\n", encoding="utf-8")
    (own / "mine.yaml").write_text("extends: group\nname: mine\n", encoding="utf-8")
    told = []
    made = pack("mine", folder / "it", python="3.11", say=told.append, run=Pip())
    packed = {path.name: path.read_text() for path in (made.path / "cluster_profiles").iterdir()}
    assert packed == {name: (own / name).read_text() for name in ("group.yaml", "mine.yaml")}
    assert f"your own profile {own / 'mine.yaml'} goes with it" in told
    assert "cluster_profiles" in (made.path / "install.sh").read_text()
    made = pack("leonardo", folder / "shipped", python="3.11", say=said, run=Pip())
    assert not (made.path / "cluster_profiles").exists()
