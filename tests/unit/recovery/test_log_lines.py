"""Who printed a line and when; where ranks lay."""

from __future__ import annotations

import datetime as dt

import pytest

from pretrainctl.recovery.log_lines import read_time, split
from pretrainctl.recovery.placement import Placement, read_placement


@pytest.mark.parametrize(
    "line",
    [
        "\x1b[1;31mKeyError\x1b[0m: 1",
        "\x1b]0;a title\x07KeyError: 1",
        "\x1b]8;;http://a\x1b\\KeyError\x1b]8;;\x1b\\: 1",
        "\x1bPq#0\x1b\\KeyError: 1",
        "\x1b(B\x1bcKeyError: 1\x07",
        "\x9bKeyError: 1",
        "Key\x08Error: 1\x1b]0;open to the end",
    ],
)
def test_nothing_of_a_line_steers_the_terminal(line: str) -> None:
    assert split(line).text == "KeyError: 1"


@pytest.mark.parametrize(
    ("line", "rank", "node"),
    [
        ("1034: step 5", 1034, None),
        ("   7: [rank12]: KeyError: 'x'", 12, None),
        ("[default0]:[rank12]:[E817 17:40:34.2 ProcessGroupNCCL.cpp:1515] [PG 0 Rank 12] x", 12, None),
        ("\x1b[31m[rank37]: torch.OutOfMemoryError\x1b[0m", 37, None),
        ("rank 3: error: it is so", 3, None),
        ("cn002: [WARNING] load path does not exist", None, "cn002"),
        ("0: slurmstepd-cn01: error: Detected 1 oom_kill event", 0, "cn01"),
        ("slurmstepd: error: *** STEP 1.0 ON cn01 CANCELLED", None, None),
        ("srun: error: cn01: task 3: Killed", None, None),
        ("cn004:36748:36749 [0] misc/ibvwrap.cc:94 NCCL WARN x", None, "cn004"),
        ("[2026-03-03 12:11:38] tp-hub0007:185303:186751 [1] net_ib.cc:2453 NCCL WARN x", None, "tp-hub0007"),
        ("local_rank: 5 rank 8/16", None, None),
        ("ValueError: x1: bad", None, None),
        ("17: urllib3.exceptions.MaxRetryError: Max retries exceeded", 17, None),
        ("h5py.h5.H5Error: unable to open file", None, None),
        ("botocore3.x1: CUDA error: uncorrectable ECC error", None, None),
        ("[rank3]: boto3.exceptions.S3UploadFailedError: no", 3, None),
        ("python3: can't open file 'train.py': [Errno 2] No such file or directory", None, None),
        ("mlx5_0: a port error", None, None),
        ("bf16: CUDA error", None, None),
        ("5: jpbo-001-05: error: it is so", 5, "jpbo-001-05"),
        ("slurmstepd-gpu12.cluster: error: it is so", None, "gpu12.cluster"),
    ],
)
def test_who_printed_it(line: str, rank: int | None, node: str | None) -> None:
    found = split(line)
    assert (found.rank, found.node) == (rank, node)
    assert "\x1b" not in found.text


def test_a_long_line_is_cut() -> None:
    assert len(split("x" * 10_000).text) == 400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[2026-03-21 02:07:08,408] [INFO]", "2026-03-21T02:07:08.408"),
        ("CANCELLED AT 2026-03-21T02:07:08 DUE", "2026-03-21T02:07:08"),
        ("[rank0]:[E321 02:07:08.408271257 Process", "2026-03-21T02:07:08.408271"),
        ("[E1121 02:07:08.5 Process", "2026-11-21T02:07:08.5"),
        ("03/21/2026 02:07:08 [INFO|DP=0]", "2026-03-21T02:07:08"),
        ("Mar 21 02:07:08 cn01 kernel: NVRM", "2026-03-21T02:07:08"),
        ("2026-03-20 01:00:00 x\n2026-03-21 02:07:08 y", "2026-03-21T02:07:08"),
        ("[E1399 02:07:08.5 no such month", None),
        ("step 5501 | loss 2.120", None),
    ],
)
def test_the_times_of_loggers(text: str, expected: str | None) -> None:
    found = read_time(text, 2026)
    if expected is None:
        assert found is None
    else:
        moment = dt.datetime.fromisoformat(f"{expected:0<26}" if "." in expected else expected)
        assert found == pytest.approx(moment.replace(tzinfo=dt.timezone.utc).timestamp(), abs=1e-5)


def expand(text: str) -> list[str]:
    return {"cn[1-2]": ["cn1", "cn2"], "cn[001-002]": ["cn001", "cn002"]}.get(text, [])


@pytest.mark.parametrize(
    ("lines", "nodes", "ranks"),
    [
        (["SLURM_JOB_NODELIST=cn[1-2]", "SLURM_NTASKS_PER_NODE=4"], ("cn1", "cn2"), 8),
        (["nodes cn001..cn002, 4 ranks each"], ("cn001", "cn002"), 8),
        (["ranks 0-3 on cn1, ranks 4-7 on cn2", "world size 8"], ("cn1", "cn2"), 8),
        (["nothing of it"], (), None),
    ],
)
def test_what_a_log_says_of_its_layout(lines: list[str], nodes: tuple[str, ...], ranks: int | None) -> None:
    found = read_placement(lines, expand)
    assert found.nodes_of([0, 3, 4, 7]) == nodes
    assert found.ranks == ranks


def test_a_name_that_is_no_node_of_the_job_is_none() -> None:
    placement = Placement(("cn1", "cn2"), 4, stated={1: "GPU0", 4: "cn1"})
    assert placement.named(["urllib3.exceptions.MaxRetryError", "cn2.cluster.local", "x1", "cn2", "cn3"]) == ("cn2",)
    assert placement.nodes_of([1, 4]) == ("cn1",)
    assert Placement().named(["gpu12", "gpu12", "cn3"]) == ("gpu12", "cn3")
    assert Placement(("cn1.x", "cn2.x")).named(["cn2", "cn3.x"]) == ("cn2.x",)


def test_a_log_may_tell_of_several_jobs() -> None:
    placement = read_placement(["SLURM_JOB_NODELIST=cn[001-002]"], expand)
    assert placement.named(["cn117", "x1", "boto3", "cn1.x"]) == ("cn117",)


def test_a_device_is_no_place() -> None:
    assert read_placement(["rank 0 on GPU0", "rank 1 on mlx5_0", "rank 2 on cn1"], expand).stated == {2: "cn1"}


def test_a_rank_beyond_the_nodes_is_nowhere() -> None:
    placement = Placement(("cn1", "cn2"), 4)
    assert placement.node_of(7) == "cn2"
    assert placement.node_of(8) is None
    assert Placement().node_of(0) is None
