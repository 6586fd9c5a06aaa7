from __future__ import annotations

import pytest

from pretrainctl.slurm.avoidance import avoidance, choose
from pretrainctl.slurm.sinfo import parse_sinfo

NODES = [f"n{number}" for number in range(1, 7)]


def states(*broken: str, partition: str = "boost"):
    lines = [f"{partition}*|{node}|{'down*' if node in broken else 'idle'}|(null)|none\n" for node in NODES]
    return tuple(parse_sinfo("".join(lines)).values())


def job(excluded: str, needed: int = 2) -> dict[str, str]:
    return {"ExcNodeList": excluded, "NumNodes": f"{needed}-{needed}", "Partition": "boost"}


@pytest.mark.parametrize(
    ("nodes", "needed", "avoided", "chosen"),
    [
        (["n1", "n2"], 2, [], ("n1", "n2")),
        (["n3", "n1", "n2", "n4", "n5"], 2, [], ("n3", "n1", "n2", "n4")),
        (["n3", "n1"], 5, [], ("n3",)),
        (["n3"], 6, [], ()),
        (["n3", "n1"], 4, ["n6"], ("n3",)),
        (["gone", "n1"], 2, [], ("n1",)),
        (["n1", "n1"], 2, [], ("n1",)),
    ],
)
def test_as_many_as_a_job_can_do_without_and_none_that_is_not_there(nodes, needed, avoided, chosen):
    assert choose(states(), "boost", needed, avoided, nodes) == chosen


def test_what_is_ours_follows_the_list_and_what_a_person_set_stays():
    assert avoidance(job("n[1-2]"), states(), ["n3"]) == ("n1", "n2", "n3")
    assert avoidance(job("n[1-2]"), states(), ["n3"], ours={"n1", "n3"}) == ("n2", "n3")
    assert avoidance(job("n[1-2]"), states(), [], ours={"n1", "n2"}) == ()
    full = avoidance(job("n[1,5-6]", 3), states(), ["n4", "n6"], ours={"n4", "n5", "n6"})
    assert full == ("n1", "n4", "n6"), "a new one is worth more than an old one of ours"
    assert avoidance(job("n[1-3]", 3), states(), ["n4"], ours={"n4"}) == ("n1", "n2", "n3")


def test_a_held_job_gives_up_ours_first():
    excluded = job("n[1-5]", 3)
    assert avoidance(excluded, states(), ["n4", "n5"], ours={"n4", "n5"}, held=True) == ("n1", "n2", "n3")
    assert avoidance(excluded, states("n6"), ["n4", "n5"], ours={"n4", "n5"}, held=True) == ("n1", "n2")
    assert avoidance(excluded, states("n4", "n5", "n6"), [], held=True) == ("n4", "n5"), "those are down"
