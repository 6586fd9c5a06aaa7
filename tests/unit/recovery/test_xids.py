"""Xids beside other lines: one that ends a program explains it, one that tells of what was mended does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.recovery.log_reading import find_cause
from pretrainctl.recovery.signatures import SIGNATURES
from pretrainctl.recovery.signatures.xids import XIDS
from pretrainctl.workflows.doctor import Finding, examine_logs

MENDED = [
    "63, pid=1234, name=python, Row Remapper: New row marked for remapping, reset gpu to activate.",
    "63, pid='<unknown>', name=<unknown>, Dynamic Page Retirement: New retired page, reboot to activate (0x00a)",
    "92, pid=99, name=python, High single-bit ECC error rate",
    "61, pid=99, 0cde(31c4) 00000000 00000000",
    "154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
    "154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)",
    "145, RLW_REMAP Nonfatal XC0 i0 Link 03 (0x00000100 0x00000000)",
    "149, pid=12, name=python, NETIR_LINK_EVT Nonfatal XC1 i0 Link 11",
]
NOT_MENDED = "64, pid=1234, name=python, Row Remapper: recording failure"
FATAL = [
    (f"{number}, pid=1234, name=python, what it says", "gpu_hardware")
    for number in (32, 46, 48, 62, 74, 79, 94, 95, 109, 110, 119, 120, 136, 140, 143, 158, 167, 171, 172)
] + [
    ("145", "gpu_hardware"),
    ("145, RLW_REMAP Fatal XC1 i0 Link 03 (0x00000040 0x00000000)", "gpu_hardware"),
    ("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "gpu_hardware"),
    ("154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "gpu_hardware"),
    *((f"{number}, pid=1234, name=python, Ch 00000010", "application_error") for number in (13, 31, 69)),
]
NOTHING = [
    "121, pid=99, name=python, Corrected C2C error",
    "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
    "93, Non-fatal violation of provisioned InfoROM wear limit",
]
STEPS = [f"iteration {step}/ 100 | lm loss: 2.{step} | grad norm: 1.0 |" for step in (1, 2, 3)]
ERROR = "KeyError: 'labels'"


def driver(said: str) -> str:
    return f"gn003 kernel: NVRM: Xid (PCI:0000:4e:00): {said}"


def doctor(folder: Path, *lines: str) -> Finding:
    log = folder / "job.out"
    log.write_text("".join(f"{line}\n" for line in (*STEPS, *lines)))
    return examine_logs([log])


@pytest.mark.parametrize("said", [*MENDED, NOT_MENDED])
@pytest.mark.parametrize("first", [True, False])
def test_no_gpu_is_blamed_for_an_error_of_the_program(said: str, tmp_path: Path, *, first: bool) -> None:
    lines = (driver(said), ERROR) if first else (ERROR, driver(said))
    found = doctor(tmp_path, *lines)
    assert (found.failure_class, found.nodes) == ("application_error", ())
    assert ERROR in found.message


@pytest.mark.parametrize("said", MENDED)
def test_what_was_mended_is_a_faint_suspicion_where_nothing_else_is_said(said: str, tmp_path: Path) -> None:
    found = doctor(tmp_path, driver(said))
    assert (found.failure_class, found.confidence) == ("gpu_hardware", "low")
    assert "no reason to keep off the node" in found.hint


def test_a_row_that_could_not_be_put_aside_is_more_than_that(tmp_path: Path) -> None:
    assert doctor(tmp_path, driver(NOT_MENDED)).confidence == "medium"
    waited = "[rank3]:[E] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE"
    assert doctor(tmp_path, driver(NOT_MENDED), waited).failure_class == "collective_timeout"


@pytest.mark.parametrize(("said", "kind"), FATAL)
def test_what_ends_a_program_explains_its_error(said: str, kind: str, tmp_path: Path) -> None:
    found = doctor(tmp_path, driver(MENDED[0]), driver(said), "RuntimeError: CUDA error: x", ERROR)
    assert found.failure_class == kind
    assert said in found.message
    assert found.confidence != "low"


@pytest.mark.parametrize("number", [8, 38, 60, 137, 999])
def test_a_number_that_is_not_known_is_told_and_explains_no_more(number: int, tmp_path: Path) -> None:
    found = doctor(tmp_path, f"Nov 30 10:00:00 {driver(str(number))}, pid=12, Ch 0000000b")
    assert (found.failure_class, found.nodes, found.confidence) == ("unknown", ("gn003",), "low")
    assert f"): {number}," in found.message
    assert doctor(tmp_path, driver(f"{number}, Ch 0000000b"), ERROR).failure_class == "application_error"


@pytest.mark.parametrize("said", NOTHING)
def test_what_means_nothing(said: str) -> None:
    assert find_cause([driver(said)], stepped=True) is None


def test_each_entry_is_hit_by_a_case() -> None:
    lines = [
        driver(said) for said in (*MENDED, NOT_MENDED, *(said for said, _ in FATAL), "45, Ch 1", "43, Ch 1", "8, Ch 1")
    ]
    hit = {next((one for one in SIGNATURES if one.clue in line and one.pattern.search(line)), None) for line in lines}
    assert not [one.pattern.pattern for one in set(XIDS) - hit]
    assert all(one.source for one in XIDS)
