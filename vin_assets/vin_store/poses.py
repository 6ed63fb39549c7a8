"""Candidate poses in the frame of the reference rig: offset, direction, and turn.

Belongs here: the geometry, in float64. Does not belong here: which candidates count, summaries.

A pose is 12 numbers: rotation row-major, then translation, world from the named frame. In the reference-rig frame x is
left, y is up and z is forward. Angles are degrees in (-180, 180]; exactly half a turn is 180.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

POSE_KEYS = (
    "offset_x",
    "offset_y",
    "offset_z",
    "radius_m",
    "azimuth_deg",
    "elevation_deg",
    "yaw_deg",
    "pitch_deg",
    "roll_deg",
    "rotation_delta_deg",
)
_PARALLEL = 1e-6  # sine of the angle between forward and up below which float32 rotations can't tell them apart

Floats = npt.NDArray[np.float64]


def _turn(y: Floats, x: Floats) -> Floats:
    angle = np.degrees(np.arctan2(y, x))
    return np.where(angle == -180.0, 180.0, angle)


def _normalised(vectors: Floats) -> Floats:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length == 0, np.nan, length)


def relative_poses(candidates: npt.NDArray[Any], reference: npt.NDArray[Any]) -> dict[str, Floats]:
    """The ten values of each candidate pose, in the order of `POSE_KEYS`.

    `candidates` is (n, 12), `reference` (12,) for all of them or (n, 12). A pose of zeros alone is padding and no
    pose: all its values are NaN, as are those of a pose that holds a NaN.
    """
    poses = np.asarray(candidates, np.float64).reshape(-1, 12)
    rigs = np.asarray(reference, np.float64).reshape(-1, 12)
    poses, rigs = (np.where((held == 0).all(axis=1, keepdims=True), np.nan, held) for held in (poses, rigs))
    with np.errstate(invalid="ignore", over="ignore"):
        to_rig = rigs[:, :9].reshape(-1, 3, 3).transpose(0, 2, 1)
        rotation = to_rig @ poses[:, :9].reshape(-1, 3, 3)
        x, y, z = np.vecdot(to_rig, (poses[:, 9:] - rigs[:, 9:])[:, None]).T
        forward, up = _normalised(rotation[:, :, 2]), rotation[:, :, 1]
        fx, fy, fz = forward.T
        left = np.stack([fz, np.zeros_like(fx), -fx], axis=1)  # up x forward
        parallel = np.hypot(fx, fz) < _PARALLEL
        sideways = np.array([1.0, 0.0, 0.0]) - forward[:, :1] * forward
        left = _normalised(np.where(parallel[:, None], sideways, left))
        lx, ly, lz = left.T
        upright = np.stack([fy * lz - fz * ly, fz * lx - fx * lz, fx * ly - fy * lx], axis=1)  # forward x left
        trace = np.trace(rotation, axis1=1, axis2=2)
        values = (
            x,
            y,
            z,
            np.sqrt(x * x + y * y + z * z),
            _turn(x, z),
            np.degrees(np.arctan2(y, np.hypot(x, z))),
            _turn(fx, fz),
            np.degrees(np.arcsin(np.clip(fy, -1.0, 1.0))),
            _turn((up * left).sum(axis=1), (up * upright).sum(axis=1)),
            np.degrees(np.arccos(np.clip((trace - 1.0) / 2.0, -1.0, 1.0))),
        )
    return dict(zip(POSE_KEYS, values, strict=True))
