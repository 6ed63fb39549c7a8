"""Which snippets a tar of the raw dataset holds, from its member headers alone.

Belongs here: the tar format as found in the wild, and the pair of a member's name. Does not belong here: which tars
belong to a store (`raw_paths`), joins (`coverage`).

A plain tar costs one read of 512 bytes per member; payloads are stepped over. Formats: POSIX.1-1988 ustar with prefix,
POSIX.1-2001 PAX headers, GNU long names, GNU base-256 numbers and GNU sparse files. Compressed content (gzip, bzip2,
xz, zstd), whatever the file is called, has to be decompressed wholly and is walked as a stream.
"""

from __future__ import annotations

import bz2
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import zstandard
from isal import igzip, isal_zlib

from vin_assets.vin_store.format import compact, scene_of_raw_key

Pair = tuple[str, str]
BLOCK = 512
_ZERO = bytes(BLOCK)
_REGULAR = b"0\x007S"
_NO_PAYLOAD = b"123456"
_MAX_EXTENSION = 1 << 20  # bytes of a long name or a PAX header; no path is near that
_MAX_TAIL = 1 << 20  # bytes of zeros after the end of the archive that record padding explains
_STREAM_ERRORS: tuple[type[Exception], ...] = (  # type: ignore[assignment]  # isal's stub has its class as an instance
    EOFError,
    OSError,
    isal_zlib.IsalError,
    lzma.LZMAError,
    zstandard.ZstdError,
)
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)


@dataclass(frozen=True, slots=True)
class TarScan:
    """The pairs of one tar and, where it is damaged, why. The pairs read before the damage count."""

    pairs: frozenset[Pair]
    damage: str | None = None


class TarDamagedError(Exception):
    """A tar that ends too early or holds something else; the text says what and at which byte."""


def pair_of(name: str) -> Pair | None:
    """The (scene, snippet) that a member's name stands for, None when for nothing.

    The base name up to its first "." is the token; an empty or dot-leading one counts for nothing. A token that begins
    with a raw ATEK key gives its scene, whatever the folder; otherwise the scene is the parent folder.
    """
    folder, _, base = name.rpartition("/")
    token = base.partition(".")[0]
    if not token:
        return None
    scene = scene_of_raw_key(token)
    if scene is None:
        scene = folder.rpartition("/")[2]
        if scene in ("", ".", ".."):
            return None
    return scene, compact(token)


def scan_tar(file: BinaryIO) -> TarScan:
    """The pairs in an open tar; never raises for what the file holds."""
    pairs: set[Pair] = set()
    last = None
    try:
        for name in _member_names(file):
            # The members of a snippet lie together and differ after the first "." of their base name.
            stem = name[: name.find(".", name.rfind("/") + 1)] if "." in name else name
            if stem != last:
                last = stem
                pair = pair_of(name)
                if pair is not None:
                    pairs.add(pair)
    except TarDamagedError as error:
        return TarScan(frozenset(pairs), str(error))
    return TarScan(frozenset(pairs))


def _member_names(file: BinaryIO) -> Iterator[str]:
    fd = file.fileno()
    size = os.fstat(fd).st_size
    head = os.pread(fd, BLOCK, 0)
    kind = next((name for magic, name in _MAGIC if head.startswith(magic)), None)
    if kind is None or _checksum_holds(head):
        yield from _walk(_Plain(fd, size))
        return
    try:
        with _decompressed(file, kind) as stream:
            yield from _walk(_Forward(stream))
    except _STREAM_ERRORS as error:
        raise TarDamagedError(f"{kind} content is damaged: {error or type(error).__name__}") from error


def _decompressed(file: BinaryIO, kind: str) -> BinaryIO | io.BufferedIOBase:
    file.seek(0)
    if kind == "gzip":
        return igzip.IGzipFile(fileobj=file)  # type: ignore[no-untyped-call]
    if kind == "bzip2":
        return bz2.BZ2File(file)
    if kind == "xz":
        return lzma.LZMAFile(file)
    return zstandard.ZstdDecompressor().stream_reader(file, closefd=False, read_across_frames=True)


class _Plain:
    """Reads of a file; `size` is its length."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self.size = fd, size

    def read_at(self, offset: int, length: int) -> bytes:
        return os.pread(self._fd, length, offset)


class _Forward:
    """Reads at ascending offsets of a stream that can't seek; `size` is None until its end was met."""

    def __init__(self, stream: BinaryIO | io.BufferedIOBase) -> None:
        self._stream, self._position = stream, 0
        self.size: int | None = None

    def read_at(self, offset: int, length: int) -> bytes:
        while self._position < offset:
            skipped = len(self._stream.read(min(1 << 20, offset - self._position)))
            if not skipped:
                self.size = self._position
                return b""
            self._position += skipped
        parts = b""
        while len(parts) < length and (part := self._stream.read(length - len(parts))):
            parts += part
        self._position += len(parts)
        return parts


def _checksum_holds(header: bytes) -> bool:
    """Whether a header's checksum is right: the sum of its bytes with the checksum's own taken as blanks.

    Adler-32 holds 1 + the sum modulo 65521 in its low half, at a twentieth of the cost of adding in Python.
    """
    try:
        wanted = int(header[148:156].replace(b"\0", b" "), 8)
    except ValueError:
        return False
    if len(header) < BLOCK or wanted < 0:
        return False
    without = header[:148] + b"        " + header[156:]
    if ((zlib.adler32(without) & 0xFFFF) - 1 - wanted) % 65521 == 0:
        return True
    return sum(without) - 256 * sum(byte > 127 for byte in without) == wanted  # some old writers added signed bytes


def _number(field: bytes, offset: int) -> int:
    """A size field: octal digits, or base-256 beyond 8 GiB."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    try:
        if field[11] == 0:  # eleven digits and a NUL, as nearly every writer makes it
            return int(field[:11], 8)
    except ValueError:
        pass
    try:
        return int(field.split(b"\0", 1)[0].strip() or b"0", 8)
    except ValueError:
        raise TarDamagedError(f"the header at byte {offset} holds no size") from None


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def _pax(payload: bytes, offset: int) -> dict[str, str]:
    """The records of a PAX header: `<length> <key>=<value>\\n`, the length counting all of it."""
    records: dict[str, str] = {}
    position = 0
    while position < len(payload) and payload[position]:
        blank = payload.find(b" ", position, position + 20)
        try:
            length = int(payload[position:blank])
        except ValueError:
            length = 0
        if blank < 0 or length < 5 or position + length > len(payload):
            raise TarDamagedError(f"the PAX header at byte {offset} is broken")
        key, _, value = payload[blank + 1 : position + length - 1].partition(b"=")
        records[_text(key)] = value.decode("utf-8", "backslashreplace")
        position += length
    return records


def _walk(source: _Plain | _Forward) -> Iterator[str]:
    """The names of the regular members.

    Raises:
        TarDamagedError: the archive ends too early or isn't one.
    """
    read_at = source.read_at
    offset = 0
    long_name: str | None = None
    extended: dict[str, str] = {}
    everywhere: dict[str, str] = {}
    name = ""
    while True:
        header = read_at(offset, BLOCK)
        if len(header) < BLOCK:
            if offset == 0:
                raise TarDamagedError("not a tar: shorter than one header")
            if source.size is not None and source.size < offset:
                raise TarDamagedError(f"cut inside the payload of {name!r}")
            what = "inside a header" if header else "at a member's end"
            raise TarDamagedError(f"cut {what} at byte {offset + len(header)}: the end-of-archive blocks are missing")
        if header == _ZERO:
            _judge_end(offset, source.size)
            return
        if not _checksum_holds(header):
            what = "not a tar" if offset == 0 else "damaged"
            raise TarDamagedError(f"{what}: no valid header at byte {offset}")
        kind = header[156:157]
        length = _number(header[124:136], offset)
        if kind in b"xgLK":
            if length > _MAX_EXTENSION:
                raise TarDamagedError(f"the extended header at byte {offset} claims {length} bytes")
            payload = read_at(offset + BLOCK, length)
            if len(payload) < length:
                raise TarDamagedError(f"cut inside the extended header at byte {offset}")
            if kind == b"L":
                long_name = _text(payload)
            elif kind == b"x":
                extended = _pax(payload, offset)
            elif kind == b"g":
                everywhere |= _pax(payload, offset)
            offset += BLOCK + -(-length // BLOCK) * BLOCK
            continue
        name = long_name or _name(header)
        if extended or everywhere:
            records = everywhere | extended
            name = records.get("GNU.sparse.name") or records.get("path") or name
            if records.get("size", "").isdecimal():
                length = int(records["size"])
        start = offset + BLOCK
        if kind == b"S":
            start = _after_sparse_map(read_at, header, start)
        offset = start if kind in _NO_PAYLOAD else start + -(-length // BLOCK) * BLOCK
        if kind not in _NO_PAYLOAD and source.size is not None and start + length > source.size:
            if kind in _REGULAR:
                yield name
            raise TarDamagedError(f"cut inside the payload of {name!r}: {start + length} bytes are needed")
        if kind in _REGULAR and not name.endswith("/"):
            yield name
        long_name, extended = None, {}


def _name(header: bytes) -> str:
    end = header.find(b"\0", 0, 100)
    name = header[: end if end >= 0 else 100].decode("utf-8", "backslashreplace")
    if header[257:263] == b"ustar\0" and header[345]:
        return f"{_text(header[345:500])}/{name}"
    return name


def _after_sparse_map(read_at: Callable[[int, int], bytes], header: bytes, offset: int) -> int:
    """Where the payload of a GNU sparse file begins: after the blocks that continue its map."""
    more = header[482]
    while more:
        block = read_at(offset, BLOCK)
        if len(block) < BLOCK:
            raise TarDamagedError(f"cut inside the sparse map at byte {offset}")
        more = block[504]
        offset += BLOCK
    return offset


def _judge_end(offset: int, size: int | None) -> None:
    if offset == 0:
        raise TarDamagedError("no members: the file is zero-filled or an empty archive")
    if size is not None and size - offset > _MAX_TAIL:
        raise TarDamagedError(
            f"{size - offset} bytes follow the end of the archive at byte {offset}: a zero-filled rest, or another file"
        )
