"""What the index of a pair of token files says, held against the size of both: `PREFIX.idx` and `PREFIX.bin`.

The format stands in `trainer.indexed`. Of an index of any size only the header and the last sequence are read, so that
a launch may look at it too, without numpy.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from pretrainctl.errors import InputError, MissingError

__all__ = ["HEADER", "MAGIC", "TokenIndex", "bin_file", "idx_file", "read_token_index"]

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
_TOKEN_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2}
"""By the dtype codes that can hold tokens: whole numbers."""
_LAST_LENGTH = struct.Struct("<i")
_LAST_OFFSET = struct.Struct("<q")
_HINT = "make the token files again: python -m pretrainctl.trainer.tokenize --help"


@dataclass(frozen=True)
class TokenIndex:
    """`code` is the dtype code of the tokens; `tokens` and `documents` are how many there are."""

    code: int
    tokens: int
    documents: int


def bin_file(prefix: Path) -> Path:
    """`PREFIX.bin`; a dot in the prefix is kept."""
    return prefix.with_name(prefix.name + ".bin")


def idx_file(prefix: Path) -> Path:
    """`PREFIX.idx`; a dot in the prefix is kept."""
    return prefix.with_name(prefix.name + ".idx")


def read_token_index(prefix: Path) -> TokenIndex:
    """What the index says of the pair; MissingError if a file is not there, InputError if one is damaged."""
    idx, bin_path = idx_file(prefix), bin_file(prefix)
    try:
        idx_size, bin_size = _size(idx), _size(bin_path)
        with idx.open("rb") as file:
            header = file.read(HEADER.size)
            if len(header) < HEADER.size or not header.startswith(MAGIC):
                raise InputError(f"{idx} is no Megatron index (wrong magic bytes)", hint=_HINT)
            _, version, code, sequences, boundaries = HEADER.unpack(header)
            token_bytes = _TOKEN_BYTES.get(code, 0)
            if version != 1 or not token_bytes:
                raise InputError(f"{idx} has version {version} and dtype code {code}: no tokens to read", hint=_HINT)
            plain = HEADER.size + 12 * sequences + 8 * boundaries
            if idx_size not in (plain, plain + sequences):  # multimodal files end with one mode a sequence
                raise InputError(f"{idx} holds {idx_size} bytes where its header asks for {plain}", hint=_HINT)
            end = 0
            if sequences:
                file.seek(HEADER.size + 4 * (sequences - 1))
                (length,) = _LAST_LENGTH.unpack(file.read(_LAST_LENGTH.size))
                file.seek(HEADER.size + 4 * sequences + 8 * (sequences - 1))
                (offset,) = _LAST_OFFSET.unpack(file.read(_LAST_OFFSET.size))
                end = offset + length * token_bytes
        with bin_path.open("rb"):
            pass
    except OSError as error:
        raise MissingError(f"{error.filename or idx}: {error.strerror}", hint=_HINT) from error
    if bin_size != end or end % token_bytes:
        tokens = f"{end} bytes, in tokens of {token_bytes}"
        raise InputError(f"{bin_path} holds {bin_size} bytes where its index asks for {tokens}", hint=_HINT)
    return TokenIndex(code, end // token_bytes, boundaries - 1)


def _size(path: Path) -> int:
    size = path.stat().st_size
    if not path.is_file():
        raise InputError(f"{path} is no file", hint=_HINT)
    return size
