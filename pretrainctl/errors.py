"""One exception tree; each error is one clear line, a hint, and a documented exit code.

PretrainctlError            1
|-- InputError              2   what the user typed or wrote cannot be used
|-- MissingError            3   a file, program, package or Slurm that is needed is not here
|-- CommandError            4   another program failed or did not answer in time
|   `-- SlurmError          5   Slurm refused, or could not be reached
|-- RunError                6   a run folder that is no run, exists already, or is in the wrong state
|   |-- LedgerError         7   an event or record that cannot be read
|   `-- SupersededError     6   another attempt has the run
|-- CheckpointError         8   no usable checkpoint where there must be one, or those of another run
|   `-- UnreadableError     8   the file system did not answer: whether there is one is unknown
|-- NotReachedError         9   the command worked, but the run has not reached its target
|-- ScriptError            10   the command worked, but the batch script it read has errors
|-- DrillError             11   the command worked, but some fault of the drill did not end as it must
`-- ProfileError           12   the command worked, but Slurm has not what the cluster profile names
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "CommandError",
    "DrillError",
    "InputError",
    "LedgerError",
    "MissingError",
    "NotReachedError",
    "PretrainctlError",
    "ProfileError",
    "RunError",
    "ScriptError",
    "SlurmError",
    "SupersededError",
    "UnreadableError",
]


class PretrainctlError(Exception):
    """The root: `str(error)` is the clear line, `hint` says what to do, `exit_code` is documented."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InputError(PretrainctlError):
    """A recipe, profile, flag or value that cannot be used; nothing was changed."""

    exit_code = 2


class MissingError(PretrainctlError):
    """A file, program, package or scheduler that is needed is not here."""

    exit_code = 3


class CommandError(PretrainctlError):
    """Another program failed or did not answer in time; `stderr` keeps all it said."""

    exit_code = 4

    def __init__(
        self, message: str, *, hint: str = "", status: int | None = None, stdout: str = "", stderr: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.stdout = stdout
        self.stderr = stderr


class SlurmError(CommandError):
    """Slurm refused a request, or could not be reached."""

    exit_code = 5


class RunError(PretrainctlError):
    """A folder that is no run, a run that exists already, or a run in the wrong state."""

    exit_code = 6


class LedgerError(RunError):
    """An event or a record of a run that cannot be read; `path` names the file."""

    exit_code = 7


class SupersededError(RunError):
    """What an attempt wanted to do, and may not any more: another one has the run."""


class CheckpointError(PretrainctlError):
    """No usable checkpoint where there must be one."""

    exit_code = 8


class UnreadableError(CheckpointError):
    """Checkpoints could not be read: whether a usable one is there is unknown, and nothing was changed."""


class NotReachedError(PretrainctlError):
    """The command did its work, but the run's own record does not say that the target was reached."""

    exit_code = 9


class ScriptError(PretrainctlError):
    """The command did its work, and found errors in a batch script."""

    exit_code = 10


class DrillError(PretrainctlError):
    """The drill was held, and some run did not end as it must."""

    exit_code = 11


class ProfileError(PretrainctlError):
    """The command did its work, and found that Slurm has not what the cluster profile names."""

    exit_code = 12
