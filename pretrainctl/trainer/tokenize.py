"""Text to token files: `python -m pretrainctl.trainer.tokenize --input FILE_OR_FOLDER ... --output PREFIX`.

The tokenizer is byte-level: token id = byte, and EOD (256) ends each document; one file is one document. The
manifest (counts, as JSON) goes to stdout, progress to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

try:
    import numpy as np
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    print("error: numpy is needed, and not installed\nhint: pip install -e '.[trainer]'", file=sys.stderr)
    sys.exit(3)

from pretrainctl.errors import InputError, MissingError, PretrainctlError
from pretrainctl.trainer.indexed import IndexedWriter, token_dtype

__all__ = ["EOD", "VOCAB", "encode", "find_texts", "main", "tokenize"]

EOD = 256
VOCAB = 257
_PROGRESS_INTERVAL = 2.0


def encode(text: bytes) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    """One document as token ids, with EOD at its end."""
    tokens = np.empty(len(text) + 1, dtype=token_dtype(VOCAB))
    tokens[:-1] = np.frombuffer(text, dtype=np.uint8)
    tokens[-1] = EOD
    return tokens


def find_texts(inputs: Sequence[Path], suffix: str, exclude: Sequence[str] = ()) -> Iterator[Path]:
    """Files named in `inputs`, and those under its folders that end with `suffix`, in sorted order.

    Folders whose name is in `exclude` are skipped.
    """
    for path in inputs:
        if path.is_dir():
            found = (file for file in path.rglob(f"*{suffix}") if file.is_file())
            yield from sorted(file for file in found if not set(exclude) & set(file.relative_to(path).parts[:-1]))
        elif path.is_file():
            yield path
        else:
            raise MissingError(f"{path} is no file and no folder", hint="name existing files or folders with --input")


def tokenize(inputs: Sequence[Path], output: Path, suffix: str = "", exclude: Sequence[str] = ()) -> dict[str, object]:
    """Write `output`.bin and .idx from all texts and return the manifest; empty files are left out."""
    texts = list(find_texts(inputs, suffix, exclude))
    documents = tokens = 0
    shown = time.monotonic()
    output.parent.mkdir(parents=True, exist_ok=True)
    with IndexedWriter(output, token_dtype(VOCAB)) as writer:
        for number, path in enumerate(texts):
            text = path.read_bytes()
            if text:
                writer.add(encode(text))
                documents, tokens = documents + 1, tokens + len(text) + 1
            if time.monotonic() - shown > _PROGRESS_INTERVAL:
                shown = time.monotonic()
                print(f"{number + 1} of {len(texts)} files, {tokens:,} tokens", file=sys.stderr)
        if documents == 0:
            raise InputError("no text was found", hint="check --input and --suffix")
    return {
        "prefix": str(output),
        "documents": documents,
        "tokens": tokens,
        "vocab": VOCAB,
        "eod": EOD,
        "dtype": token_dtype(VOCAB).name,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, tokenize, print the manifest."""
    parser = argparse.ArgumentParser(prog="pretrainctl.trainer.tokenize", description=__doc__.split("\n\n")[1])
    parser.add_argument("--input", nargs="+", type=Path, required=True, help="text files, or folders of them")
    parser.add_argument("--output", type=Path, required=True, help="PREFIX of the .bin and .idx to write")
    parser.add_argument("--suffix", default="", help="in folders, only files whose name ends so (.py)")
    parser.add_argument("--exclude", nargs="*", default=[], help="names of folders to skip")
    options = parser.parse_args(arguments)
    try:
        print(json.dumps(tokenize(options.input, options.output, options.suffix, options.exclude)))
    except PretrainctlError as error:
        print(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {error.filename or options.output}: {error.strerror}", file=sys.stderr)
        return MissingError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
