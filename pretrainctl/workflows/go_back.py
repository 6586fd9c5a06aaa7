"""Going back: a person lets a run go on from an older checkpoint than its newest, and what is newer is set aside."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pretrainctl.errors import CheckpointError, InputError
from pretrainctl.frameworks.checkpoint_gate import as_recorded, stamp_of
from pretrainctl.frameworks.quarantine import QUARANTINE, set_aside
from pretrainctl.frameworks.zero_checkpoint import inspect, tags
from pretrainctl.records.launch import CheckpointLayout
from pretrainctl.records.run import CheckpointStatus, RefusedTag
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows.loading import refused_tags
from pretrainctl.workflows.look_back import expected_checkpoint, steps_of

__all__ = ["WayBack", "find_way_back", "step_of"]

_TAG = re.compile(r"global_step(0|[1-9][0-9]{0,17})|([0-9]{1,18})")
_NAMED = 5


def step_of(tag: str) -> int | None:
    """The step of a checkpoint by its tag, None where the tag names none."""
    found = _TAG.fullmatch(tag)
    return int(found[1] or found[2]) if found is not None else None


@dataclass(frozen=True)
class WayBack:
    """To `tag` of `step`, over the tags that are `newer`, newest first; `from_step` is the newest that was done."""

    directory: Path
    tag: str
    step: int
    newer: tuple[str, ...]
    from_step: int

    @property
    def cost(self) -> str:
        """What it costs, in words."""
        steps = f"from step {self.from_step} back to {self.tag}: {self._again}"
        if not self.newer:
            return steps
        verb = "is" if len(self.newer) == 1 else "are"
        return f"{steps}, and {_list(self.newer)} {verb} set aside in {self.directory / QUARANTINE}"

    @property
    def _again(self) -> str:
        count = self.from_step - self.step
        return "1 step is done again" if count == 1 else f"{count} steps are done again"

    def take(self, run: RunFolder) -> None:
        """Record it, so that no gate takes one of the newer tags, and move these into quarantine. No job may be queued.

        CheckpointError where one cannot be moved: the gate moves what is left. Newest first: what is left after an
        interruption is a line of checkpoints without a gap.
        """
        reason = f"a person went back to {self.tag}"
        said = f"{reason} from step {self.from_step}: {self._again}"
        behind = [RefusedTag(tag, reason, stamp_of(self.directory, tag), "person") for tag in self.newer]
        data = {"back_to": self.tag, "back_to_step": self.step, "from_step": self.from_step, "behind": behind}
        ledger.append(run.path, "went_back", said, data=data)
        for tag in self.newer:
            set_aside(self.directory, tag, f"went-back-to-{self.tag}")


def find_way_back(run: RunFolder, layout: CheckpointLayout, wanted: str) -> WayBack | None:
    """The way back to the tag, or step, that is `wanted`; None where nothing is newer, nor
    was saved after it.

    InputError where it is not there; CheckpointError where nothing can go on from it in this layout.
    """
    directory, name = layout.directory, run.record.name
    match = _TAG.fullmatch(wanted.strip())
    names = tags(directory)
    tag = f"global_step{int(match[1] or match[2])}" if match else wanted
    listed = f"there are {_list(names)}" if names else "there is none at all"
    found = inspect(directory, tag, layout, older=names[names.index(tag) + 1 :]) if tag in names else None
    if found is None:
        aside = _aside(directory, tag)
        raise InputError(
            f"the run {name!r} has no checkpoint {tag}" + ("" if match else ", and that is no tag and no step"),
            hint=f"it lies aside as {aside}: move it back to {directory / tag} first" if aside else listed,
        )
    refused = refused_tags(ledger.read_events(run.path))
    # What a person went back from before, and was not moved yet, is as good as it was.
    found = as_recorded(directory, found, {key: one for key, one in refused.items() if one.because != "person"})
    if found.other_layout:
        raise CheckpointError(
            f"{directory / tag} was {found.other_layout}: this run cannot go on from it as it is",
            hint="go back to one of the layout that the run has now, or `--set` the one that saved it",
        )
    if found.status is not CheckpointStatus.COMPLETE:
        raise CheckpointError(
            f"{directory / tag} is {found.status.value} ({found.reason}): nothing can go on from it",
            hint=f"`pretrainctl checkpoints {name}` lists those that are complete",
        )
    newer = tuple(names[: names.index(tag)])
    # One that the run saved and that is gone, or lies aside, is missed too: a start would count as a fall-back.
    newest = max(expected_checkpoint(run)["last_saved_step"] or 0, int(names[0].removeprefix("global_step")))
    if newest == found.step:
        return None
    return WayBack(directory, tag, found.step, newer, max(newest, _newest_step(run)))


def _newest_step(run: RunFolder) -> int:
    """The last step of the newest start that did one, 0 for none."""
    lasts = (steps_of(path)[1] for _, _, path in reversed(list(run.restart_dirs())))
    return next((last for last in lasts if last is not None), 0)


def _aside(directory: Path, tag: str) -> Path | None:
    """Where a tag of this name was set aside, the newest such place, None for nowhere."""
    try:
        found = [path for path in (directory / QUARANTINE).iterdir() if path.name.startswith(f"{tag}.")]
        return max(found, key=lambda path: path.stat().st_ctime, default=None)
    except OSError:
        return None


def _list(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
