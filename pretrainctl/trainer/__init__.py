"""The reference pretrainer: a Llama-style decoder on DeepSpeed, fit to be read in one sitting.

Read it in this order: `__main__` (a process), `loop` (a training), `engine` (DeepSpeed), `checkpoint` (save, load,
prune), `samples` (which tokens a step sees), `indexed` (the token files), `model`. `tokenize` makes token
files from text, `startup` makes the start short.
"""

from __future__ import annotations

__all__: list[str] = []
