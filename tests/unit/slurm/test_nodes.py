from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrainctl.errors import InputError
from pretrainctl.records.launch import AddressRule
from pretrainctl.slurm.nodes import expand, fold, master_address, master_port


@pytest.mark.parametrize(
    ("text", "count", "first", "last"),
    [
        ("as01r1b[01-03,07],lrdn[0001-0042]", 46, ["as01r1b01", "as01r1b02", "as01r1b03", "as01r1b07"], "lrdn0042"),
        ("jpbo-012-[34-47]", 14, ["jpbo-012-34", "jpbo-012-35"], "jpbo-012-47"),
        ("node[01-03]-ib", 3, ["node01-ib", "node02-ib", "node03-ib"], "node03-ib"),
        ("ml-16-node-[001-002,004],ml-17-node-[001-003]", 6, ["ml-16-node-001"], "ml-17-node-003"),
        ("nodeA,nodeB[001,003],nodeC", 4, ["nodeA", "nodeB001", "nodeB003", "nodeC"], "nodeC"),
        ("cpn-m11-16", 1, ["cpn-m11-16"], "cpn-m11-16"),
        ("alpha,beta,gamma", 3, ["alpha", "beta", "gamma"], "gamma"),
        ("foo-[10-11]-[01-02]", 4, ["foo-10-01", "foo-10-02", "foo-11-01", "foo-11-02"], "foo-11-02"),
        ("gn[8-11]", 4, ["gn8", "gn9", "gn10", "gn11"], "gn11"),
        ("gn[098-101]", 4, ["gn098", "gn099", "gn100", "gn101"], "gn101"),
        ("c1", 1, ["c1"], "c1"),
        ("a b", 2, ["a", "b"], "b"),
    ],
)
def test_node_lists(text, count, first, last):
    hosts = expand(text)
    assert len(hosts) == count
    assert list(hosts[: len(first)]) == first
    assert hosts[-1] == last


def test_repeats_are_kept_in_order():
    hosts = expand("overlap_[1-3,2-4]")
    assert [host[-1] for host in hosts] == list("123234")
    assert len(set(hosts)) == 4


@pytest.mark.parametrize("text", ["None assigned", "(null)", "", "  "])
def test_a_pending_job_has_no_nodes(text):
    assert expand(text) == ()


@pytest.mark.parametrize(
    "text", ["n[3-1]", "n[1", "n]1", "n[]", "n[a-b]", "n[1-999999]", "n[1-9999][1-9999]", "n[[1]]"]
)
def test_what_is_no_node_list_is_refused(text):
    with pytest.raises(InputError):
        expand(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"n[{'9' * 5000}]", "is not a node list"),
        ("n[99999999999999999999-99999999999999999999]", "is not a node list"),
        ("n99999999999999999999", "18 digits in a row"),
        ("n9[999999999999999999]", "18 digits in a row"),
        ("n" * 300, "at most 255 characters"),
        ("n[0-65536]", "more than 65536 nodes"),
        (f"n[{'0-65535,' * 10_000}7]", "more than 65536 nodes"),
        ("n[0-65535]," * 10_000, "more than 65536 nodes"),
        ("n[0-9]" * 20_000, "more than 65536 nodes"),
        ("," * 100_000 + "[", "is not a node list"),
    ],
)
def test_a_list_without_end_is_refused_at_once(text: str, says: str) -> None:
    begun = time.process_time()
    with pytest.raises(InputError, match=says) as caught:
        expand(text)
    assert time.process_time() - begun < 5
    assert len(str(caught.value)) < 500


def test_as_many_nodes_as_there_may_be() -> None:
    assert len(expand("n[0-65535]")) == 65536
    assert expand("n999999999999999999") == expand("n[999999999999999999]") == ("n999999999999999999",)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["gn8", "gn9", "gn10", "gn11"], "gn[8-11]"),
        (["gn001"], "gn001"),
        (["gn001", "gn002", "gn004", "login"], "gn[001-002,004],login"),
        (["gn9", "gn010"], "gn[9,010]"),
        # Slurm 22.05: "Invalid hostlist: node[01-02]-ib"
        (["node01-ib", "node02-ib"], "node01-ib,node02-ib"),
        ([], ""),
    ],
)
def test_folded_lists(names, expected):
    assert fold(names) == expected


WORD = st.text("abgn-_.", min_size=1, max_size=3).map(lambda text: f"n{text}")
NAME = st.one_of(
    WORD,
    st.builds(lambda word, number, width: f"{word}{number:0{width}d}", WORD, st.integers(0, 1200), st.integers(1, 5)),
    st.builds(lambda word, number: f"{word}{number}-ib0", WORD, st.integers(0, 12)),
    st.builds(lambda word, number: f"{word}{number}", WORD, st.integers(10**14, 10**17)),
)


@given(st.lists(NAME, max_size=30))
def test_folding_loses_nothing(names):
    assert list(expand(fold(names))) == names


@given(st.integers(0, 2000), st.integers(1, 60), st.integers(1, 5))
def test_neighbours_fold_into_one_range(first, count, width):
    names = [f"gn{number:0{width}d}" for number in range(first, first + count)]
    folded = fold(names)
    assert list(expand(folded)) == names
    assert "," not in folded


@pytest.mark.parametrize(
    ("node_list", "suffix", "address"),
    [
        ("jwb[0097-0098,0129]", "i", "jwb0097i"),
        ("jwb[0097-0098,0129]", "-ib0", "jwb0097-ib0"),
        ("jwb[0097-0098,0129]", "", "jwb0097"),
        ("alpha,beta", "i", "alphai"),
        ("jwb0097.juwels", "i", "jwb0097i.juwels"),
    ],
)
def test_the_master_address_has_the_suffix_of_the_profile(node_list, suffix, address):
    assert master_address(expand(node_list)[0], AddressRule("hostname", suffix)) == address


def test_on_one_machine_the_master_is_localhost():
    assert master_address("node01", AddressRule("localhost", "i")) == "localhost"


def test_each_restart_has_its_own_port_in_the_span():
    rule = AddressRule("hostname", port_base=30000, port_span=100)
    ports = [master_port(rule, 735929, restart) for restart in range(8)]
    assert len(set(ports)) == 8
    assert all(30000 <= port < 30100 for port in ports)
