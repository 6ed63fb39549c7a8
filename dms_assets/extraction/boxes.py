"""Driver boxes from a pose cache, as of a frame: never from a later one.

Belongs here: reading `<root>/<uid>.npz` and answering what was known at a frame. Does not belong here: detectors, which
extractors have of their own.

A pose cache has `frame_idx` (N,), or `t` (N,) in seconds; `box` (N, 4) float, x0, y0, x1, y1 in native pixels, NaN
where no driver was seen; and optionally `moving` (N,) bool or `v_ego` (N,) in m/s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dms_assets.contract import FPS, CacheUnreadableError
from dms_assets.npz import open_container
from dms_assets.routes import check_uid
from resources.files import FileRoot

MAX_AGE_FRAMES = FPS  # a box older than a second says nothing of where the driver is
MOVING_MPS = 2.0
_MEMBERS: tuple[str, ...] = ("frame_idx", "t", "box", "moving", "v_ego")


class BoxesError(ValueError):
    """A pose cache that can't be used; the text names the file, the member and what is wrong."""


@dataclass(frozen=True, slots=True)
class PoseBoxes:
    """A route's boxes in time order: frame_idx (N,) i64, box (N, 4) f32, moving (N,) bool or None."""

    frame_idx: NDArray[np.int64]
    box: NDArray[np.float32]
    moving: NDArray[np.bool_] | None

    def at(self, frame: int) -> NDArray[np.float32] | None:
        """The last box at or before `frame`, (4,); None when there is none, it is too old, or no driver was seen."""
        row = int(np.searchsorted(self.frame_idx, frame, side="right")) - 1
        if row < 0 or frame - int(self.frame_idx[row]) > MAX_AGE_FRAMES:
            return None
        box = self.box[row]
        return box if np.isfinite(box).all() and box[0] < box[2] and box[1] < box[3] else None

    def moving_at(self, frames: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Whether the car moved, as last known at each of `frames` (at first: the first value); None if never known."""
        if self.moving is None or not len(self.moving):
            return None
        return self.moving[np.maximum(np.searchsorted(self.frame_idx, frames, side="right") - 1, 0)]


def load_boxes(root: FileRoot, uid: str) -> PoseBoxes | None:
    """The boxes of one route, None when there is no pose cache for it.

    Raises:
        BoxesError: the file can't be read, or lacks what a pose cache has.
        OSError: the root is missing, or the file can't be opened.
    """
    name = f"{check_uid(uid)}.npz"
    try:
        file = root.open(name)
    except FileNotFoundError:
        root.stat()  # a root that is not mounted is not an empty one
        return None
    with file:
        try:
            container = open_container(file.fileno(), name, whole=True)
            members: dict[str, NDArray[Any]] = {
                member: np.array(container.array(member)) for member in _MEMBERS if member in container.members
            }
        except CacheUnreadableError as error:
            raise BoxesError(f"pose cache {error}; make it anew") from error
    return _checked(name, members)


def _checked(name: str, members: dict[str, NDArray[Any]]) -> PoseBoxes:
    def refuse(what: str) -> BoxesError:
        return BoxesError(f"pose cache {name}: {what}; make it anew")

    if "box" not in members or not {"frame_idx", "t"} & set(members):
        raise refuse("needs box, and frame_idx or t")
    numbers = {}
    for member, array in members.items():
        if array.dtype.kind not in "fiub":
            raise refuse(f"{member} is {array.dtype}, not numbers")
        numbers[member] = array.astype(np.float64)
    frames = numbers["frame_idx"] if "frame_idx" in numbers else np.rint(numbers["t"] * FPS)
    if frames.ndim != 1 or not np.isfinite(frames).all() or (np.diff(frames) <= 0).any():
        raise refuse("frame_idx or t is not a rising sequence of numbers")
    if numbers["box"].shape != (len(frames), 4):
        raise refuse(f"box has the shape {numbers['box'].shape}, not ({len(frames)}, 4)")
    moving = None
    for member, limit in (("moving", 0.5), ("v_ego", MOVING_MPS)):
        if member in numbers:
            if numbers[member].shape != frames.shape:
                raise refuse(f"{member} has the shape {numbers[member].shape}, not ({len(frames)},)")
            moving = numbers[member] > limit
            break
    return PoseBoxes(frames.astype(np.int64), numbers["box"].astype(np.float32), moving)
