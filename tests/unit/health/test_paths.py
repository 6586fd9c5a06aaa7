from __future__ import annotations

from pretrainctl.health.paths import in_order, is_blind, judge_paths
from pretrainctl.records.nodes import PathAnswer

PATHS = ("/c/owner.json", "/d/a.bin", "/e/b.bin", "/d/a.idx", "/e/b.idx")
ALL = PathAnswer()


def judged(*answers: PathAnswer, others: int = 0) -> tuple[dict[str, str], list[str]]:
    return judge_paths(PATHS, {f"n{number}": answer for number, answer in enumerate(answers, 1)}, others=others)


def test_one_of_each_folder_comes_first() -> None:
    assert in_order(["/c/owner.json", "/d/a.bin", "/d/a.idx", "/e/b.bin", "/e/b.idx", "/d/a.bin"]) == PATHS


def test_what_the_majority_sees_is_there() -> None:
    unfit, notes = judged(ALL, ALL, PathAnswer("0"), PathAnswer("1-2,4"))
    assert unfit == {
        "n3": "/c/owner.json is not seen there, and on 3 other nodes",
        "n4": "/d/a.bin and 2 more are not seen there, and on 3 other nodes",
    }
    assert notes == []


def test_what_nobody_sees_is_no_nodes_fault_and_hides_nothing_else() -> None:
    assert judged(*[PathAnswer("1,3")] * 3) == (
        {},
        ["/d/a.bin and 1 more are seen on none of the 3 nodes that tell, so it is not the nodes"],
    )
    unfit, notes = judged(PathAnswer("0"), PathAnswer("0"), PathAnswer("0,2"))
    assert unfit == {"n3": "/e/b.bin is not seen there, and on 2 other nodes"}
    assert notes == ["/c/owner.json is seen on none of the 3 nodes that tell, so it is not the nodes"]
    assert judged(PathAnswer("0"))[0] == {}, "one node alone"
    assert judged() == ({}, [])


def test_of_two_that_disagree_the_one_that_does_not_see_it_is_unfit() -> None:
    assert judged(ALL, PathAnswer("0"))[0] == {"n2": "/c/owner.json is not seen there, and on 1 other node"}
    assert judged(PathAnswer("0"), ALL)[0] == {"n1": "/c/owner.json is not seen there, and on 1 other node"}
    both, _ = judged(PathAnswer("0"), PathAnswer("1"))
    assert set(both) == {"n1", "n2"}


def test_what_a_minority_sees_is_noted() -> None:
    unfit, notes = judged(ALL, PathAnswer("0"), PathAnswer("0"))
    assert unfit == {}
    assert notes == ["/c/owner.json is seen on 1 of the 3 nodes that tell, too few to blame the others"]


def test_what_is_not_known_neither_blames_nor_clears() -> None:
    slow = PathAnswer(unknown="0-4")
    assert judged(slow, slow, PathAnswer("0"), ALL)[0] == {"n3": "/c/owner.json is not seen there, and on 1 other node"}
    unfit, notes = judged(slow, slow, PathAnswer("0"))
    assert unfit == {}
    assert notes == ["/c/owner.json is seen on none of the 1 nodes that tell, so it is not the nodes"]
    assert judged(slow, ALL, slow, slow) == ({}, []), "a server of metadata that is slow is no fault"
    assert list(judged(ALL, ALL, PathAnswer("0", unknown="0-4"))[0]) == ["n3"], "absent wins"


def test_a_look_that_does_not_come_back_is_one_nodes_fault_or_nobodys() -> None:
    hung = PathAnswer(unknown="1-4", stuck=1)
    unfit, notes = judged(ALL, ALL, hung)
    assert (unfit, notes) == ({"n3": "no answer to a look at /d/a.bin"}, [])
    for answers in ([ALL, hung, hung], [hung], [hung, PathAnswer(unknown="1-4")]):
        unfit, notes = judged(*answers)
        assert unfit == {}
        assert "no answer to a look at /d/a.bin on n" in notes[0]
    many = judged(*[ALL] * 10, hung, hung, others=8)[0]
    assert list(many) == ["n11", "n12"], "two of twenty"


def test_blind_is_who_does_not_see_what_another_sees() -> None:
    absent, slow = PathAnswer("0"), PathAnswer(unknown="0-4")
    assert is_blind("n1", 0, {"n1": absent, "n2": absent, "n3": ALL})
    assert not is_blind("n1", 1, {"n1": absent, "n2": ALL})
    assert not is_blind("n1", 0, {"n1": absent, "n2": absent, "n3": slow})
    assert not is_blind("n1", 0, {"n1": slow, "n2": ALL})
    assert not is_blind("n1", 0, {"n2": ALL})
