"""A training from its start or a checkpoint to its last step, or to a request."""

from __future__ import annotations

import hashlib
import math
import os
import time
from dataclasses import dataclass

import deepspeed
import torch

from pretrainctl.errors import InputError
from pretrainctl.records.contract import RESUME_TAG_VARIABLE, RUN_DIR_VARIABLE, End, EndKind, ExitCode
from pretrainctl.records.training import TrainingSettings
from pretrainctl.telemetry import Reporter, Requests, find_place, is_fenced, write_end
from pretrainctl.trainer import checkpoint
from pretrainctl.trainer.engine import Engine, Ranks, join, learning_rate
from pretrainctl.trainer.samples import Samples, micro_batches

__all__ = ["DIGEST_FILE", "DIGEST_VARIABLE", "Training"]

DIGEST_VARIABLE = "PRETRAINCTL_WEIGHTS_DIGEST"
"""1 = at the last step rank 0 writes the sha256 of all weights to `weights.sha256` beside `end.json`."""
DIGEST_FILE = "weights.sha256"

_EXIT_CODES: dict[EndKind, ExitCode] = {
    "reached": ExitCode.REACHED,
    "checkpointed": ExitCode.CHECKPOINTED,
    "diverged": ExitCode.DIVERGED,
    "fenced": ExitCode.FENCED,
}


@dataclass(frozen=True)
class _Agreement:
    """What all ranks know together after a step."""

    loss: float
    diverged: bool
    save: bool
    leave: bool


class Training:
    """One training in this process and its peers."""

    def __init__(self, settings: TrainingSettings, requests: Requests, reporter: Reporter) -> None:
        self.settings, self.requests, self.reporter = settings, requests, reporter
        _check(settings)
        if settings.threads:
            torch.set_num_threads(settings.threads)  # sums depend on it: fixed means bit-identical
        tag = _resume_tag(settings)
        self.samples = Samples(settings.data, settings.model.vocab)
        self.ranks: Ranks = join()
        state = checkpoint.find(settings, self.ranks, self.samples.identity, tag) if tag else None
        self.engine = Engine(settings, self.ranks)
        self.step = 0
        self.saved: str | None = None
        self.reason = "signal"
        if state is not None:
            self._resume(state)

    def run(self) -> ExitCode:
        """Train to the end or to a request, and say how it ended; a PretrainctlError is an end by error."""
        self.reporter.phase("step", self.step)
        before = time.monotonic()
        while self.step < self.settings.total_steps:
            agreed, norm = self._one_step()
            if agreed.diverged:
                return self._end("diverged", f"loss {agreed.loss}, gradient norm {norm} at step {self.step + 1}")
            self.step += 1
            now = time.monotonic()
            self._report(agreed.loss, norm, now - before)
            before = now
            due = self.step % self.settings.checkpoint.every_steps == 0 or self.step == self.settings.total_steps
            if (due or agreed.save or agreed.leave) and not self._save():
                return self._end("fenced", "a newer attempt or restart owns the run")
            if agreed.leave and self.step < self.settings.total_steps:
                return self._end("checkpointed", self.reason)
        self._digest()
        return self._end("reached", f"all {self.settings.total_steps} steps are done")

    def _resume(self, state: checkpoint.State) -> None:
        self.reporter.phase("load", 0)
        checkpoint.load(self.engine, self.settings, self.ranks, state)
        self.step = state.step
        if self.ranks.rank == 0:
            print(f"resumed from {checkpoint.tag_of(state.step)}", flush=True)

    def _one_step(self) -> tuple[_Agreement, float]:
        settings, ranks = self.settings, self.ranks
        rows = micro_batches(self.step, settings.global_batch, settings.micro_batch, ranks.rank, ranks.world_size)
        batches = [torch.from_numpy(self.samples.batch(first, settings.micro_batch)) for first in rows]
        loss, norm = self.engine.step(self.step + 1, batches)
        request = self.requests.poll()
        wants_leave = request is not None and request.action == "save_and_exit"
        if request is not None and wants_leave:
            self.reason = request.reason
        bad = not (math.isfinite(loss) and math.isfinite(norm))
        total, failed, save, leave = ranks.total(loss, bad, request is not None, wants_leave)
        return _Agreement(total / ranks.world_size, failed > 0, save > 0, leave > 0), norm

    def _save(self) -> bool:
        """Save with all ranks; False, and nothing written, if any rank finds that the run has a newer owner."""
        if self.ranks.total(is_fenced())[0]:
            return False
        self.reporter.phase("checkpoint", self.step)
        begin = time.monotonic()
        state = checkpoint.State.at(self.step, self.settings, self.ranks.world_size, self.samples.identity)
        self.saved = checkpoint.save(self.engine, self.settings, self.ranks, state)
        self.reporter.saved(self.saved, self.step, time.monotonic() - begin)
        checkpoint.prune(self.settings, self.ranks, self.step)
        self.reporter.phase("step", self.step)
        return True

    def _end(self, kind: EndKind, reason: str) -> ExitCode:
        tokens = self.step * self.settings.global_batch * self.settings.data.sequence_length
        self.ranks.barrier()
        self.reporter.phase("end", self.step)
        write_end(End(kind, self.step, tokens, self.saved, reason, time.time()))
        if self.ranks.rank == 0:
            print(f"{kind} at step {self.step}: {reason}", flush=True)
        self.ranks.barrier()  # nobody leaves with a status that ends its peers before the record is written
        return _EXIT_CODES[kind]

    def _report(self, loss: float, norm: float, seconds: float) -> None:
        settings, step = self.settings, self.step
        per_step = settings.global_batch * settings.data.sequence_length
        rate = learning_rate(settings, step)
        self.reporter.step(step, step * per_step, loss, norm, rate, seconds)
        if self.ranks.rank == 0 and (step % settings.log_every == 0 or step == settings.total_steps):
            print(
                f"step {step}/{settings.total_steps} | loss {loss:.4f} | grad norm {norm:.2f} | lr {rate:.2e}"
                f" | {per_step / seconds:.0f} tok/s | {seconds:.2f} s",
                flush=True,
            )

    def _digest(self) -> None:
        if os.environ.get(DIGEST_VARIABLE) != "1":
            return
        digest = hashlib.sha256()
        for name, parameter in self.engine.deepspeed.module.named_parameters():
            with deepspeed.zero.GatheredParameters([parameter], enabled=self.settings.zero_stage == 3):
                digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
                digest.update(parameter.detach().float().cpu().numpy().tobytes())
        place = find_place()
        if self.ranks.rank == 0:
            print(f"weights sha256 {digest.hexdigest()}", flush=True)
            if place is not None:
                (place.directory / DIGEST_FILE).write_text(digest.hexdigest() + "\n", encoding="ascii")


def _check(settings: TrainingSettings) -> None:
    """InputError where numbers of the settings do not fit together."""
    model = settings.model
    problems = {
        f"heads {model.heads} do not share hidden {model.hidden} evenly": model.hidden % (2 * model.heads),
        f"kv_heads {model.kv_heads} do not divide heads {model.heads}": model.heads % model.kv_heads,
        f"sequence_length {settings.data.sequence_length} is above the model's context {model.context}": (
            settings.data.sequence_length > model.context
        ),
        f"betas {list(settings.optimizer.betas)} are not two": len(settings.optimizer.betas) != 2,
        "every_steps, log_every, micro_batch and total_steps must be 1 or more": (
            min(settings.checkpoint.every_steps, settings.log_every, settings.micro_batch, settings.total_steps) < 1
        ),
    }
    for problem, there in problems.items():
        if there:
            raise InputError(problem)


def _resume_tag(settings: TrainingSettings) -> str:
    """The tag to resume from, empty for a fresh start; CheckpointError where that would ignore checkpoints."""
    tag = os.environ.get(RESUME_TAG_VARIABLE)
    if not tag and (tag is None or not os.environ.get(RUN_DIR_VARIABLE)):
        checkpoint.refuse_silent_restart(settings.checkpoint.directory)
    return tag or ""
