"""Exact frames of a driver video, for sparse wanted frame numbers.

Belongs here: finding a route's video, decoding what the wanted frames need and no more, and never delivering a frame
under a wrong number. Does not belong here: what frames are used for; reading streams (`hevc`) and containers.

Each packet carries its number in decoding order through the decoder, and each decoded frame is known by it, never by
counting. Decoding starts at the last random-access unit at or before a wanted frame. After an error nothing is
believed until the next random-access unit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol, cast

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from dms_assets.extraction.container import ContainerError, ContainerSource, Packet
from dms_assets.extraction.extractor import Image
from dms_assets.extraction.hevc import HevcError, Order, index_raw
from resources.files import FileRoot, Identity

_FORMATS = {".mp4": "mp4", ".mkv": "matroska"}
_PADDING = bytes(range(0x55, 0x95)) * 4
SUFFIXES = (".hevc", *_FORMATS)


class VideoMissingError(FileNotFoundError):
    """A route has no video below the video root."""


class VideoRefusedError(ValueError):
    """A video whose frame numbers can't be trusted, or that can't be read; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class VideoFile:
    """A route's video: its name below the video root, and its identity."""

    name: str
    identity: Identity

    @property
    def as_meta(self) -> dict[str, str | int]:
        """What a cache's meta keeps of it: equal exactly when nothing was replaced or appended."""
        return {"file": self.name, "size": self.identity.size, "mtime_ns": self.identity.mtime_ns}


def list_videos(root: FileRoot) -> dict[str, tuple[VideoFile, ...]]:
    """Every route's videos below `root`, from one listing. More than one for a route is for `find_video` to refuse.

    Raises:
        OSError: the root is missing or can't be read.
    """
    found: dict[str, tuple[VideoFile, ...]] = {}
    for entry in root.scan():
        for suffix in SUFFIXES:
            if entry.name.endswith(suffix) and not entry.is_dir:
                uid = entry.name.removesuffix(suffix)
                found[uid] = (*found.get(uid, ()), VideoFile(entry.name, entry.identity))
    return found


def find_video(root: FileRoot, uid: str) -> VideoFile:
    """The video of one route.

    Raises:
        VideoMissingError: there is none.
        VideoRefusedError: there are several.
        OSError: the root can't be read.
    """
    found = []
    for suffix in SUFFIXES:
        try:
            found.append(VideoFile(uid + suffix, root.stat(uid + suffix)))
        except FileNotFoundError:
            continue
    if len(found) > 1:
        raise VideoRefusedError(f"{uid} has several videos ({', '.join(file.name for file in found)}); keep one")
    if not found:
        names = ", ".join(uid + suffix for suffix in SUFFIXES)
        raise VideoMissingError(f"no driver video below {root.path}: looked for {names}")
    return found[0]


class _Source(Protocol):
    order: Order
    tail_may_be_cut: bool

    def decoder(self) -> av.CodecContext: ...

    def packets(self, first: int, last: int, padding: bytes = b"", /) -> Iterator[Packet]: ...

    def close(self) -> None: ...


class _RawSource:
    """The access units of a raw stream."""

    tail_may_be_cut = True

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._index = index_raw(file)
        self.order = self._index.order

    def decoder(self) -> av.CodecContext:
        return av.CodecContext.create("hevc", "r")

    def packets(self, first: int, last: int, padding: bytes = b"", /) -> Iterator[Packet]:
        offsets = self._index.offsets
        self._file.seek(int(offsets[first]))
        for number in range(first, last + 1):
            data = self._file.read(int(offsets[number + 1] - offsets[number]))
            if number == first:
                data = self._index.parameter_sets + data
            if number == last:
                data += padding
            packet = av.Packet(data)
            packet.pts = number
            yield packet

    def close(self) -> None:
        pass


@dataclass(slots=True)
class Clock:
    """Seconds spent by stage, summed."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, stage: str, since: float) -> float:
        """Count the time since `since` towards `stage`; the present time, for the next stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - since
        return now


class Video:
    """One open video. `n_frames` counts the frames whose number is known; `complete` says whether that is all."""

    def __init__(self, root: FileRoot, file: VideoFile, clock: Clock | None = None) -> None:
        """Open and index `file`.

        Raises:
            VideoRefusedError: it can't be read, or its frame numbers can't be trusted.
            OSError: it can't be opened.
        """
        self.clock = clock or Clock()
        self.decoded = 0
        self._convert = VideoReformatter()  # one for all frames: making its tables costs as much as a conversion
        since = time.perf_counter()
        self._stream = root.open(file.name)
        self.file = VideoFile(file.name, Identity.of(os.fstat(self._stream.fileno())))  # of what is read from here on
        try:
            form = _FORMATS.get(os.path.splitext(file.name)[1])
            self._source: _Source = ContainerSource(self._stream, form) if form else _RawSource(self._stream)
        except (HevcError, ContainerError) as error:
            self._stream.close()
            raise VideoRefusedError(f"{file.name}: {error}; fetch the video again from the recorder") from error
        except BaseException:
            self._stream.close()
            raise
        order = self._source.order
        self.n_frames = len(order.display)
        self.complete, self.reason = order.complete, order.reason
        self._unit_of = np.full(self.n_frames, -1, np.int64)
        inside = order.display < self.n_frames
        self._unit_of[order.display[inside]] = np.flatnonzero(inside)
        self._starts = np.flatnonzero(order.random_access)
        self._start_display = order.display[self._starts]
        self.clock.add("index", since)

    def __enter__(self) -> Video:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._stream.close()

    def frames(self, wanted: Sequence[int]) -> Iterator[tuple[int, Image | None]]:
        """Each frame number of `wanted` (ascending) with its picture, or None where it can't be had.

        Raises:
            OSError: the file can't be read any more.
        """
        for first, last, numbers in self._segments(wanted):
            if first < 0:
                yield from ((number, None) for number in numbers)
                continue
            pending = list(numbers)
            for number, image in self._decode(first, last, set(numbers)):
                while pending and pending[0] < number:
                    yield pending.pop(0), None
                pending.pop(0)
                yield number, image
            yield from ((number, None) for number in pending)

    def _segments(self, wanted: Sequence[int]) -> Iterator[tuple[int, int, list[int]]]:
        """First and last access unit to decode for consecutive wanted frames; -1 where there is nothing to decode."""
        first = last = -1
        numbers: list[int] = []
        for number in wanted:
            unit = int(self._unit_of[number]) if 0 <= number < self.n_frames else -1
            start = self._start_before(number) if unit >= 0 else -1
            joins = (start < 0) if first < 0 else (0 <= start <= last + 1)
            if numbers and not joins:
                yield first, last, numbers
                numbers = []
            if not numbers:
                first, last = start, unit
            last = max(last, unit)
            numbers.append(number)
        if numbers:
            yield first, last, numbers

    def _start_before(self, number: int) -> int:
        """The last random-access unit displayed at or before frame `number`."""
        at = int(np.searchsorted(self._start_display, number, side="right")) - 1
        return int(self._starts[at]) if at >= 0 else -1

    def _decode(self, first: int, last: int, numbers: set[int]) -> Iterator[tuple[int, Image]]:
        display = self._source.order.display
        while 0 <= first <= last:
            failed = -1
            since = time.perf_counter()
            for frame in self._frames(self._decoder(), first, last):
                since = self.clock.add("decode", since)
                if isinstance(frame, int):
                    failed = frame
                    continue
                unit = frame.pts
                if unit is None or unit == failed or frame.is_corrupt or int(display[unit]) not in numbers:
                    continue
                if (
                    unit == self.n_frames - 1
                    and self._source.tail_may_be_cut
                    and not self._is_whole(first, unit, frame)
                ):
                    continue
                image = cast(Image, self._convert.reformat(frame, format="bgr24").to_ndarray())
                self.clock.add("convert", since)
                yield int(display[unit]), image
                since = time.perf_counter()
            self.clock.add("decode", since)
            if failed < 0:
                return
            later = self._starts[self._starts > failed]
            first = int(later[0]) if len(later) else -1

    def _is_whole(self, first: int, unit: int, frame: av.VideoFrame) -> bool:
        """Whether the last trusted unit of a raw stream ends where its picture does.

        A decoder takes a slice that was cut for a picture, silently. But what follows a whole slice changes nothing,
        and what follows a cut one is taken for its rest.
        """
        if not self.complete:
            return False
        for other in self._frames(self._decoder(), first, unit, _PADDING):
            if not isinstance(other, int) and other.pts == unit:
                return np.array_equal(frame.to_ndarray(), other.to_ndarray())
        return False

    def _decoder(self) -> av.VideoCodecContext:
        decoder = cast(av.VideoCodecContext, self._source.decoder())
        decoder.thread_count = 1
        decoder.options = {"err_detect": "crccheck+explode"}  # checksums are looked at where a stream has them
        return decoder

    def _frames(
        self, decoder: av.VideoCodecContext, first: int, last: int, padding: bytes = b""
    ) -> Iterator[av.VideoFrame | int]:
        """Decoded frames; after an error the number of the unit that caused it, then what was decoded before."""
        number = first - 1
        try:
            for packet in self._source.packets(first, last, padding):
                number += 1
                self.decoded += 1
                yield from decoder.decode(packet)
        except av.FFmpegError:
            yield max(number, first)
        try:
            yield from decoder.decode(None)
        except av.FFmpegError:
            yield max(number, first)
