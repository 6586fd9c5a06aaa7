from __future__ import annotations

from pathlib import Path

from pretrainctl.sandbox import configuration
from pretrainctl.sandbox.layout import Layout, Settings, Shape

LAYOUT = Layout(Path("/tmp/sb"), Path("/tmp/sb"))


def slurm_conf(**shape):
    settings = Settings(Shape(**shape), 20001, 20002, 20003)
    text = configuration.slurm_conf(LAYOUT, settings, user="ann", host="here")
    lines = text.splitlines()
    return text, {line.partition("=")[0]: line.partition("=")[2] for line in lines}, lines


def test_each_node_has_its_port_and_claims_more_than_this_machine_has():
    _, _, lines = slurm_conf(nodes=4, gpus=4)
    (nodes,) = [line for line in lines if line.startswith("NodeName=")]
    assert nodes.startswith("NodeName=node[01-04] NodeHostname=here NodeAddr=127.0.0.1 Port=[20003-20006] CPUs=80 ")
    assert "Gres=gpu:4" in nodes


def test_one_node_is_no_range():
    _, _, lines = slurm_conf(nodes=1, gpus=1)
    (nodes,) = [line for line in lines if line.startswith("NodeName=")]
    assert nodes.startswith("NodeName=node01 ")
    assert "Port=20003 " in nodes
    assert configuration.gres_conf(LAYOUT, Shape(nodes=1, gpus=1)) == (
        "NodeName=node01 Name=gpu File=/tmp/sb/etc/gpu0\n"
    )


def test_an_odd_number_of_cpus_is_one_socket():
    _, _, lines = slurm_conf(nodes=1, cpus=7)
    assert any("CPUs=7 Sockets=1 CoresPerSocket=7" in line for line in lines)


def test_without_gpus_there_is_no_gres():
    text, keys, _ = slurm_conf(nodes=2, gpus=0)
    assert "GresTypes" not in keys
    assert "Gres=" not in text
    assert configuration.gres_conf(LAYOUT, Shape(gpus=0)) == ""


def test_nodes_that_are_not_held_exist_as_down():
    _, _, lines = slurm_conf(nodes=4, down_nodes=61)
    (down,) = [line for line in lines if line.startswith("NodeName=node[05-65]")]
    assert "State=DOWN" in down
    assert all("Nodes=node[01-65]" in line for line in lines if line.startswith("PartitionName="))


def test_it_has_its_own_munge_and_depends_on_no_names():
    _, keys, _ = slurm_conf()
    assert keys["AuthInfo"] == "socket=/tmp/sb/run/munge.sock"
    assert keys["AccountingStoragePass"] == "/tmp/sb/run/munge.sock"
    assert "CommunicationParameters" not in keys  # its NoInAddrAny binds to what the host's name resolves to
    assert keys["SlurmctldHost"] == "here(127.0.0.1)"
    assert keys["SlurmUser"] == keys["SlurmdUser"] == "ann"


def test_the_database_daemon_has_the_same_munge_and_port():
    text = configuration.slurmdbd_conf(LAYOUT, Settings(Shape(), 20001, 20002, 20003), user="ann")
    assert "AuthInfo=socket=/tmp/sb/run/munge.sock\n" in text
    assert "DbdPort=20002\n" in text


def test_the_cluster_and_its_accounts_bear_the_name_of_the_settings():
    settings = Settings(Shape(), 20001, 20002, 20003, "sandbox_1a2b")
    assert "ClusterName=sandbox_1a2b\n" in configuration.slurm_conf(LAYOUT, settings, user="ann", host="here")
    commands = configuration.accounting_commands("sandbox_1a2b", user="ann")
    assert commands[0] == ["add", "cluster", "sandbox_1a2b"]
    assert sum("Cluster=sandbox_1a2b" in command for command in commands) == 2
