from __future__ import annotations

from dataclasses import replace

import pytest

from pretrainctl.health.exclusion import lifetime, listed, scrub, to_avoid
from pretrainctl.records.nodes import ExclusionEntry

DAY = 86400.0
NOW = 100 * DAY


def entry(
    node: str, cause: str = "node_failure", *, days: float = 1.0, age: float = 0.0, **more: object
) -> ExclusionEntry:
    time = NOW - age * DAY
    made = ExclusionEntry("exclude", "c", "s", node, cause, "why", "me", time, expires=time + days * DAY)
    return replace(made, **more)  # type: ignore[arg-type]


def named(*entries: ExclusionEntry) -> dict[str, ExclusionEntry]:
    return {f"{number}.json": item for number, item in enumerate(entries)}


def avoided(*entries: ExclusionEntry, now: float = NOW) -> list[str]:
    return [node.node for node in to_avoid(listed(named(*entries)), now)]


def test_entries_of_a_node_add_up_and_the_longest_holds() -> None:
    node = listed(named(entry("n1", age=2), entry("n1", "gpu_hardware", days=7, age=1), entry("n2")))["n1"]
    assert (node.count, node.newest.cause, node.expires) == (2, "gpu_hardware", NOW + 6 * DAY)


def test_an_entry_holds_until_it_expires() -> None:
    assert avoided(entry("n1")) == ["n1"]
    assert avoided(entry("n1"), now=NOW + DAY) == []


def test_forgiving_is_by_name_and_later_findings_count_again() -> None:
    first, second = entry("n1", age=0.1), entry("n1", age=0.2)
    forgiven = replace(entry("n1"), kind="forgive", forgives=("0.json",), time=0.0)  # a clock of another host
    assert avoided(first, forgiven) == []
    both = listed({**named(first), "late.json": second, "f.json": forgiven})
    assert (both["n1"].count, both["n1"].names) == (1, ("late.json",))


def test_what_a_person_said_goes_last_and_what_is_least_certain_first() -> None:
    entries = (
        entry("doubtful", "fabric", confidence="low"),
        entry("older", age=0.5),
        entry("newer", age=0.1),
        entry("by-hand", "person", age=0.9),
        entry("twice", age=0.4),
        entry("twice", age=0.3),
    )
    assert avoided(*entries) == ["by-hand", "twice", "newer", "older", "doubtful"]


@pytest.mark.parametrize(
    ("cause", "ages", "days"),
    [
        ("node_failure", [], 1),
        ("gpu_hardware", [], 7),
        ("node_test", [1], 2),
        ("node_failure", [1, 2, 3], 8),
        ("node_failure", [40, 50], 1),
        ("gpu_hardware", [1, 2, 3, 4], 30),
    ],
)
def test_what_comes_again_holds_longer(cause: str, ages: list[float], days: float) -> None:
    before = listed(named(*(entry("n1", age=age) for age in ages))).get("n1")
    assert lifetime(cause, before, NOW) == days * DAY


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 python", "WANDB_API_KEY=[removed] python"),
        ('{"hf_token": "hf_abcdef", "x": 1}', '{"hf_token": "[removed]", "x": 1}'),
        ("Authorization: Bearer abc.def", "Authorization: [removed]"),
        ("using sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD now", "using sk-[removed] now"),
        ("git clone https://me:pw@host/x", "git clone https://[removed]@host/x"),
        (
            "GPU-5fd4f087-86f3-7a43-b711-4771313afc50 has an uncorrectable ECC error, Xid 63",
            "GPU-5fd4f087-86f3-7a43-b711-4771313afc50 has an uncorrectable ECC error, Xid 63",
        ),
        ("12,345 tokens/s at step 10", "12,345 tokens/s at step 10"),
        ("a\x1b[31mb\nc", "a [31mb c"),
    ],
)
def test_others_read_no_secret(line: str, kept: str) -> None:
    assert scrub([line]) == (kept,)
    assert len(scrub(["x " * 1000])[0]) == 300
