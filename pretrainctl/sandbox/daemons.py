"""Start the programs that make a Slurm: munged, mariadbd, slurmdbd, slurmctld and one slurmd a node."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from pretrainctl import process
from pretrainctl.errors import CommandError, MissingError, SlurmError
from pretrainctl.sandbox import configuration, processes
from pretrainctl.sandbox.layout import Layout, Settings
from pretrainctl.sandbox.processes import DAEMON_VARIABLE

__all__ = [
    "CONTROL_DAEMONS",
    "add_accounts",
    "client_environment",
    "ended",
    "has_ended",
    "start_daemon",
    "start_node",
    "user_name",
    "wait_for",
    "write_configuration",
]

CONTROL_DAEMONS = ("munged", "mariadbd", "slurmdbd", "slurmctld")
"""In the order in which they need each other."""

DAEMON_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")

_SYSTEM_TABLES = Path("/usr/share/mysql/mysql_system_tables.sql")
_DATABASE_OPTIONS = (
    "--no-defaults",
    "--skip-networking",
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-size=32M",
    "--innodb-lock-wait-timeout=900",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=nosync",
    "--innodb-data-file-path=ibdata1:4M:autoextend",
    "--innodb-temp-data-file-path=ibtmp1:4M:autoextend",
)
"""A small database that never waits for the disk: it keeps the history of pretended jobs."""


def user_name() -> str:
    """The name of the user that runs the daemons and the jobs."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError as error:
        raise MissingError(
            f"the user id {os.getuid()} has no name, and Slurm needs one", hint="run as a user with a name"
        ) from error


def client_environment(layout: Layout) -> dict[str, str]:
    """The environment for Slurm's commands: ours, without what an outer job or another Slurm left in it."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "SACCT_", "SQUEUE_", "SINFO_"))
        and key not in (DAEMON_VARIABLE, "MYSQL_UNIX_PORT")
    }
    # Debian keeps the daemons where an ordinary user's PATH does not look
    path = [*kept.get("PATH", os.defpath).split(os.pathsep), *DAEMON_PATH]
    kept["PATH"] = os.pathsep.join(dict.fromkeys(path))
    kept["SLURM_CONF"] = str(layout.slurm_conf)
    return kept


def write_configuration(layout: Layout, settings: Settings) -> None:
    """Write all of Slurm's files and the munge key."""
    user, host = user_name(), socket.gethostname().split(".")[0]
    directory = layout.slurm_conf.parent
    layout.slurm_conf.write_text(configuration.slurm_conf(layout, settings, user=user, host=host))
    (directory / "gres.conf").write_text(configuration.gres_conf(layout, settings.shape))
    # slurmd loads a cgroup plugin that nothing here uses. v1's asks nothing of the machine; with "autodetect"
    # slurmd ends where /sys/fs/cgroup is not mounted, or holds both versions (seen on 22.05)
    (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    mail = directory / "mail"
    mail.write_text(configuration.mail_program(layout))
    mail.chmod(0o700)
    secret = directory / "slurmdbd.conf"
    secret.touch(mode=0o600)
    secret.write_text(configuration.slurmdbd_conf(layout, settings, user=user))
    for number in range(settings.shape.gpus):
        device = directory / f"gpu{number}"
        if not device.is_symlink():
            device.symlink_to("/dev/null")
    if not layout.munge_key.exists():
        layout.munge_key.touch(mode=0o600)
        layout.munge_key.write_bytes(os.urandom(64))
    for name in settings.shape.names:
        layout.spool(name).mkdir(mode=0o700, exist_ok=True)


def start_daemon(layout: Layout, settings: Settings, name: str, *, say: Callable[[str], None]) -> None:
    """Start one of CONTROL_DAEMONS and wait until it answers; SlurmError with its last words if it does not."""
    if name == "munged":
        _start_munged(layout)
    elif name == "mariadbd":
        _start_mariadbd(layout, say)
    elif name == "slurmdbd":
        extra = {"MYSQL_UNIX_PORT": str(layout.database_socket)}
        _launch(layout, "slurmdbd", ["slurmdbd", "-D"], extra)
        _wait_for_daemon(layout, "slurmdbd", settings.database_port)
    else:
        # -i: a state file that a crash cut short is no reason to stay down
        _launch(layout, "slurmctld", ["slurmctld", "-D", "-i"])
        _wait_for_daemon(layout, "slurmctld", settings.controller_port)


def _start_munged(layout: Layout) -> None:
    run = layout.short / "run"
    _launch(
        layout,
        "munged",
        [
            *("munged", "--foreground", "--force", f"--socket={layout.munge_socket}"),
            *(f"--key-file={layout.munge_key}", f"--log-file={layout.log}/munged.log"),
            *(f"--pid-file={run}/munged.pid", f"--seed-file={run}/munged.seed"),
        ],
    )
    _wait_for_daemon(layout, "munged", layout.munge_socket)


def _start_mariadbd(layout: Layout, say: Callable[[str], None]) -> None:
    fresh = not (layout.database / "mysql").is_dir()
    if fresh:
        _make_database(layout)
    argv = [
        *("mariadbd", *_DATABASE_OPTIONS, f"--datadir={layout.database}", f"--socket={layout.database_socket}"),
        # its folder is closed to all but this user, so the socket needs no passwords
        *("--skip-grant-tables", f"--pid-file={layout.short}/run/mariadbd.pid", *_as_user()),
    ]
    _launch(layout, "mariadbd", argv)
    try:
        _wait_for_daemon(layout, "mariadbd", layout.database_socket)
    except SlurmError:
        if fresh:
            raise
        aside = layout.root / f"db.broken-{int(time.time())}"
        say(f"the history of jobs cannot be read; it is kept in {aside}, and a new one begins")
        layout.database.rename(aside)
        _make_database(layout)
        _launch(layout, "mariadbd", argv)
        _wait_for_daemon(layout, "mariadbd", layout.database_socket)


def _make_database(layout: Layout) -> None:
    """What mariadb-install-db does, without help texts and time zones: 0.6 s, and Debian's core package suffices."""
    if not _SYSTEM_TABLES.is_file():
        raise MissingError(f"{_SYSTEM_TABLES} is not here", hint="install Debian's package mariadb-server-core")
    shutil.rmtree(layout.database, ignore_errors=True)  # half made by a start that was interrupted, or not there
    layout.database.mkdir(mode=0o700)
    process.run(
        [*("mariadbd", *_DATABASE_OPTIONS, "--bootstrap", f"--datadir={layout.database}"), *_as_user()],
        timeout=60.0,
        env=client_environment(layout),
        stdin="CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n" + _SYSTEM_TABLES.read_text(),
    )


def _as_user() -> list[str]:
    return ["--user=root"] if os.getuid() == 0 else []


def start_node(layout: Layout, name: str) -> None:
    """Boot a node: start its slurmd and return at once; Slurm is told that all that ran there before is gone."""
    _launch(layout, name, ["slurmd", "-D", "-b", "-N", name])


def _launch(layout: Layout, name: str, argv: list[str], extra: Mapping[str, str] | None = None) -> None:
    env = {**client_environment(layout), **(extra or {}), DAEMON_VARIABLE: f"{name}@{layout.root}"}
    program = shutil.which(argv[0], path=env["PATH"])
    if program is None:
        raise MissingError(f"the program {argv[0]!r} is not here")
    with (layout.log / f"{name}.out").open("wb") as log:
        # setsid --fork makes it a child of init: it outlives us, and leaves no zombie to us
        child = process.start(
            ["setsid", "--fork", program, *argv[1:]], env=env, cwd=layout.short, stdout=log, stderr=log
        )
        if child.wait(10.0) != 0:
            raise CommandError(f"{argv[0]} could not be started", hint=f"see {log.name}")


def _listens(address: Path | int) -> bool:
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    with socket.socket(family) as probe, contextlib.suppress(OSError):
        probe.settimeout(1.0)
        probe.connect(str(address) if isinstance(address, Path) else ("127.0.0.1", address))
        return True
    return False


def _wait_for_daemon(layout: Layout, name: str, address: Path | int) -> None:
    mark = f"{name}@{layout.root}"

    def answers() -> bool:
        if _listens(address):
            return True
        if has_ended(mark):
            ended(layout, name)
        return False

    wait_for(answers, 30.0, name, layout.log / f"{name}.out")


def has_ended(mark: str) -> bool:
    """Whether no process bears this mark; one that is replacing itself by another program bears none for a moment."""
    for _ in range(3):
        if any(one.daemon == mark for one in processes.scan()):
            return False
        time.sleep(0.2)
    return True


def ended(layout: Layout, name: str) -> NoReturn:
    """The SlurmError that a daemon, or a node's slurmd, ended by itself, with its last words."""
    log = layout.log / f"{name}.out"
    raise SlurmError(f"{name} ended at once: {_last_words(log)}", hint=f"see {log}")


def wait_for(condition: Callable[[], bool], timeout: float, what: str, log: Path) -> None:
    """Wait until `condition` holds; SlurmError after `timeout` seconds, with the last words of `log`."""
    if not processes.wait_until(condition, timeout):
        raise SlurmError(f"no sign of {what} within {timeout:g} s: {_last_words(log)}", hint=f"see {log}")


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-5:]) or "nothing was said"


def add_accounts(layout: Layout, cluster: str) -> None:
    """Make the cluster, the QoS and the account known to the accounting, where they are not."""
    env = client_environment(layout)
    user = user_name()
    for command in configuration.accounting_commands(cluster, user=user):
        process.run(["sacctmgr", "--immediate", *command], timeout=30.0, env=env, check=False)
    known = process.run(
        ["sacctmgr", "-nP", "show", "assoc", f"user={user}", "format=account,qos"], timeout=30.0, env=env
    ).stdout
    if "sandbox|debug,normal" not in known:
        raise SlurmError(f"the accounting did not take the user: {known.strip() or 'no answer'}")
