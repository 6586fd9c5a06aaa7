"""The text of Slurm's own configuration files for a sandbox. Pure: settings and places in, text out."""

from __future__ import annotations

from pretrainctl.sandbox.layout import Layout, Settings, Shape

__all__ = [
    "SLURMD_TIMEOUT",
    "accounting_commands",
    "gres_conf",
    "mail_program",
    "slurm_conf",
    "slurmdbd_conf",
]

SLURMD_TIMEOUT = 10
"""Seconds of silence after which Slurm takes a node for dead."""


def slurm_conf(layout: Layout, settings: Settings, *, user: str, host: str) -> str:
    """`slurm.conf`: `user` runs the daemons and the jobs, `host` is the short name of this machine."""
    shape = settings.shape
    last = settings.node_port + shape.nodes - 1
    lines = [
        f"ClusterName={settings.cluster}",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        f"SlurmctldPort={settings.controller_port}",
        "AuthType=auth/munge",
        # the only fence: NoInAddrAny would bind to what the host's name resolves to, which on Debian is 127.0.1.1
        # and elsewhere nothing, so the daemons listen everywhere and refuse all that has not this key
        f"AuthInfo=socket={layout.munge_socket}",
        "CredType=cred/munge",
        f"StateSaveLocation={layout.state}",
        f"SlurmdSpoolDir={layout.short}/spool/%n",
        f"SlurmctldPidFile={layout.short}/run/slurmctld.pid",
        f"SlurmdPidFile={layout.short}/run/slurmd.%n.pid",
        f"SlurmctldLogFile={layout.log}/slurmctld.log",
        f"SlurmdLogFile={layout.log}/slurmd.%n.log",
        f"MailProg={layout.short}/etc/mail",
        "SlurmctldDebug=info",
        "SlurmdDebug=info",
        # jobs run real processes on a machine far smaller than the nodes claim to be: no binding, no cgroups
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "MpiDefault=none",
        "SwitchType=switch/none",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "JobRequeue=1",
        f"SlurmdTimeout={SLURMD_TIMEOUT}",
        "SlurmctldTimeout=10",
        "MessageTimeout=10",
        "KillWait=5",
        "Waittime=0",
        "InactiveLimit=0",
        "OverTimeLimit=0",
        "MinJobAge=3600",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "PriorityType=priority/basic",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={settings.database_port}",
        f"AccountingStoragePass={layout.munge_socket}",
        "AccountingStorageEnforce=associations,limits,qos",
        "AccountingStorageTRES=gres/gpu",
        *_nodes(shape, host, settings.node_port, last),
        *_partitions(shape),
    ]
    return "\n".join(lines) + "\n"


def _nodes(shape: Shape, host: str, first_port: int, last_port: int) -> list[str]:
    lines = ["GresTypes=gpu"] if shape.gpus else []
    sockets = 2 if shape.cpus % 2 == 0 else 1
    claims = (
        f"CPUs={shape.cpus} Sockets={sockets} CoresPerSocket={shape.cpus // sockets} ThreadsPerCore=1 "
        "RealMemory=512000" + (f" Gres=gpu:{shape.gpus}" if shape.gpus else "")
    )
    lines.append(
        f"NodeName={_range(shape, 1, shape.nodes)} NodeHostname={host} NodeAddr=127.0.0.1 "
        f"Port={_ports(first_port, last_port)} {claims} State=UNKNOWN"
    )
    if shape.down_nodes:
        # never contacted: one port, the discard service's, serves for all of them
        lines.append(
            f"NodeName={_range(shape, shape.nodes + 1, shape.nodes + shape.down_nodes)} NodeHostname={host} "
            f"NodeAddr=127.0.0.1 Port=9 {claims} State=DOWN Reason=not_held_by_this_machine"
        )
    return lines


def _partitions(shape: Shape) -> list[str]:
    every = f"Nodes={_range(shape, 1, shape.nodes + shape.down_nodes)} DefaultTime=00:30:00 MaxTime=3-00:00:00 State=UP"
    return [
        f"PartitionName=production Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=20 {every}",
        f"PartitionName=high Default=NO PriorityTier=10 PreemptMode=OFF {every}",
    ]


def _range(shape: Shape, first: int, last: int) -> str:
    if first == last:
        return f"node{first:0{shape.width}d}"
    return f"node[{first:0{shape.width}d}-{last:0{shape.width}d}]"


def _ports(first: int, last: int) -> str:
    return str(first) if first == last else f"[{first}-{last}]"


def gres_conf(layout: Layout, shape: Shape) -> str:
    """`gres.conf`: one device file for each GPU that a node claims, the same files for all nodes."""
    if not shape.gpus:
        return ""
    files = f"{layout.short}/etc/gpu" + ("0" if shape.gpus == 1 else f"[0-{shape.gpus - 1}]")
    return f"NodeName={_range(shape, 1, shape.nodes + shape.down_nodes)} Name=gpu File={files}\n"


def slurmdbd_conf(layout: Layout, settings: Settings, *, user: str) -> str:
    """`slurmdbd.conf`; the database is reached by the socket that MYSQL_UNIX_PORT names."""
    return "\n".join(
        [
            "AuthType=auth/munge",
            f"AuthInfo=socket={layout.munge_socket}",
            "DbdHost=localhost",
            "DbdAddr=127.0.0.1",
            f"DbdPort={settings.database_port}",
            f"SlurmUser={user}",
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            f"StorageUser={user}",
            "StorageLoc=slurm_acct_db",
            f"LogFile={layout.log}/slurmdbd.log",
            f"PidFile={layout.short}/run/slurmdbd.pid",
            "DebugLevel=info",
            "",
        ]
    )


def mail_program(layout: Layout) -> str:
    """The program that Slurm takes for a mailer: it keeps a line for each mail and sends nothing."""
    return f'#!/bin/sh\necho "$@" >> {layout.log}/mail.log\n'


def accounting_commands(cluster: str, *, user: str) -> list[list[str]]:
    """What `sacctmgr --immediate` must be told once: the cluster, the QoS with limits, the account and its user."""
    return [
        ["add", "cluster", cluster],
        [
            *("add", "qos", "debug", "set", "Flags=DenyOnLimit", "MaxWall=00:30:00"),
            *("MaxTRESPerJob=node=2", "MaxSubmitJobsPerUser=1", "Priority=1000"),
        ],
        ["add", "account", "sandbox", f"Cluster={cluster}", "Description=sandbox", "Organization=sandbox"],
        [
            *("add", "user", user, "Account=sandbox", "DefaultAccount=sandbox", f"Cluster={cluster}"),
            *("QOS=normal,debug", "DefaultQOS=normal", "AdminLevel=Admin"),
        ],
    ]
