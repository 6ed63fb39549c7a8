"""Reading the zip container of a cache: fast, bounded, and without ever unpickling.

Belongs here: zip directories, inflating, npy headers, packing. Does not belong here: what a member means.

`numpy.load` spends most of a small file's time on per-member overhead and most of a large one's on inflating and on the
CRC. Here the directory is read once from the end of the file, members are inflated by isal where it is installed (zlib
otherwise), and a member that is not asked for is never touched. Nothing is allocated because a header says so: a member
must fit into the file's bound, inflating stops at the declared size, and the npy shape must agree with it.

Formats: APPNOTE.TXT 6.3.10 sections 4.3.7, 4.3.12, 4.3.16 (zip); numpy.lib.format (npy 1.0 to 3.0).
"""

from __future__ import annotations

import ast
import errno
import io
import os
import re
import stat
import struct
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dms_assets.contract import CacheUnreadableError

_InflateError: tuple[type[Exception], ...] = (zlib.error,)
try:  # the older module's environments may lack it; only speed depends on it
    from isal import isal_zlib

    _decompressobj: Callable[[int], Any] = isal_zlib.decompressobj
    _crc32: Callable[[Any], int] = isal_zlib.crc32
    _InflateError = (zlib.error, cast(type[Exception], isal_zlib.error))
except ImportError:
    _decompressobj, _crc32 = zlib.decompressobj, zlib.crc32

_END = struct.Struct("<4s4H2LH")
# Of these two headers only what is used: flags to sizes, the lengths of what follows, and the offset.
_CENTRAL = struct.Struct("<8x2H4x3L3H8xL")
_LOCAL = struct.Struct("<26x2H")
_TAIL = 1 << 14  # holds the directory of a cache and the small members before it
_WHOLE = 1 << 16  # up to here one read of the file costs less than several
_NPY_DICT = re.compile(
    rb"\{'descr': '([^']{2,16})', 'fortran_order': (False|True), 'shape': \(([0-9, ]{0,60})\), \} *\n"
)


# What one file may ask of memory, in bytes: as it lies on the disk, and as the sum of the members that are inflated.
MAX_BYTES: Final = 1 << 30


class Member(NamedTuple):
    """One entry of the zip directory; `name` as its bytes."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int


@dataclass(slots=True)
class Container:
    """An open cache file: its members by array name, and what is odd but readable about it (`oddities`).

    `bytes_read` counts what was asked of the file. The descriptor stays the caller's.
    """

    file: str
    fd: int
    size: int
    max_bytes: int
    members: dict[str, Member] = field(default_factory=dict)
    oddities: list[str] = field(default_factory=list)
    bytes_read: int = 0
    _inflated: int = 0
    _buffer: bytes = b""
    _buffer_at: int = 0

    def refuse(self, cause: str, member: str | None = None) -> CacheUnreadableError:
        """The error of this file for `raise`."""
        return CacheUnreadableError(self.file, member, cause)

    def _bytes(self, start: int, length: int, member: str | None) -> memoryview:
        at = start - self._buffer_at
        if at >= 0 and at + length <= len(self._buffer):
            return memoryview(self._buffer)[at : at + length]
        if start + length > self.size:
            raise self.refuse(f"lies beyond the end of the file ({start + length} of {self.size} bytes)", member)
        data = os.pread(self.fd, length, start)
        self.bytes_read += len(data)
        if len(data) != length:
            raise self.refuse("the file shrank while it was read", member)
        return memoryview(data)

    def _packed(self, member: Member, name: str, limit: int | None = None) -> memoryview:
        """The compressed bytes of a member, the first `limit` of them at most."""
        length = member.packed if limit is None else min(limit, member.packed)
        # The local header repeats the name and may carry an extra field (numpy's has one of 20 bytes).
        guess = min(_LOCAL.size + len(member.name) + 20 + length, self.size - member.offset)
        if guess < _LOCAL.size:
            raise self.refuse("its local header lies beyond the end of the file", name)
        head = self._bytes(member.offset, guess, name)
        if bytes(head[:4]) != b"PK\3\4":
            raise self.refuse("its local header is not where the directory says", name)
        name_length, extra_length = _LOCAL.unpack_from(head)
        if head[_LOCAL.size : _LOCAL.size + name_length] != member.name:
            raise self.refuse("its local header carries another name", name)
        start = _LOCAL.size + name_length + extra_length
        if start + length <= len(head):
            return head[start : start + length]
        return self._bytes(member.offset + start, length, name)

    def raw(self, name: str) -> bytes | memoryview:
        """A member's inflated bytes, its CRC checked.

        Raises:
            CacheUnreadableError: it is missing, damaged, too large, or compressed in another way than deflate.
        """
        member = self._member(name)
        self._inflated += member.size
        packed = self._packed(member, name)
        data: bytes | memoryview = packed if member.method == 0 else self._inflate(packed, member.size + 1, name)
        if len(data) != member.size:
            raise self.refuse(f"inflates to another size than its declared {member.size} bytes", name)
        if _crc32(data) != member.crc:
            raise self.refuse("its CRC is wrong: the bytes were damaged", name)
        return data

    def _member(self, name: str) -> Member:
        member = self.members.get(name)
        if member is None:
            raise self.refuse("is missing", name)
        if member.flags & 0x41:
            raise self.refuse("is encrypted", name)
        if member.method not in (0, 8):
            raise self.refuse(f"compression method {member.method}; write it with numpy.savez_compressed", name)
        if self._inflated + member.size > self.max_bytes:
            raise self.refuse(f"declares {member.size} bytes; all in all {self.max_bytes} are allowed", name)
        if member.method == 0 and member.packed != member.size:
            raise self.refuse("is stored, yet its two sizes differ", name)
        return member

    def _inflate(self, packed: memoryview, limit: int, name: str, *, whole: bool = True) -> bytes:
        inflater = _decompressobj(-15)
        try:
            data: bytes = inflater.decompress(packed, limit)
        except _InflateError as error:
            raise self.refuse(f"can't be inflated: {error}", name) from error
        if whole and not inflater.eof and len(data) < limit:
            raise self.refuse("its compressed data ends early", name)
        return data

    def array(self, name: str) -> NDArray[Any]:
        """A member as a read-only array over its inflated bytes (a copy only in Fortran order).

        Raises:
            CacheUnreadableError: as `raw`; or it is no npy array, needs unpickling, or its header claims another size.
        """
        data = self.raw(name)
        dtype, shape, fortran, start = self._npy_header(data, name)
        if prod(shape) * dtype.itemsize != len(data) - start:
            raise self.refuse(f"claims {dtype} {shape}, which its {len(data) - start} bytes are not", name)
        if dtype.itemsize == 0:
            return np.zeros(shape, dtype)
        flat = np.frombuffer(data, dtype, offset=start)
        return flat.reshape(shape, order="F") if fortran else flat.reshape(shape)

    def text(self, name: str) -> str | NDArray[Any]:
        """A member that holds one text, as str; whatever else it holds as `array` gives it, raising what that does."""
        data = self.raw(name)
        dtype, shape, _, start = self._npy_header(data, name)
        if dtype.kind != "U" or shape != () or dtype.byteorder == ">" or dtype.itemsize != len(data) - start:
            return self.array(name)
        try:
            return str(data[start:], "utf-32-le").rstrip("\0")
        except UnicodeDecodeError as error:
            raise self.refuse(f"is no text: {error}", name) from error

    def form(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """A member's dtype and shape from its npy header alone; the rest of it is not inflated, nor its CRC checked.

        Raises:
            CacheUnreadableError: as `array`; a claimed shape that the declared size can't hold is refused.
        """
        member = self._member(name)
        packed = self._packed(member, name, limit=1024)
        data = packed if member.method == 0 else self._inflate(packed, 1024, name, whole=False)
        dtype, shape, _, start = self._npy_header(data, name)
        if prod(shape) * dtype.itemsize != member.size - start:
            raise self.refuse(f"claims {dtype} {shape}, which its {member.size - start} bytes are not", name)
        return dtype, shape

    def _npy_header(self, data: bytes | memoryview, name: str) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
        if len(data) < 12 or bytes(data[:6]) != b"\x93NUMPY" or data[6] not in (1, 2, 3):
            raise self.refuse("is no npy array", name)
        start = 10 if data[6] == 1 else 12
        end = start + int.from_bytes(data[8:start], "little")
        text = bytes(data[start:end])
        if end > len(data):
            raise self.refuse("its npy header ends early", name)
        try:
            dtype, shape, fortran = _parsed_header(text, data[6])
        except (ValueError, TypeError, SyntaxError, KeyError, OverflowError, RecursionError) as error:
            raise self.refuse(f"its npy header can't be read: {error}", name) from error
        if dtype.hasobject:
            raise self.refuse("holds Python objects and would need unpickling, which is refused", name)
        return dtype, shape, fortran, end


@lru_cache(maxsize=4096)
def _parsed_header(text: bytes, version: int) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """dtype, shape and order of an npy header. The files of one store share most of theirs, so that few are parsed."""
    if match := _NPY_DICT.fullmatch(text):
        shape = tuple(int(n) for n in match[3].split(b",") if n.strip())
        return np.dtype(match[1].decode("ascii")), shape, match[2] == b"True"
    parsed = ast.literal_eval(text.decode("utf-8" if version == 3 else "latin1").strip())
    shape = parsed["shape"]
    if not (isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)):
        raise ValueError(f"the shape {shape!r:.80}")
    return np.dtype(parsed["descr"]), shape, parsed["fortran_order"] is True


def open_container(
    fd: int, file: str, max_bytes: int = MAX_BYTES, *, whole: bool = False, needed: Collection[str] = ()
) -> Container:
    """Read the zip directory of an open file.

    Args:
        fd: a descriptor open for reading; it stays the caller's and may be closed after the last member was read.
        file: what errors call the file.
        max_bytes: bound of what is read, and of what is inflated.
        whole: every member will be wanted: read the file in one go.
        needed: members that must be unique for the reader not to be misled.

    Raises:
        CacheUnreadableError: it is no zip file, is truncated, is too large, or repeats a needed member.
        OSError: the file can't be read, or is no regular one.
    """
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", file)
    size = status.st_size
    box = Container(file, fd, size, max_bytes)
    if size > max_bytes:
        raise box.refuse(f"has {size} bytes, more than the allowed {max_bytes}")
    length = size if whole or size <= _WHOLE else _TAIL
    box._buffer_at = size - length
    box._buffer = os.pread(fd, length, box._buffer_at)
    while whole and len(box._buffer) < length:  # one pread gives 2 GiB at most
        more = os.pread(fd, length - len(box._buffer), box._buffer_at + len(box._buffer))
        if not more:
            break
        box._buffer += more
    box.bytes_read = len(box._buffer)
    if len(box._buffer) != length:
        raise box.refuse("the file shrank while it was read")
    _read_directory(box, needed)
    return box


def _read_directory(box: Container, needed: Collection[str]) -> None:
    tail = box._buffer
    at = tail.rfind(b"PK\5\6")
    if at < 0 and len(tail) < box.size:  # a comment longer than the tail
        length = min(box.size, (1 << 16) + _END.size)
        tail = bytes(box._bytes(box.size - length, length, None))
        at = tail.rfind(b"PK\5\6")
    if at < 0 or at + _END.size > len(tail):
        raise box.refuse("is no zip file, or the end of one is missing: copied half, or cut")
    _, disk, directory_disk, _, entries, directory_size, directory_at, comment = _END.unpack_from(tail, at)
    end = box.size - len(tail) + at
    if disk or directory_disk or entries == 0xFFFF or directory_at == 0xFFFFFFFF:
        raise box.refuse("is a multi-part or oversized zip file")
    if end + _END.size + comment != box.size:
        box.oddities.append(f"{box.size - end - _END.size} bytes follow the end of the zip file")
    elif comment:
        box.oddities.append(f"a zip comment of {comment} bytes")
    if directory_at + directory_size != end:
        raise box.refuse("its zip directory is not where its end says: a part is missing, or something comes before it")
    directory = bytes(box._bytes(directory_at, directory_size, None))
    members, at = box.members, 0
    for _ in range(entries):
        if directory[at : at + 4] != b"PK\1\2" or at + _CENTRAL.size > directory_size:
            raise box.refuse("its zip directory is damaged")
        flags, method, crc, packed, size, name_length, extra, comment, offset = _CENTRAL.unpack_from(directory, at)
        at += _CENTRAL.size
        raw_name = directory[at : at + name_length]
        at += name_length + extra + comment
        key, is_array = _array_name(raw_name, flags & 0x800)
        if key in members:
            if not needed or key in needed:
                raise box.refuse("is there twice: two readers would see two caches", key)
            box.oddities.append(f"member {key[:80]} is there twice")
        if not is_array:
            box.oddities.append(f"member {key[:80]!r} is no .npy member")
        members[key] = Member(raw_name, flags, method, crc, packed, size, offset)
    if at != directory_size:
        box.oddities.append(f"{directory_size - at} bytes at the end of the zip directory belong to no member")


@lru_cache(maxsize=1024)
def _array_name(raw_name: bytes, is_utf8: int) -> tuple[str, bool]:
    """The array's name in a member's name, and whether the member is named as an array at all."""
    name = raw_name.decode("utf-8" if is_utf8 else "latin1", "replace")
    return name.removesuffix(".npy"), name.endswith(".npy")


def pack(arrays: Mapping[str, Any]) -> bytes:
    """The bytes of a compressed npz; the same arrays in the same order give the same bytes.

    Raises:
        ValueError: an array would need pickling.
    """
    plain = {name: np.asanyarray(value) for name, value in arrays.items()}
    for name, value in plain.items():
        if value.dtype.hasobject:
            raise ValueError(f"array {name} holds Python objects and would need pickling, which is refused")
    out = io.BytesIO()
    np.savez_compressed(out, **plain)
    return out.getvalue()
