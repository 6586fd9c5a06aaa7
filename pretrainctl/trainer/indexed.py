"""Token files in Megatron's indexed format: `PREFIX.bin` holds tokens back to back, `PREFIX.idx` says where
documents begin. Little-endian, no padding:

    bytes     content of PREFIX.idx
    9         magic "MMIDIDX", two zero bytes
    8         version, 1
    1         dtype code (_DTYPES)
    8         S, number of sequences (here one a document)
    8         D, number of document boundaries (documents + 1)
    4 x S     length of each sequence in tokens, int32
    8 x S     byte offset of each sequence in PREFIX.bin, int64
    8 x D     index of each document's first sequence, int64; the first is 0, the last S

The codes are Megatron-LM's. gpt-neox swaps 6 and 7 (its 6 is float32, its 7 float64); tokens use neither.
"""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from types import TracebackType

import numpy as np

from pretrainctl.records.token_index import HEADER, MAGIC, bin_file, idx_file, read_token_index

__all__ = ["IndexedWriter", "TokenFile", "bin_file", "idx_file", "token_dtype"]

_DTYPES: dict[int, type[np.generic]] = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    6: np.float64,
    7: np.float32,
    8: np.uint16,
}


def token_dtype(vocab: int) -> np.dtype[np.generic]:
    """uint16 where the vocabulary fits, as Megatron decides it, else int32."""
    return np.dtype(np.uint16 if vocab < 65500 else np.int32)


class TokenFile:
    """The tokens of one `.bin/.idx` pair as one long memory-mapped row, in the order of the file."""

    def __init__(self, prefix: Path) -> None:
        """Open and check the pair; MissingError if it is not there, InputError if it is damaged."""
        self.prefix = prefix
        index = read_token_index(prefix)
        self.documents = index.documents
        dtype = np.dtype(_DTYPES[index.code])
        self.tokens: np.ndarray[tuple[int], np.dtype[np.generic]] = (
            np.memmap(bin_file(prefix), dtype=dtype, mode="r") if index.tokens else np.empty(0, dtype)
        )

    def __len__(self) -> int:
        """Number of tokens."""
        return len(self.tokens)


class IndexedWriter:
    """Writes a pair document by document, aside; the files get their names when the writer is left without
    an error, the index last, so that a killed program leaves no half file under the right name."""

    def __init__(self, prefix: Path, dtype: np.dtype[np.generic]) -> None:
        self._prefix = prefix
        self._dtype = dtype.newbyteorder("<")
        self._lengths = array("i")
        self._aside = {
            path: path.with_name(f".{path.name}.{os.getpid()}") for path in (bin_file(prefix), idx_file(prefix))
        }
        self._bin = self._aside[bin_file(prefix)].open("wb")

    def add(self, tokens: np.ndarray[tuple[int], np.dtype[np.generic]]) -> None:
        """Append one document."""
        self._bin.write(tokens.astype(self._dtype, copy=False).tobytes())
        self._lengths.append(len(tokens))

    def __enter__(self) -> IndexedWriter:  # noqa: PYI034  Self is not in Python 3.10
        """Begin; nothing to do."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish both files and rename them; after an error, remove what was written."""
        try:
            if kind is None:
                self._write_index()
                self._bin.flush()
                os.fsync(self._bin.fileno())
        finally:
            self._bin.close()
            if kind is not None:
                for aside in self._aside.values():
                    aside.unlink(missing_ok=True)
        if kind is None:
            for path, aside in self._aside.items():
                aside.replace(path)

    def _write_index(self) -> None:
        lengths = np.frombuffer(self._lengths, dtype=np.int32) if self._lengths else np.empty(0, np.int32)
        ends = np.cumsum(lengths, dtype=np.int64) * self._dtype.itemsize
        code = next(code for code, dtype in _DTYPES.items() if dtype == self._dtype.newbyteorder("=").type)
        documents = len(lengths)
        with self._aside[idx_file(self._prefix)].open("wb") as file:
            file.write(HEADER.pack(MAGIC, 1, code, documents, documents + 1))
            file.write(lengths.astype("<i4").tobytes())
            file.write((ends - lengths.astype(np.int64) * self._dtype.itemsize).astype("<i8").tobytes())
            file.write(np.arange(documents + 1, dtype="<i8").tobytes())
            file.flush()
            os.fsync(file.fileno())
