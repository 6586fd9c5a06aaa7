"""Is a file that torch.save wrote whole? Told from its last kilobytes, without torch or reading gigabytes.

torch.save writes a zip archive of stored (never compressed) records: the data first, then the central
directory, the zip64 end record, its locator, and the end record as the last 22 bytes of the file.

The standard library's zipfile is not used: it forgives what must not be forgiven here. It takes bytes in
front of the archive, it looks for an end record anywhere in the last 64 KiB (the bytes of a tensor in a torn
file can look like one), and it does not ask whether records lie side by side. Here every length has to agree
with every other and with the size of the file, so a file cut at any byte is refused.

What is not read: the contents of the records. A flipped bit inside a tensor is not seen, but by `damaged_records`,
which reads all of a file and holds each record against the CRC-32 that the central directory has of it.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pretrainctl.records.shards import digest_of

__all__ = ["Archive", "TornArchiveError", "UnknownFormatError", "damaged_records", "open_archive", "recorded_integer"]

_TAIL = 16 * 1024
_LARGEST_DIRECTORY = 256 * 1024 * 1024
_LARGEST_PICKLE = 64 * 1024 * 1024
_BLOCK = 4 * 1024 * 1024

_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_STORED = 0
_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


class TornArchiveError(Exception):
    """The file is not what torch.save leaves behind; the text says at which point."""


class UnknownFormatError(Exception):
    """Written by torch.save without its zip format: such a file does not show whether it is whole."""


@dataclass(frozen=True)
class _Record:
    name: bytes
    start: int
    length: int
    crc: int
    stored: bool


@dataclass(frozen=True)
class Archive:
    """A whole archive: its size in bytes, where its pickled object lies, the `name` it was written under (that of the
    file without its suffix; `archive` where torch did not know it), and `records.shards.digest_of` its records."""

    size: int
    pickle_start: int
    pickle_length: int
    name: str
    digest: int


def open_archive(path: Path) -> Archive:
    """Check that `path` is a whole torch.save archive.

    TornArchiveError: it is empty, cut, zeroed or inconsistent. UnknownFormatError: it is torch's old format.
    OSError passes through: a file that cannot be read is neither whole nor torn.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise TornArchiveError("not a regular file")
        return _check(handle, status.st_size)[0]
    finally:
        os.close(handle)


def damaged_records(path: Path, tell: Callable[[int], object] = lambda _: None) -> list[str]:
    """Names of the records whose bytes are not those that were written, by their CRC-32; all of the file is read.

    `tell` hears how many bytes were read since it was last called. A block of 4 MiB is in memory at a time. A record
    without a checksum (torch.serialization.set_crc32_options) has CRC-32 0 and cannot be judged. Errors are those of
    `open_archive`.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise TornArchiveError("not a regular file")
        _, records = _check(handle, status.st_size)
        damaged = []
        for record in records:
            at, end, crc = _local_header(handle, record, status.st_size), 0, 0
            end = at + record.length
            while at < end:
                block = _read(handle, at, min(_BLOCK, end - at))
                crc = zlib.crc32(block, crc)
                at += len(block)
                tell(len(block))
            if record.stored and crc != record.crc and record.crc:
                damaged.append(record.name.decode(errors="replace").partition("/")[2])
        return damaged
    finally:
        os.close(handle)


def recorded_integer(path: Path, archive: Archive, key: str) -> int | None:
    """The integer that the pickled dictionary of a whole archive holds under `key`, where it can be told.

    The pickle is searched, never executed: the key's own opcode must be followed by an integer's.
    """
    if archive.pickle_length > _LARGEST_PICKLE:
        return None
    handle = os.open(path, os.O_RDONLY)
    try:
        pickled = _read(handle, archive.pickle_start, archive.pickle_length)
    finally:
        os.close(handle)
    text = key.encode()
    found = set()
    for opcode in (b"X" + struct.pack("<I", len(text)), b"\x8c" + bytes([len(text)])):
        at = pickled.find(opcode + text)
        while at >= 0:
            found.add(_integer_after(pickled, at + len(opcode) + len(text)))
            at = pickled.find(opcode + text, at + 1)
    return found.pop() if len(found) == 1 else None


def _integer_after(pickled: bytes, at: int) -> int | None:
    at += {b"q": 2, b"r": 5, b"\x94": 1}.get(pickled[at : at + 1], 0)
    width = {b"K": 1, b"M": 2, b"J": 4}.get(pickled[at : at + 1])
    if width is None:
        return None
    return int.from_bytes(pickled[at + 1 : at + 1 + width], "little", signed=width == 4)


def _read(handle: int, start: int, length: int) -> bytes:
    parts = []
    while length > 0:
        part = os.pread(handle, length, start)
        if not part:
            raise TornArchiveError("the file became shorter while it was read")
        parts.append(part)
        start += len(part)
        length -= len(part)
    return b"".join(parts)


def _check(handle: int, size: int) -> tuple[Archive, list[_Record]]:
    if size == 0:
        raise TornArchiveError("0 bytes")
    head = _read(handle, 0, min(size, _LOCAL.size))
    if head.startswith(_LEGACY_MAGIC):
        raise UnknownFormatError("written without the zip format")
    tail = _read(handle, max(0, size - _TAIL), min(size, _TAIL))
    start, length, count = _end_record(tail, size)
    if size - start <= len(tail):
        directory = tail[len(tail) - (size - start) :][:length]
    elif length > _LARGEST_DIRECTORY:
        raise TornArchiveError(f"a central directory of {length} bytes is not plausible")
    else:
        directory = _read(handle, start, length)
    records = _records(directory, count, start)
    # The first and the largest record, at their own places: a file whose middle was never written to the
    # disk (a hole after a power loss) has a right end record and no local header there.
    for record in {records[0], max(records, key=lambda record: record.length)}:
        _local_header(handle, record, size)
    pickled = [record for record in records if record.name.endswith(b"/data.pkl")]
    if len(pickled) != 1:
        raise TornArchiveError("no data.pkl in it: not written by torch.save")
    name = pickled[0].name.decode(errors="replace").removesuffix("/data.pkl")
    digest = digest_of((record.name.decode(errors="replace"), record.length, record.crc) for record in records)
    return Archive(size, _local_header(handle, pickled[0], size), pickled[0].length, name, digest), records


def _end_record(tail: bytes, size: int) -> tuple[int, int, int]:
    """(start, length, number of records) of the central directory."""
    if len(tail) < _END.size:
        raise TornArchiveError(f"cut at {size} bytes, no end record")
    mark, disk, start_disk, here, count, length, start, comment = _END.unpack(tail[-_END.size :])
    if mark != b"PK\x05\x06" or comment != 0:
        raise TornArchiveError(f"cut or overwritten: no end record in its last bytes ({size} bytes)")
    if disk != 0 or start_disk != 0 or here != count:
        raise TornArchiveError("the end record contradicts itself")
    after = _END.size
    if tail[-after - _LOCATOR64.size :].startswith(b"PK\x06\x07"):
        short = (count, length, start)
        count, length, start = _end_record_64(tail, size)
        for value, wide, limit in zip(short, (count, length, start), (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF), strict=True):
            if value != min(wide, limit):
                raise TornArchiveError("the two end records contradict each other")
        after += _LOCATOR64.size + _END64.size
    if count == 0 or start + length != size - after:
        raise TornArchiveError(f"the central directory does not end where the end record lies ({size} bytes)")
    return start, length, count


def _end_record_64(tail: bytes, size: int) -> tuple[int, int, int]:
    end = len(tail) - _END.size
    _, disk, at, disks = _LOCATOR64.unpack(tail[end - _LOCATOR64.size : end])
    end -= _LOCATOR64.size
    if end < _END64.size:
        raise TornArchiveError("no room for the zip64 end record")
    mark, rest, _, _, this_disk, start_disk, here, count, length, start = _END64.unpack(tail[end - _END64.size : end])
    if (
        mark != b"PK\x06\x06"
        or rest != _END64.size - 12
        or (disk, this_disk, start_disk) != (0, 0, 0)
        or disks != 1
        or here != count
        or at != size - _END.size - _LOCATOR64.size - _END64.size
    ):
        raise TornArchiveError("the zip64 end record is missing or damaged")
    return count, length, start


def _records(directory: bytes, count: int, directory_start: int) -> list[_Record]:
    records = []
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > len(directory):
            raise TornArchiveError("the central directory is too short for its records")
        fields = _ENTRY.unpack_from(directory, at)
        mark, method, packed, plain = fields[0], fields[4], fields[8], fields[9]
        name_length, extra_length, comment_length, start = fields[10], fields[11], fields[12], fields[16]
        if mark != b"PK\x01\x02" or (method == _STORED and packed != plain):
            raise TornArchiveError("the central directory is damaged")
        at += _ENTRY.size
        name = directory[at : at + name_length]
        extra = directory[at + name_length : at + name_length + extra_length]
        at += name_length + extra_length + comment_length
        length, start = _wide(extra, plain, packed, start)
        records.append(_Record(name, start, length, fields[7], method == _STORED))
    if at != len(directory):
        raise TornArchiveError("the central directory is longer than its records")
    records.sort(key=lambda record: record.start)
    ends = [record.start for record in records[1:]] + [directory_start]
    for record, end in zip(records, ends, strict=True):
        if record.start + _LOCAL.size + len(record.name) + record.length > end:
            raise TornArchiveError("records of the archive overlap")
    if records[0].start != 0:
        raise TornArchiveError("the archive does not begin at the file's first byte")
    return records


def _wide(extra: bytes, plain: int, packed: int, start: int) -> tuple[int, int]:
    """(packed length, start) of a record, from its zip64 field where 32 bits did not hold them."""
    values = []
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            field = extra[at + 4 : at + 4 + length // 8 * 8]
            values = list(struct.unpack(f"<{len(field) // 8}Q", field))
        at += 4 + length
    try:
        if plain == 0xFFFFFFFF:
            values.pop(0)
        length = values.pop(0) if packed == 0xFFFFFFFF else packed
        return length, values.pop(0) if start == 0xFFFFFFFF else start
    except IndexError:
        raise TornArchiveError("a record's zip64 field is missing") from None


def _local_header(handle: int, record: _Record, size: int) -> int:
    """Where the bytes of a record start; its header must stand at its place and name it."""
    if record.start + _LOCAL.size + len(record.name) > size:
        raise TornArchiveError("a record lies outside the file")
    header = _read(handle, record.start, _LOCAL.size + len(record.name))
    fields = _LOCAL.unpack_from(header)
    if fields[0] != b"PK\x03\x04" or header[_LOCAL.size :] != record.name:
        raise TornArchiveError(f"nothing was written where {record.name.decode(errors='replace')} should be")
    start = record.start + _LOCAL.size + len(record.name) + int(fields[10])
    if start + record.length > size:
        raise TornArchiveError("a record lies outside the file")
    return start
