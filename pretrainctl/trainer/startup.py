"""Makes the start short: every second here is paid again at each restart after a failure.

Measured with torch 2.13 and DeepSpeed 0.19.8 on CPU: 7.1 s of CPU time a rank from the start of the process to its
first step without what is done here, 3.1 s with it; most of the rest is `import torch`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import types
import warnings
from typing import Any

__all__ = ["prepare"]


def prepare() -> None:
    """Import torch and deepspeed, without what a training like ours never uses.

    On a machine without CUDA this names the CPU accelerator, so that DeepSpeed does not search for others.
    """
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("LOCAL_SIZE", os.environ.get("LOCAL_WORLD_SIZE", "1"))
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    _spare_dynamo(torch)
    import deepspeed

    deepspeed.utils.logger.setLevel("WARNING")
    _spare_muon()
    _spare_extension(deepspeed)


class _DynamoStandIn(types.ModuleType):
    """Stands in for `torch._dynamo` until anything but the two calls below is asked of it."""

    @staticmethod
    def disable(fn: Any = None, *_arguments: object, **_options: object) -> Any:
        """Nothing is compiled, so nothing needs to be kept from the compiler."""
        return fn if fn is not None else lambda wrapped: wrapped

    @staticmethod
    def graph_break(*_arguments: object, **_options: object) -> None:
        """There is no graph to break."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
            with contextlib.suppress(AttributeError):
                delattr(sys.modules["torch"], "_dynamo")
        return getattr(importlib.import_module(self.__name__), name)


def _spare_dynamo(torch: Any) -> None:
    """Creating an optimizer imports torch's compiler (2 to 3 s) to shield itself from it; we compile nothing.

    Whoever needs the real module gets it: the stand-in imports it at the first other question.
    """
    if "torch._dynamo" not in sys.modules:
        stand_in = _DynamoStandIn("torch._dynamo")
        # init_process_group clears a cache of the compiler if it is loaded, and so would load it.
        stand_in.trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)  # type: ignore[attr-defined]
        sys.modules["torch._dynamo"] = stand_in
        torch._dynamo = stand_in  # noqa: SLF001  that module is the one we stand in for


def _spare_muon() -> None:
    """ZeRO asks whether its optimizer is Muon, whose module compiles three functions when imported (3 s)."""
    with contextlib.suppress(ImportError, AttributeError):
        compiler: Any = importlib.import_module("deepspeed.runtime.compiler")
        compile_them = compiler.compile
        compiler.compile = lambda: lambda function: function
        try:
            importlib.import_module("deepspeed.runtime.zero.muon.muon_optimizer")
        finally:
            compiler.compile = compile_them


def _spare_extension(deepspeed: Any) -> None:
    """On CPU DeepSpeed compiles a shared-memory all-reduce (a minute), which only its inference uses.

    Without it no compiler is needed, and a rank killed while compiling leaves no lock on which others wait.
    """
    known = getattr(deepspeed.ops, "__compatible_ops__", {})
    if "deepspeed_shm_comm" in known:
        known["deepspeed_shm_comm"] = False
