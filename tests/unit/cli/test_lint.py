"""The lint command: findings on stdout, the count on stderr, an exit code of its own for errors."""

from __future__ import annotations

import io
import json
import os
import sys
import threading

import pytest

from pretrainctl.cli.main import main

CLEAN = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --time=10\n#SBATCH --partition=production\nsrun -K1 ./train\n"
WARNS = CLEAN.replace("-K1 ", "")
FAILS = CLEAN.replace("./train", "./train | tee log")


@pytest.fixture
def lint(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(text, *options):
        if text is not None:
            (tmp_path / "job.sbatch").write_bytes(text if isinstance(text, bytes) else text.encode())
        monkeypatch.setattr(sys, "argv", ["pretrainctl", "lint", "job.sbatch", *options])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return caught.value.code or 0, out, err

    return run


def test_a_clean_script_ends_in_0(lint):
    assert lint(CLEAN, "--cluster", "sandbox") == (
        0,
        "",
        "job.sbatch: 0 errors, 0 warnings (the rules of sandbox too)\n",
    )


def test_warnings_alone_end_in_0(lint):
    status, out, err = lint(WARNS)
    assert status == 0
    assert out.startswith("job.sbatch:5: warning survivors-wait: ")
    assert err == "job.sbatch: 0 errors, 1 warning (no site's rules: say --cluster)\n"


def test_an_error_ends_in_10(lint):
    status, out, err = lint(FAILS)
    assert status == 10
    first, fix = out.splitlines()
    assert first.startswith("job.sbatch:5: error status-hidden-by-pipe: ")
    assert fix == "    set -o pipefail before it"
    assert err.startswith("error: job.sbatch: 1 error, 0 warnings")


def test_json_holds_every_finding_and_the_exit_code_stays(lint):
    status, out, _ = lint(FAILS, "--json", "--cluster", "sandbox")
    assert status == 10
    (report,) = json.loads(out)
    assert (report["script"], report["cluster"], report["errors"], report["warnings"]) == (
        "job.sbatch",
        "sandbox",
        1,
        0,
    )
    (found,) = report["findings"]
    assert set(found) == {"line", "severity", "rule", "reason", "fix"}
    assert (found["line"], found["rule"]) == (5, "status-hidden-by-pipe")


def test_several_scripts_are_read_and_one_with_errors_is_enough(lint, tmp_path):
    (tmp_path / "good.sh").write_text(CLEAN)
    (tmp_path / "bad.sh").write_text(FAILS)
    status, out, err = lint(WARNS, "good.sh", "bad.sh")
    assert status == 10
    assert [line.split(":")[0] for line in out.splitlines()[::2]] == ["job.sbatch", "bad.sh"]
    assert err.splitlines() == [
        "job.sbatch: 0 errors, 1 warning (no site's rules: say --cluster)",
        "good.sh: 0 errors, 0 warnings (no site's rules: say --cluster)",
        "bad.sh: 1 error, 0 warnings (no site's rules: say --cluster)",
        "error: 1 of 3 scripts have errors: bad.sh",
        "hint: each finding names its fix",
    ]
    assert lint(WARNS, "good.sh")[0] == 0
    status, out, _ = lint(WARNS, "bad.sh", "--json")
    assert (status, [each["errors"] for each in json.loads(out)]) == (10, [0, 1])
    assert lint(WARNS, "no-such-file.sh")[:2] == (2, "")


def test_the_site_s_rules_are_the_profile_s(lint):
    status, out, _ = lint(CLEAN.replace("time=10", "time=4-0"), "--cluster", "sandbox")
    assert status == 10
    assert "job.sbatch:3: error over-limit: " in out
    assert "at most 3-00:00:00, not 4-00:00:00" in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "job.sbatch is not a file"),
        ("#!/usr/bin/env python3\nprint(1)\n", "begins with '#!/usr/bin/env python3', and lint reads bash"),
        ("#!/bin/bash\n" + "(" * 3000 + "a" + ")" * 3000 + "\n", "nests too deep"),
        (b"#!/bin/bash\n" + b"#" * (1 << 18), "a batch script has at most 262144 bytes"),
    ],
)
def test_what_is_no_script_is_refused(lint, text, said):
    status, out, err = lint(text)
    assert (status, out) == (2, "")
    assert said in err


def test_bytes_that_are_no_text_are_read_as_far_as_they_are(lint):
    assert lint(CLEAN.encode() + b"# \xff\xfe\n")[0] == 0


def test_a_dash_is_stdin(monkeypatch, capsysbinary, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FAILS.encode())))
    monkeypatch.setattr(sys, "argv", ["pretrainctl", "lint", "-"])
    with pytest.raises(SystemExit) as caught:
        main()
    out, err = capsysbinary.readouterr()
    assert caught.value.code == 10
    assert out.startswith(b"<stdin>:5: error status-hidden-by-pipe: ")
    assert b"<stdin>: 1 error, 0 warnings" in err


def test_a_pipe_is_read_and_what_cannot_be_read_is_named(lint, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(FAILS,), daemon=True)
    writer.start()
    assert lint(CLEAN, "pipe")[0] == 10
    writer.join(10)
    status, out, err = lint(CLEAN, "/proc/self/mem")
    assert (status, out) == (2, "")
    assert "/proc/self/mem cannot be read: Input/output error" in err
    for name in (".", "n" * 300, "no-such-file"):
        status, _, err = lint(CLEAN, name)
        assert status == 2
        assert name in err
