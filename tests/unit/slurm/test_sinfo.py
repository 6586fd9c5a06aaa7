from __future__ import annotations

import pytest

from pretrainctl.errors import SlurmError
from pretrainctl.slurm.sinfo import NodeCondition, parse_gres, parse_sinfo, read_node_state


def test_suffixes_decide_what_a_node_is_worth(data):
    nodes = parse_sinfo(data("sinfo_suffixes.txt"))
    assert len(nodes) == 20
    assert nodes["gn001"].partitions == ("boost", "debug")
    free = [node for node in nodes.values() if node.condition is NodeCondition.FREE]
    assert [node.name for node in free] == ["gn001"]
    assert sum(sum(node.gpus.values()) for node in free) == 4
    broken = [name for name, node in nodes.items() if node.condition.broken]
    assert broken == ["gn002", "gn009", "gn010", "gn012", "gn013", "gn019", "gn020"]
    assert [node.reason for node in nodes.values() if node.reason] == [
        "Prolog error",
        "Not responding",
        "gres/gpu count too low | 3 < 4",
    ]
    assert nodes["gn011"].condition is NodeCondition.DRAINING
    assert nodes["gn005"].condition is NodeCondition.REBOOTING


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("idle", NodeCondition.FREE),
        ("IDLE*", NodeCondition.NOT_RESPONDING),
        ("alloc*", NodeCondition.NOT_RESPONDING),
        ("down*", NodeCondition.DOWN),
        ("drng*", NodeCondition.NOT_RESPONDING),
        ("idle-", NodeCondition.PROMISED),
        ("mix$", NodeCondition.MAINTENANCE),
        ("idle!", NodeCondition.POWERED_DOWN),
        ("allocated+", NodeCondition.BUSY),
        ("idlest", NodeCondition.UNKNOWN),
        ("strange*", NodeCondition.UNKNOWN),
        ("", NodeCondition.UNKNOWN),
    ],
)
def test_node_states(text, condition):
    assert read_node_state(text) is condition


def test_a_line_of_another_form_is_an_error():
    with pytest.raises(SlurmError):
        parse_sinfo("boost gn001 idle")


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:h100:4(S:0-1)", {"h100": 4}),
        ("gpu:4", {"": 4}),
        ("(null)", {}),
        ("N/A", {}),
        (
            "gpu:nvidia_h100_80gb_hbm3_3g.40gb:3(S:0-1),gpu:nvidia_h100_80gb_hbm3_2g.20gb:3(S:0-1)",
            {"nvidia_h100_80gb_hbm3_3g.40gb": 3, "nvidia_h100_80gb_hbm3_2g.20gb": 3},
        ),
        ("gpu:a100_3g.20gb:3(S:1,3,7),gpu:a100_4g.20gb:1(S:3)", {"a100_3g.20gb": 3, "a100_4g.20gb": 1}),
        ("gpu:1080:7,gpu:block:1", {"1080": 7, "block": 1}),
        ("gpu:h100:2(IDX:0-1)", {"h100": 2}),
        ("gpu:h100:0(IDX:N/A)", {"h100": 0}),
        ("gpu:model_a:0(IDX:N/A),gpu:model_b:1(IDX:2)", {"model_a": 0, "model_b": 1}),
        ("gres/gpu:a100:2", {"a100": 2}),
        ("gres:gpu:4", {"": 4}),
        ("1056gpu:nvidia_gb200:4(IDX:0-3)", {"nvidia_gb200": 4}),
        ("gpu:a6000:8(S:0-7)", {"a6000": 8}),
    ],
)
def test_gpus_by_type(text, gpus):
    assert parse_gres(text) == gpus
