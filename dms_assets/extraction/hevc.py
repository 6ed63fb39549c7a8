"""What the bytes of an HEVC stream say about its frames: access units, parameter sets, display order.

Belongs here: reading NAL units, parameter sets and slice headers (ITU-T H.265, clauses 7.3.1 to 7.3.6 and 8.3.1), and
deciding how far the frame numbers of a stream can be trusted. Does not belong here: decoding (`video`), containers.

A raw stream has no timestamps. Its frame numbers follow from the picture order counts of its slice headers, which run
without a gap from one intra-only start of a coded video sequence to the next. Where they don't, units were lost, and
nobody can say how many: a gap looks the same when it spans another such start. Hence only the part before the first
irregularity is trusted. A loss of exactly whole groups leaves no trace in a raw stream; in a container time tells.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

VPS, SPS, PPS, END_OF_SEQUENCE, END_OF_BITSTREAM = 32, 33, 34, 36, 37
_LEADING_IN_UNIT = frozenset({VPS, SPS, PPS, 35, 39, 41, 42, 43, 44, *range(48, 56)})
_IDR = frozenset({19, 20})
_CRA = 21
_BLA = frozenset({16, 17, 18})
_HEADER_BYTES = 64  # more than any slice header's beginning, up to its picture order count, takes
_CHUNK = 8 << 20
_MAX_PARAMETER_SET = 1 << 16


class HevcError(ValueError):
    """Bytes that are no readable HEVC stream."""


@dataclass(slots=True)
class Picture:
    """One access unit's first slice: NAL type, temporal id, and the low bits of its picture order count."""

    nal_type: int
    temporal_id: int
    poc_lsb: int
    lsb_bits: int

    @property
    def starts_sequence(self) -> bool:
        """Whether picture order counts start anew here."""
        return self.nal_type in _IDR

    @property
    def random_access(self) -> bool:
        """Whether decoding can start here."""
        return self.nal_type in _IDR or self.nal_type == _CRA

    @property
    def anchors_poc(self) -> bool:
        """Whether the next picture's order count is derived from this one (clause 8.3.1)."""
        leading = 6 <= self.nal_type <= 9
        not_referenced = self.nal_type < 16 and self.nal_type % 2 == 0
        return self.temporal_id == 0 and not leading and not not_referenced


@dataclass(frozen=True, slots=True)
class Order:
    """The display index of each access unit, in decoding order, for the trusted units at the beginning.

    `display` (n,) i64, `random_access` (n,) bool; `complete` says whether that is the whole stream, `reason` why not.
    """

    display: NDArray[np.int64]
    random_access: NDArray[np.bool_]
    complete: bool
    reason: str


@dataclass(frozen=True, slots=True)
class RawIndex:
    """A raw stream's access units: byte offsets (n + 1,) i64, their order, and the parameter sets in front."""

    offsets: NDArray[np.int64]
    order: Order
    parameter_sets: bytes


class _Bits:
    """Bits of a NAL unit's payload, most significant first, without emulation prevention bytes."""

    def __init__(self, payload: bytes) -> None:
        payload = payload.replace(b"\0\0\3", b"\0\0")
        self._value = int.from_bytes(payload, "big")
        self._left = 8 * len(payload)

    def u(self, count: int) -> int:
        if count > self._left:
            raise HevcError("a header ends too early")
        self._left -= count
        return self._value >> self._left & ((1 << count) - 1)

    def ue(self) -> int:
        zeros = 0
        while self.u(1) == 0:
            zeros += 1
            if zeros > 32:
                raise HevcError("a header holds no readable number")
        return (1 << zeros) - 1 + self.u(zeros)


@dataclass(frozen=True, slots=True)
class _Sps:
    separate_planes: bool
    lsb_bits: int


@dataclass(frozen=True, slots=True)
class _Pps:
    sps: int
    output_flag: bool
    extra_bits: int


class SliceReader:
    """Reads slice headers, remembering the parameter sets seen so far."""

    def __init__(self) -> None:
        self._sps: dict[int, _Sps] = {}
        self._pps: dict[int, _Pps] = {}

    def parameter_set(self, nal: bytes) -> None:
        """Remember a sequence or picture parameter set; `nal` is a whole NAL unit without start code.

        Raises:
            HevcError: it can't be read.
        """
        bits = _Bits(nal[2:])
        if nal[0] >> 1 & 0x3F == SPS:
            self._read_sps(bits)
        else:
            number, sps = bits.ue(), bits.ue()
            bits.u(1)
            self._pps[number] = _Pps(sps, bool(bits.u(1)), bits.u(3))

    def _read_sps(self, bits: _Bits) -> None:
        bits.u(4)
        sub_layers = bits.u(3)
        bits.u(1 + 96)
        if sub_layers:
            present = [(bits.u(1), bits.u(1)) for _ in range(sub_layers)]
            bits.u(2 * (8 - sub_layers))
            for profile, level in present:
                bits.u(88 * profile + 8 * level)
        number, chroma = bits.ue(), bits.ue()
        separate = chroma == 3 and bool(bits.u(1))
        bits.ue(), bits.ue()  # width and height
        if bits.u(1):
            for _ in range(4):
                bits.ue()
        bits.ue(), bits.ue()  # bit depths
        lsb_bits = bits.ue() + 4
        if lsb_bits > 16:
            raise HevcError(f"picture order counts of {lsb_bits} bits")
        self._sps[number] = _Sps(separate, lsb_bits)

    def first_slice(self, nal: bytes) -> Picture | None:
        """The picture that a slice begins, or None when it continues one. `nal` may be cut after `_HEADER_BYTES`.

        Raises:
            HevcError: the header can't be read, or names parameter sets that were not seen.
        """
        nal_type, temporal_id = nal[0] >> 1 & 0x3F, (nal[1] & 7) - 1
        bits = _Bits(nal[2:])
        if not bits.u(1):
            return None
        if 16 <= nal_type <= 23:
            bits.u(1)
        try:
            pps = self._pps[bits.ue()]
            sps = self._sps[pps.sps]
        except KeyError as error:
            raise HevcError(f"a slice names parameter set {error.args[0]}, which is missing before it") from None
        bits.u(pps.extra_bits)
        bits.ue()
        bits.u(int(pps.output_flag) + 2 * int(sps.separate_planes))
        lsb = 0 if nal_type in _IDR else bits.u(sps.lsb_bits)
        return Picture(nal_type, temporal_id, lsb, sps.lsb_bits)


def is_slice(nal_type: int) -> bool:
    """Whether a NAL unit of this type holds a slice of a picture."""
    return nal_type <= 9 or 16 <= nal_type <= 21


def start_codes(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Offset of each NAL unit's first byte after its start code, and its first bytes, reading in bounded pieces."""
    file.seek(0)
    base, tail = 0, b""
    while True:
        piece = file.read(_CHUNK)
        data = tail + piece
        # A unit that begins near the end of the piece is left for the next one, so that its header is whole.
        limit = len(data) if not piece else len(data) - _HEADER_BYTES - 3
        for begin in _after_start_codes(data, limit):
            yield base + begin, data[begin : begin + _HEADER_BYTES]
        if not piece:
            return
        keep = max(limit, 0)
        base, tail = base + keep, data[keep:]


def _after_start_codes(data: bytes, limit: int) -> list[int]:
    """Where the three bytes 0 0 1 that begin before `limit` end. Zeros are rare: looking for them first is fast."""
    values = np.frombuffer(data, np.uint8)
    zeros = np.flatnonzero(values[: max(min(limit, len(data) - 2), 0)] == 0)
    found = zeros[(values[zeros + 1] == 0) & (values[zeros + 2] == 1)]
    return (found + 3).tolist()  # type: ignore[no-any-return]


def index_raw(file: BinaryIO) -> RawIndex:
    """The access units of a raw stream, and how far their numbers can be trusted.

    Raises:
        HevcError: no access unit with parameter sets in front is found, or the stream begins inside a group of
            pictures, so that not one frame number is known.
        OSError: the file can't be read.
    """
    reader = SliceReader()
    pictures: list[Picture] = []
    begins: list[int] = []
    parameter_sets = b""
    unit_begin: int | None = None
    open_set: int | None = None
    reason = ""
    end = 0
    for offset, head in start_codes(file):
        begin = offset - 3
        if open_set is not None:
            nal, open_set = _bytes(file, open_set, begin), None
            try:
                if nal[0] >> 1 & 0x3F != VPS:
                    reader.parameter_set(nal)
            except HevcError as error:
                reason, end = f"parameter set: {error}", begin if unit_begin is None else unit_begin
                break
            if not pictures:
                parameter_sets += b"\0\0\0\1" + nal
        if len(head) < 2 or head[0] & 0x80:
            continue
        nal_type, layer = head[0] >> 1 & 0x3F, (head[0] & 1) << 5 | head[1] >> 3
        if layer:
            continue
        if nal_type in _LEADING_IN_UNIT:
            unit_begin = begin if unit_begin is None else unit_begin
            if nal_type in (VPS, SPS, PPS):
                open_set = offset
        elif is_slice(nal_type):
            try:
                picture = reader.first_slice(head)
            except HevcError as error:
                reason, end = str(error), begin if unit_begin is None else unit_begin
                break
            if picture is not None:
                pictures.append(picture)
                begins.append(begin if unit_begin is None else unit_begin)
            unit_begin = None
        elif nal_type in (END_OF_SEQUENCE, END_OF_BITSTREAM):
            unit_begin = None
    if not reason:
        end = file.seek(0, 2)
    if not pictures:
        raise HevcError(reason or "no access unit was found")
    order = display_order(pictures, regular=True)
    if reason and order.complete:
        order = Order(order.display, order.random_access, complete=False, reason=reason)
    if not len(order.display):
        raise HevcError(order.reason)
    offsets = np.array([*begins, end], np.int64)[: len(order.display) + 1]
    return RawIndex(offsets, order, parameter_sets)


def _bytes(file: BinaryIO, begin: int, end: int) -> bytes:
    here = file.tell()
    file.seek(begin)
    data = file.read(min(end - begin, _MAX_PARAMETER_SET))
    file.seek(here)
    return data.rstrip(b"\0")


def display_order(pictures: Sequence[Picture], *, regular: bool) -> Order:
    """The display index of each picture given in decoding order, up to the first irregularity.

    With `regular`, every coded video sequence but the last has to be of one length: without timestamps, that is the
    only sign of units lost at the end of one.
    """
    pocs, starts, stop, reason = _picture_order_counts(pictures)
    bounds = [*starts, stop]
    step = math.gcd(*pocs) or 1
    lengths: list[int] = []
    display: list[int] = []
    base = 0
    for begin, end in itertools.pairwise(bounds):
        complete_until, highest, seen = begin, -1, set()
        for position in range(begin, end):
            number, remainder = divmod(pocs[position], step)
            if remainder or number < 0 or number in seen:
                break
            seen.add(number)
            highest = max(highest, number)
            if len(seen) == highest + 1:
                complete_until = position + 1
        display += [base + poc // step for poc in pocs[begin:complete_until]]
        if complete_until < end:
            reason = f"the picture order count is irregular after access unit {complete_until}: units were lost"
            stop = complete_until
            break
        lengths.append(end - begin)
        base += end - begin
    cut = _irregular(lengths, len(starts)) if regular else None
    if cut is not None:
        stop = starts[cut]
        reason = (
            f"the sequence that ends before access unit {stop} has another length than the rest: whether units were"
            " lost there can't be known"
        )
    return Order(
        np.array(display[:stop], np.int64),
        np.array([picture.random_access for picture in pictures[:stop]], np.bool_),
        complete=stop == len(pictures) and not reason,
        reason=reason,
    )


def _picture_order_counts(pictures: Sequence[Picture]) -> tuple[list[int], list[int], int, str]:
    """Counts relative to their sequence's start, the starts, the number of usable pictures, why not all."""
    pocs: list[int] = []
    starts: list[int] = []
    anchor = 0
    for position, picture in enumerate(pictures):
        if picture.nal_type in _BLA:
            return pocs, starts, position, f"the stream was spliced at access unit {position}"
        if picture.starts_sequence:
            starts.append(position)
            poc = 0
        elif not starts:
            if picture.nal_type == _CRA and picture.poc_lsb == 0:
                starts.append(position)
                poc = 0
            else:
                return [], [], 0, "the stream begins inside a group of pictures, so that no frame number is known"
        else:
            size = 1 << picture.lsb_bits
            poc = anchor - anchor % size + picture.poc_lsb
            if anchor - poc >= size // 2:
                poc += size
            elif poc - anchor > size // 2:
                poc -= size
        if picture.anchors_poc:
            anchor = poc
        pocs.append(poc)
    return pocs, starts, len(pictures), ""


def _irregular(lengths: list[int], sequences: int) -> int | None:
    """The number of the first sequence whose start can't be trusted, given the lengths of the complete ones.

    When all `sequences` are complete, the last one may be shorter than the rest.
    """
    whole = len(lengths) == sequences
    inner = lengths[:-1] if whole else lengths
    if not inner:
        return None
    counts = Counter(inner)
    usual = max(counts, key=lambda length: (counts[length], length))
    for number, length in enumerate(inner):
        if length != usual:
            return number + 1
    return len(lengths) - 1 if whole and lengths[-1] > usual else None
