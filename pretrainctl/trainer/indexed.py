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
import struct
from array import array
from pathlib import Path
from types import TracebackType

import numpy as np

from pretrainctl.errors import InputError, MissingError

__all__ = ["IndexedWriter", "TokenFile", "bin_file", "idx_file", "token_dtype"]

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
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
_HINT = "make the token files again: python -m pretrainctl.trainer.tokenize --help"


def bin_file(prefix: Path) -> Path:
    """`PREFIX.bin`; a dot in the prefix is kept."""
    return prefix.with_name(prefix.name + ".bin")


def idx_file(prefix: Path) -> Path:
    """`PREFIX.idx`; a dot in the prefix is kept."""
    return prefix.with_name(prefix.name + ".idx")


def token_dtype(vocab: int) -> np.dtype[np.generic]:
    """uint16 where the vocabulary fits, as Megatron decides it, else int32."""
    return np.dtype(np.uint16 if vocab < 65500 else np.int32)


class TokenFile:
    """The tokens of one `.bin/.idx` pair as one long memory-mapped row, in the order of the file."""

    def __init__(self, prefix: Path) -> None:
        """Open and check the pair; MissingError if it is not there, InputError if it is damaged."""
        self.prefix = prefix
        idx, bin_path = idx_file(prefix), bin_file(prefix)
        try:
            idx_size, bin_size = idx.stat().st_size, bin_path.stat().st_size
            with idx.open("rb") as file:
                header = file.read(_HEADER.size)
        except OSError as error:
            raise MissingError(f"{error.filename}: {error.strerror}", hint=_HINT) from error
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            raise InputError(f"{idx} is no Megatron index (wrong magic bytes)", hint=_HINT)
        _, version, code, sequences, boundaries = _HEADER.unpack(header)
        dtype = np.dtype(_DTYPES.get(code, np.float64))
        if version != 1 or dtype.kind == "f":
            raise InputError(f"{idx} has version {version} and dtype code {code}: no tokens to read", hint=_HINT)
        plain = _HEADER.size + 12 * sequences + 8 * boundaries
        if idx_size not in (plain, plain + sequences):  # multimodal files end with one mode a sequence
            raise InputError(f"{idx} holds {idx_size} bytes where its header asks for {plain}", hint=_HINT)
        self.documents = boundaries - 1
        end = self._end_of_last(idx, sequences, dtype.itemsize)
        if bin_size != end:
            raise InputError(f"{bin_path} holds {bin_size} bytes where its index asks for {end}", hint=_HINT)
        self.tokens: np.ndarray[tuple[int], np.dtype[np.generic]] = (
            np.memmap(bin_path, dtype=dtype, mode="r") if end else np.empty(0, dtype)
        )

    def __len__(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    @staticmethod
    def _end_of_last(idx: Path, sequences: int, itemsize: int) -> int:
        if sequences == 0:
            return 0
        lengths = np.memmap(idx, "<i4", "r", _HEADER.size, (sequences,))
        offsets = np.memmap(idx, "<i8", "r", _HEADER.size + 4 * sequences, (sequences,))
        return int(offsets[-1]) + int(lengths[-1]) * itemsize


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
            file.write(_HEADER.pack(_MAGIC, 1, code, documents, documents + 1))
            file.write(lengths.astype("<i4").tobytes())
            file.write((ends - lengths.astype(np.int64) * self._dtype.itemsize).astype("<i8").tobytes())
            file.write(np.arange(documents + 1, dtype="<i8").tobytes())
            file.flush()
            os.fsync(file.fileno())
