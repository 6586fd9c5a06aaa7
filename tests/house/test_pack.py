"""A pack really installs where there is no network, and has wheels of the right architecture only."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from tests.house.conftest import TOP

HERE = f"3.{sys.version_info.minor}"


def command(folder, *words, **options):
    environment = {**os.environ, "PYTHONPATH": str(TOP), "PRETRAINCTL_CONFIG": str(folder / "none")}
    return [sys.executable, "-m", "pretrainctl", *words], {
        "cwd": folder,
        "env": environment,
        "stdin": subprocess.DEVNULL,
        "text": True,
        **options,
    }


def profile(folder, arch):
    path = folder / f"{arch}.yaml"
    path.write_text(f"extends: sandbox\nname: far\nnode: {{arch: {arch}}}\n", encoding="utf-8")
    return str(path)


def make_pack(folder, arch, python):
    argv, options = command(
        folder, "pack", "--cluster", profile(folder, arch), "--python", python, "--json", capture_output=True
    )
    done = subprocess.run(argv, check=False, timeout=600, **options)
    if "the package index cannot be reached" in done.stderr:
        pytest.skip("pip reaches no package index from here")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    with tarfile.open(made["path"]) as archive:
        archive.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(folder)
    return folder / Path(made["path"]).name.removesuffix(".tar.gz"), made["pack"]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A pack for this machine, unpacked in a folder whose name wants quotes."""
    folder = tmp_path_factory.mktemp("a pack for $here")
    return make_pack(folder, platform.machine(), HERE)


@pytest.fixture(scope="module")
def without_network():
    """Words before a command that take every network away from it."""
    for words in (["unshare", "-rn"], ["unshare", "-n"]):
        if (
            shutil.which("unshare")
            and subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0
        ):
            seen = subprocess.run([*words, "cat", "/proc/net/dev"], check=True, capture_output=True, text=True).stdout
            assert [line.split(":")[0].strip() for line in seen.splitlines()[2:]] == ["lo"]
            return words
    pytest.skip("this machine lets nobody make a network namespace")


@pytest.fixture(scope="module")
def installed(here, without_network, tmp_path_factory):
    """The pack installed without a network."""
    target = tmp_path_factory.mktemp("installed") / "the venv"
    done = install(here[0], without_network, str(target))
    assert done.returncode == 0, done.stderr
    version, where, own = done.stdout.splitlines()
    assert (version, where) == ("pretrainctl 0.1.0", f"installed: {target}/bin/pretrainctl")
    assert own.startswith(f"your own profile is in {here[0]}/cluster_profiles: copy it to ")
    return target


def bare(folder):
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8", "PYTHON": sys.executable}


def install(pack, before, *words):
    return subprocess.run(
        [*before, "bash", str(pack / "install.sh"), *words],
        cwd=pack.parent,
        env=bare(pack.parent),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_it_renders_where_it_was_installed_without_a_network(installed, without_network, tmp_path):
    def call(*words):
        argv = [*without_network, str(installed / "bin" / "pretrainctl"), *words]
        done = subprocess.run(
            argv, cwd=tmp_path, env=bare(tmp_path), capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert call("--version") == "pretrainctl 0.1.0\n"
    assert f"exec '{installed}/bin/python" in call("render", "quickstart", "--cluster", "sandbox")


def test_its_own_wheel_can_be_made_again_of_what_it_installed(here, installed, tmp_path):
    code = (
        "import sys, pathlib; from pretrainctl.workflows.pack import own_wheel;"
        "print(own_wheel(pathlib.Path(sys.argv[1]), say=print))"
    )
    done = subprocess.run(
        [installed / "bin" / "python", "-c", code, str(tmp_path)],
        cwd=tmp_path,
        env=bare(tmp_path),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    said, made = done.stdout.splitlines()
    assert "of its installed files" in said
    (built,) = (here[0] / "wheels").glob("pretrainctl-*.whl")
    with zipfile.ZipFile(made) as again, zipfile.ZipFile(built) as first:
        assert sorted(again.namelist()) == sorted(first.namelist())
        for name in first.namelist():
            if not name.endswith("/RECORD"):
                assert again.read(name) == first.read(name), name
        record = next(name for name in first.namelist() if name.endswith("/RECORD"))
        assert set(again.read(record).split()) == set(first.read(record).split())


def test_a_training_python_can_take_telemetry_from_the_unpacked_wheel(here, tmp_path):
    (wheel,) = (here[0] / "wheels").glob("pretrainctl-*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(tmp_path / "lib")], check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import pretrainctl.telemetry as t; print(t.__file__)"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "lib")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith(str(tmp_path / "lib"))


def test_a_wheel_that_changed_on_its_way_is_refused_and_nothing_stays(here, tmp_path):
    pack = tmp_path / "pack"
    shutil.copytree(here[0], pack)
    wheel = next((pack / "wheels").glob("rich-*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"x")
    done = install(pack, [])
    assert done.returncode != 0
    assert "rich" in done.stderr
    assert not (pack / "venv").exists()


def test_another_python_and_a_folder_that_exists_are_refused(here, tmp_path):
    pack = tmp_path / "pack"
    shutil.copytree(here[0], pack)
    done = install(pack, [], str(tmp_path))
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, f"error: {tmp_path} exists already")
    script = pack / "install.sh"
    script.write_text(script.read_text().replace(f"{HERE} {platform.machine()}", "3.99 vax"))
    done = install(pack, [])
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].endswith(f"is Python {HERE} {platform.machine()}, and this pack is for 3.99 vax")
    assert not (pack / "venv").exists()


def test_the_install_script_is_clean_for_shellcheck(here):
    tool = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run(
        [tool, "--norc", here[0] / "install.sh"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout


def test_a_pack_for_arm_has_wheels_for_arm_only(tmp_path):
    pack, record = make_pack(tmp_path, "aarch64", "3.13")
    files = sorted(path.name for path in (pack / "wheels").iterdir())
    assert files == sorted(wheel["file"] for wheel in record["wheels"])
    tags = {name: name.removesuffix(".whl").split("-")[-1] for name in files}
    assert all(tag == "any" or tag.endswith("_aarch64") for tag in tags.values()), tags
    assert not any("x86_64" in name for name in files)
    compiled = {name for name, tag in tags.items() if tag != "any"}
    assert any(name.startswith("pydantic_core-") and "-cp313-" in name for name in compiled)


def test_a_wheel_that_nobody_made_is_named_and_nothing_stays(tmp_path):
    argv, options = command(
        tmp_path,
        *("pack", "--cluster", profile(tmp_path, "x86_64"), "--python", "3.99", "--output", "it"),
        capture_output=True,
    )
    done = subprocess.run(argv, check=False, timeout=300, **options)
    if "the package index cannot be reached" in done.stderr:
        pytest.skip("pip reaches no package index from here")
    assert done.returncode == 3, done.stderr
    assert "error: the index has no wheel of" in done.stderr
    assert "for Python 3.99 on x86_64" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x86_64.yaml"]


def test_ctrl_c_and_sigterm_leave_nothing_behind(tmp_path):
    (tmp_path / "out").mkdir()
    # An index that takes the connection and never answers: pip waits for it.
    with socket.create_server(("127.0.0.1", 0)) as index:
        url = f"http://127.0.0.1:{index.getsockname()[1]}/simple"
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            argv, options = command(
                tmp_path,
                *("pack", "--cluster", profile(tmp_path, "x86_64"), "--output", str(tmp_path / "out" / "it")),
                stderr=subprocess.PIPE,
            )
            options["env"] |= {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": url, "PIP_FIND_LINKS": ""}
            process = subprocess.Popen(argv, start_new_session=True, **options)
            deadline = time.monotonic() + 60
            while not list((tmp_path / "out").iterdir()):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(0.5)
            os.killpg(process.pid, number)
            _, err = process.communicate(timeout=30)
            assert process.returncode == status, err
            assert "Traceback" not in err
            assert list((tmp_path / "out").iterdir()) == []
