from __future__ import annotations

import pytest

from pretrainctl.health.verdict import judge, read_broken
from pretrainctl.records.nodes import NodeAnswer, NodeTest, PathAnswer

NODES = ("n1", "n2", "n3", "n4")


def answer(node: str, *, time: float = 105.0, failed: dict[str, str] | None = None, **figures: float) -> NodeAnswer:
    bad = failed or {}
    passed = tuple(name for name in ("matmul", "shm", "tmpdir", "peers") if name not in bad)
    return NodeAnswer(node, time, bad, passed, {"matmul_seconds": 0.01, **figures})


def judged(*answers: NodeAnswer, nodes: tuple[str, ...] = NODES, **more: object) -> NodeTest:
    found = {item.node: item for item in answers}
    return judge(nodes, found, host="n1", window=(100.0, 110.0), **more)  # type: ignore[arg-type]


def well(*nodes: str) -> list[NodeAnswer]:
    return [answer(node) for node in nodes]


def test_a_failed_check_makes_a_node_unfit_unless_all_fail_it() -> None:
    full = {"tmpdir": "/tmp is full"}
    found = judged(*well("n1", "n3", "n4"), answer("n2", failed=full))
    assert (found.unfit, found.notes) == ({"n2": "tmpdir: /tmp is full"}, ())
    found = judged(*(answer(node, failed=full) for node in NODES))
    assert found.unfit == {}
    assert found.notes == ("tmpdir fails on all 4 nodes that tell, so it is not the nodes: /tmp is full",)


def test_what_fails_everywhere_hides_nothing_else() -> None:
    both = {"shm": "no room", "tmpdir": "/tmp is full"}
    found = judged(*(answer(node, failed=both if node == "n3" else {"shm": "no room"}) for node in NODES))
    assert found.unfit == {"n3": "tmpdir: /tmp is full"}


def test_a_batch_host_that_nobody_reaches_or_whose_clock_is_off_is_not_the_others_fault() -> None:
    found = judged(*well("n1"), *(answer(node, failed={"peers": "refused"}) for node in NODES[1:]))
    assert found.unfit == {}
    found = judged(*well("n1"), *(answer(node, time=500.0) for node in NODES[1:]))
    assert found.unfit == {}
    assert "clock fails on all 3 nodes" in found.notes[0]


@pytest.mark.parametrize(("time", "off"), [(169.0, None), (171.0, "61 s"), (41.0, None), (39.0, "61 s")])
def test_a_clock_is_off_beyond_a_minute_outside_the_window(time: float, off: str | None) -> None:
    unfit = judged(*well("n1", "n2", "n3"), answer("n4", time=time)).unfit
    assert unfit == ({} if off is None else {"n4": f"clock: the clock is {off} off that of n1"})


def test_a_node_without_an_answer() -> None:
    silent = judged(*well("n1", "n2", "n3"), timed_out=True, seconds=20.0)
    assert silent.unfit == {"n4": "no answer within 20 s"}
    aborted = judged(*well("n1", "n2", "n3"))
    assert (aborted.unfit, aborted.notes) == ({}, ("nothing is known of 1 of 4 nodes: they gave no answer",))
    broken = judged(*well("n1", "n2", "n3"), broken={"n4": "it failed"})
    assert broken.unfit == {"n4": "it failed"}
    several = judged(*well("n1", "n2"), broken={"n4": "it failed"}, timed_out=True)
    assert (several.unfit, several.notes) == ({}, ("nothing is known of 2 of 4 nodes: they gave no answer",))
    nobody = judged(timed_out=True, broken=dict.fromkeys(NODES, "it failed"))
    assert (nobody.unfit, nobody.notes) == ({}, ("nothing is known of 4 of 4 nodes: they gave no answer",))


def test_srun_names_the_nodes_where_the_program_fails() -> None:
    said = (
        "srun: error: gn003: task 2: Exited with exit code 2\n"
        "srun: error: gn004: tasks 3,5-6: Exited with exit code 127\n"
        "srun: error: Task launch for StepId=1.0 failed on node gn005: Communication connection failure\n"
        "srun: error: gn001: task 0: Killed\n"
    )
    failed = "the node test failed there"
    assert read_broken(said) == {
        "gn003": "the program of the node test, in the run folder, is not seen there",
        "gn004": failed,
        "gn005": failed,
    }


@pytest.mark.parametrize(
    ("values", "slow"),
    [
        ((0.010, 0.010, 0.011, 0.030), ["n4"]),
        ((0.00010, 0.00011, 0.00012, 0.00020), []),  # less than 0.1 ms
        ((0.100, 0.101, 0.102, 0.150), []),  # less than 1.5 times
        ((0.100, 0.101, 0.102, 0.160), ["n4"]),
        ((0.010, 0.060, 0.030, 0.090), []),  # they differ that much anyhow
        ((0.001, 0.010, 0.010, 0.010), []),  # a fast one
    ],
)
def test_slow_is_far_from_the_others(values: tuple[float, ...], slow: list[str]) -> None:
    found = judged(*(answer(node, matmul_seconds=value) for node, value in zip(NODES, values, strict=True)))
    assert list(found.slow) == slow
    assert found.unfit == {}


def test_slow_gpus_and_too_few_to_compare() -> None:
    values = (0.0020, 0.0020, 0.0021, 0.0027)
    answers = [answer(node, gpu_matmul_seconds=value) for node, value in zip(NODES, values, strict=True)]
    assert judged(*answers).slow == {"n4": "gpu matmul takes 2.7 ms, and 2.05 ms on the others"}
    assert judged(*answers[2:], nodes=NODES[2:]).slow == {}


def test_an_unfit_node_is_not_compared() -> None:
    found = judged(*well("n1", "n2", "n3"), answer("n4", failed={"shm": "no"}, matmul_seconds=9.0))
    assert (list(found.unfit), found.slow) == (["n4"], {})


def test_a_path_that_the_others_see_makes_a_node_unfit() -> None:
    blind = NodeAnswer("n4", 105.0, {}, (), {"matmul_seconds": 9.0}, paths=PathAnswer(absent="1"))
    seeing = [NodeAnswer(node, 105.0, {}, ("paths",), {}, paths=PathAnswer()) for node in ("n1", "n2")]
    found = judged(*seeing, *well("n3"), blind, paths=("/run/owner.json", "/data/a.bin"))
    assert found.unfit == {"n4": "paths: /data/a.bin is not seen there, and on 2 other nodes"}
    assert (found.slow, found.notes, found.paths) == ({}, (), ("/run/owner.json", "/data/a.bin"))
