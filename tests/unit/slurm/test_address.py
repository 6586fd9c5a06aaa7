"""MASTER_ADDR with its fallbacks, decided on the batch host."""

from __future__ import annotations

import socket

import pytest

from pretrainctl.records.launch import AddressRule
from pretrainctl.slurm.nodes import master_address, resolve

NAMES = ("{host}-interconnect-1.fast.example", "{host}i")
KNOWN = {
    "n1-interconnect-1.fast.example": "10.0.0.1",
    "n1": "10.1.0.1",
    "n2i": "10.0.0.2",
    "n2": "10.1.0.2",
    "n3-ib0.site": "10.1.0.3",
}


@pytest.mark.parametrize(
    ("host", "rule", "address"),
    [
        ("n1", AddressRule("ipv4", names=NAMES), "n1-interconnect-1.fast.example"),
        ("n1.site", AddressRule("hostname", names=NAMES), "n1-interconnect-1.fast.example"),
        ("n2", AddressRule("ipv4", names=NAMES), "n2i"),
        ("n3", AddressRule("ipv4", names=NAMES), "n3"),
        ("n2", AddressRule("ipv4"), "10.1.0.2"),
        ("n3.site", AddressRule("ipv4", "-ib0"), "10.1.0.3"),
        ("n9", AddressRule("hostname", "-ib0", names=NAMES), "n9-ib0"),
        (" n2 ", AddressRule("ipv4"), "10.1.0.2"),
        ("n1", AddressRule("localhost", names=NAMES), "localhost"),
    ],
)
def test_the_first_name_that_resolves_is_taken(host, rule, address):
    assert master_address(host, rule, resolve=KNOWN.get) == address


def test_one_node_may_meet_itself_on_localhost():
    rule = AddressRule("ipv4", names=NAMES, one_node_local=True)
    assert master_address("n1", rule, nodes=1, resolve=KNOWN.get) == "127.0.0.1"
    assert master_address("n1", rule, nodes=2, resolve=KNOWN.get) == "n1-interconnect-1.fast.example"
    assert master_address("n1", AddressRule("ipv4"), nodes=1, resolve=KNOWN.get) == "10.1.0.1"


def test_a_plain_host_name_asks_nobody():
    def never(name):
        raise AssertionError(name)

    assert master_address("jwb0097.juwels", AddressRule("hostname", "i"), resolve=never) == "jwb0097i.juwels"


def test_names_are_resolved_to_ipv4_on_this_host(monkeypatch):
    assert resolve("localhost") == "127.0.0.1"
    assert resolve("no-such-host.invalid") is None
    assert resolve("a" * 300) is None

    def fails(*_arguments, **_options):
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    assert resolve("localhost") is None
