"""Display order and packets of a video in a container (.mp4, .mkv).

Belongs here: demuxing, and refusing containers whose timestamps can't say which frame is which. Does not belong here:
decoding (`video`).

The number of a frame is the rank of its timestamp over the whole file, whatever the time base says. For HEVC the slice
headers have to agree; they also tell of access units that were lost before the stream was put into its container.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any, BinaryIO, TypeAlias

import av
import numpy as np
from numpy.typing import NDArray

from dms_assets.extraction.hevc import HevcError, Order, Picture, SliceReader, display_order, is_slice

Packet: TypeAlias = "av.Packet[Any]"
_MAX_EXTRADATA = 1 << 20


class ContainerError(ValueError):
    """A container whose frame numbers can't be known."""


class ContainerSource:
    """The packets of a container's only video stream, numbered in decoding order."""

    tail_may_be_cut = False  # the container knows how long each packet is

    def __init__(self, file: BinaryIO, form: str) -> None:
        """Read the whole index of a file of the format `form`.

        The format is given, never guessed from the content: a guess may take a playlist, which opens other files.

        Raises:
            ContainerError: it can't be opened, or its frame numbers can't be trusted.
        """
        self._file = file
        try:
            self._form = form
            self._container = av.open(file, "r", format=form, metadata_errors="replace")
            if len(self._container.streams.video) != 1:
                raise ContainerError(f"it has {len(self._container.streams.video)} video streams, not one")
            self._stream = self._container.streams.video[0]
            if self._stream.codec_context is None:
                raise ContainerError("its codec is not known")
            self._pts, self._keys, pictures, lost = self._read()
        except av.FFmpegError as error:
            raise ContainerError(f"it can't be read as a video ({error.strerror})") from error
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise ContainerError("it can't be read as a video (its index points outside the file)") from error
        self._refuse_edits()
        self.order = self._order(pictures, lost)
        self._number_of = {int(pts): number for number, pts in enumerate(self._pts)}

    def close(self) -> None:
        """Release the demuxer."""
        self._container.close()

    def decoder(self) -> av.CodecContext:
        """A fresh decoder for these packets."""
        context = av.CodecContext.create(self._stream.codec_context.name, "r")
        context.extradata = self._stream.codec_context.extradata
        return context

    def packets(self, first: int, last: int, _padding: bytes = b"") -> Iterator[Packet]:
        """Packets `first` to `last` (both included) in decoding order, each with its number as timestamp."""
        wanted = int(self._pts[first])
        for start in (wanted, int(self._pts[0])):
            self._container.seek(start, stream=self._stream, backward=True, any_frame=False)
            number = first - 1
            for packet in self._container.demux(self._stream):
                if packet.pts is None or packet.size == 0:
                    continue
                if number < first and packet.pts != wanted:
                    if self._number_of.get(packet.pts, first) >= first:
                        break  # the demuxer's seek went too far
                    continue
                number += 1
                if packet.pts != self._pts[number]:
                    return  # the file reads differently from before: what follows can't be had
                packet.pts, packet.dts = number, None
                yield packet
                if number == last:
                    return
            if number >= first:
                return

    def _read(self) -> tuple[NDArray[np.int64], NDArray[np.bool_], list[Picture] | None, str]:
        """Timestamps and key flags of all packets, and for HEVC their pictures, with the reason why not of all."""
        pts: list[int] = []
        keys: list[bool] = []
        headers = _Headers(self._stream.codec_context.extradata) if self._stream.codec_context.name == "hevc" else None
        pictures: list[Picture] = []
        lost = ""
        for packet in self._container.demux(self._stream):
            if packet.size == 0:
                continue
            if packet.pts is None:
                raise ContainerError(f"packet {len(pts)} has no timestamp; remux it from a source that has them")
            if packet.is_discard:
                raise ContainerError("an edit list hides some of its packets; remux it without one")
            if packet.is_corrupt:
                lost = lost or f"access unit {len(pts)} is cut"
            pts.append(packet.pts)
            keys.append(packet.is_keyframe)
            if headers is not None and not lost:
                try:
                    pictures.append(headers.picture(memoryview(packet)))
                except HevcError as error:
                    lost = f"access unit {len(pictures)}: {error}"
        if not pts:
            raise ContainerError("it has no video packet")
        known = pictures if headers is not None else None
        return np.array(pts, np.int64), np.array(keys, np.bool_), known, lost

    def _refuse_edits(self) -> None:
        """An edit list can also leave packets out without a mark; then a reading that ignores it finds more."""
        if self._stream.frames in (0, len(self._pts)):
            return
        self._file.seek(0)
        with av.open(
            self._file, "r", format=self._form, metadata_errors="replace", options={"ignore_editlist": "1"}
        ) as plain:
            count = sum(1 for packet in plain.demux(plain.streams.video[0]) if packet.size)
        if count != len(self._pts):
            raise ContainerError(f"an edit list hides {count - len(self._pts)} of its packets; remux it without one")
        self._file.seek(0)
        self._container = av.open(self._file, "r", format=self._form, metadata_errors="replace")
        self._stream = self._container.streams.video[0]

    def _order(self, pictures: list[Picture] | None, lost: str) -> Order:
        ranked = np.argsort(self._pts, kind="stable")
        in_time = self._pts[ranked]
        if len(repeated := np.flatnonzero(np.diff(in_time) == 0)):
            raise ContainerError(f"timestamp {in_time[repeated[0]]} occurs twice; remux it from a source without that")
        display = np.empty(len(ranked), np.int64)
        display[ranked] = np.arange(len(ranked))
        if pictures is None:
            reordered = (np.diff(display) < 0).any()
            if self._stream.codec_context.has_b_frames and not reordered:
                raise ContainerError("its frames are not in display order, but its timestamps rise: they were made up")
            random_access, trusted, reason = self._keys, len(display), ""
            if lost:
                raise ContainerError(lost)
        else:
            order = display_order(pictures, regular=False)
            random_access, trusted, reason = order.random_access, len(order.display), order.reason or lost
            if not trusted:
                raise ContainerError(reason)
        gap = _gap(in_time, display, pictures and pictures[:trusted])
        if gap is not None and gap < trusted:
            trusted, reason = gap, f"frames are missing before access unit {gap}, by its timestamps"
        if pictures is not None and not np.array_equal(order.display[:trusted], display[:trusted]):
            raise ContainerError("its timestamps contradict the order of the frames in the stream: they were made up")
        return Order(display[:trusted], random_access[:trusted], trusted == len(display), reason)


def _gap(in_time: NDArray[np.int64], display: NDArray[np.int64], pictures: list[Picture] | None) -> int | None:
    """The first access unit that is displayed later than the even spacing of all frames lets expect.

    Within a sequence, HEVC's slice headers tell of losses, and a late frame is one that was never taken; at the end of
    one, and for other codecs, only time does, and only where time is even.
    """
    steps = np.diff(in_time).astype(np.float64)
    if not len(steps):
        return None
    usual = float(np.median(steps))
    if (np.abs(steps - usual) <= max(1.0, 0.05 * usual)).mean() < 0.9:
        return None
    late = np.concatenate([[False], steps > 1.5 * usual])[display]
    if pictures is not None:
        late = late[: len(pictures)] & np.array([picture.starts_sequence for picture in pictures], np.bool_)
    found = np.flatnonzero(late)
    return int(found[0]) if len(found) else None


class _Headers:
    """Reads each packet's first slice header; packets hold length-prefixed NAL units, or start codes."""

    def __init__(self, extradata: bytes | None) -> None:
        self._reader = SliceReader()
        self._length_size = 0
        data = (extradata or b"")[:_MAX_EXTRADATA]
        if len(data) > 22 and data[0] == 1:  # the configuration record of ISO/IEC 14496-15, clause 8.3.3.1
            self._length_size = (data[21] & 3) + 1
            position = 23
            for _ in range(data[22]):
                count = int.from_bytes(data[position + 1 : position + 3], "big")
                position += 3
                for _ in range(count):
                    size = int.from_bytes(data[position : position + 2], "big")
                    self._remember(data[position + 2 : position + 2 + size])
                    position += 2 + size
        else:
            for nal in data.split(b"\0\0\1")[1:]:
                self._remember(nal.rstrip(b"\0"))

    def _remember(self, nal: bytes) -> None:
        if len(nal) > 2 and nal[0] >> 1 & 0x3F in (33, 34):
            self._reader.parameter_set(nal)

    def picture(self, packet: memoryview) -> Picture:
        for nal in self._units(packet):
            if len(nal) < 3 or (nal[0] & 1) << 5 | nal[1] >> 3:
                continue
            self._remember(nal)
            if is_slice(nal[0] >> 1 & 0x3F) and (picture := self._reader.first_slice(nal)):
                return picture
        raise HevcError("no picture begins in it")

    def _units(self, packet: memoryview) -> Iterator[bytes]:
        """The NAL units up to the first slice, cut where a header surely ends."""
        if not self._length_size:
            yield from (nal.rstrip(b"\0") for nal in bytes(packet).split(b"\0\0\1")[1:])
            return
        position = 0
        while position + self._length_size <= len(packet):
            size = int.from_bytes(packet[position : position + self._length_size], "big")
            position += self._length_size
            yield bytes(packet[position : position + min(size, 1 << 12)])
            position += size
