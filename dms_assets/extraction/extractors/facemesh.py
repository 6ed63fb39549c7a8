"""The `facemesh` extractor: head pose, eye and mouth openness and iris offsets of the driver, frame by frame.

Belongs here: MediaPipe's face detector, face mesh and iris models, run by OpenCV from their `.tflite` files, and the
geometry on their landmarks. Does not belong here: where the files come from (`weights`), and any memory between frames.

Sources: the models' cards (BlazeFace full range, Face Mesh, Iris) for sizes and normalisation; Bazarevsky et al.,
"BlazeFace" (arXiv:1907.05047) for anchors; Kartynnik et al. (arXiv:1907.06724) for the region of interest; Soukupova
and Cech, "Real-Time Eye Blink Detection using Facial Landmarks" (CVWW 2016) for the eye aspect ratio.

"Left" and "right" are the driver's own. Camera axes: x to the image's right, y down, z away from the camera. `yaw_deg`
is positive when the face turns to the image's right, `pitch_deg` when it turns up, `roll_deg` when the head tilts
clockwise in the image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from dms_assets.extraction.extractor import Box, ExtractorError, Image, Row
from dms_assets.extraction.images import shrink

if TYPE_CHECKING:
    from dms_assets.baselines import Baseline

CHANNELS = (
    "face_conf",
    "mesh_conf",
    "yaw_deg",
    "pitch_deg",
    "roll_deg",
    "left_ear",
    "right_ear",
    "mouth_ratio",
    "left_iris_x",
    "left_iris_y",
    "right_iris_x",
    "right_iris_y",
)

_DETECTOR_SIZE, _DETECTOR_STRIDE = 192, 4
_MESH_SIZE, _IRIS_SIZE = 192, 64
_FACE_MARGIN = 1.5  # the mesh model saw faces with a quarter of their size around them
_EYE_MARGIN = 2.3
_BOX_MARGIN = 0.25

# Landmarks of the mesh: outer corner, two on the upper lid, inner corner, two on the lower lid.
_LEFT_EYE = (263, 387, 385, 362, 380, 373)
_RIGHT_EYE = (33, 160, 158, 133, 153, 144)
_MOUTH = (78, 13, 308, 14)
_FOREHEAD, _CHIN = 10, 152
_LEFT_SIDE, _RIGHT_SIDE = (263, 362, 454, 291), (33, 133, 234, 61)

Points = NDArray[np.float64]


class Options(BaseModel):
    """`min_face_conf` and `min_mesh_conf`: below either, no face was found."""

    model_config = ConfigDict(extra="forbid")

    min_face_conf: float = Field(0.5, ge=0, le=1)
    min_mesh_conf: float = Field(0.5, ge=0, le=1)


@dataclass(frozen=True, slots=True)
class Face:
    """One face in one frame, in pixels of the frame: box (4,), mesh (468, 3), irises (2, 2) of left and right eye."""

    face_conf: float
    mesh_conf: float
    box: Box
    mesh: Points
    irises: Points


class FaceMesh:
    """The three models, ready to run."""

    Options: ClassVar[type[BaseModel]] = Options
    own_detector = True
    channels = CHANNELS

    def __init__(self, baseline: Baseline, weights: Mapping[str, Path]) -> None:
        options = Options.model_validate(dict(baseline.options))
        if set(weights) != {"detector", "mesh", "iris"}:
            raise ExtractorError(f"{baseline.name}: needs the weights detector, mesh and iris, not {sorted(weights)}")
        self._min_face, self._min_mesh = options.min_face_conf, options.min_mesh_conf
        self.model_ids = tuple(path.name for _, path in sorted(weights.items()))
        self.lib_versions = {"opencv": cv2.__version__}
        try:
            self._detector, self._mesh, self._iris = (
                cv2.dnn.readNetFromTFLite(str(weights[name])) for name in ("detector", "mesh", "iris")
            )
        except cv2.error as error:
            raise ExtractorError(
                f"{baseline.name}: OpenCV {cv2.__version__} can't read its models ({error.err})"
            ) from error

    def row(self, image: Image, box: Box | None) -> Row:
        """Features of the most certain face in `box`, or in the whole frame."""
        face = self.face(image, box)
        if face is None:
            return Row(None, None)
        return Row(features(face), face.box)

    def face(self, image: Image, box: Box | None = None) -> Face | None:
        """The most certain face in `box` (with a margin), or in the whole frame; None where there is none."""
        left, top, region = _cut(image, box)
        if region.size == 0:
            return None
        found = self._detect(region)
        if found is None:
            return None
        face_conf, corners, eyes = found
        offset = np.array([left, top], np.float64)
        corners, eyes = corners + offset, eyes + offset
        mesh_conf, mesh = self._landmarks(image, corners, eyes)
        if mesh_conf < self._min_mesh:
            return None
        irises = np.stack(
            [self._iris_centre(image, mesh, _LEFT_EYE, True), self._iris_centre(image, mesh, _RIGHT_EYE, False)]
        )
        return Face(face_conf, mesh_conf, corners.ravel().astype(np.float32), mesh, irises)

    def _detect(self, region: Image) -> tuple[float, Points, Points] | None:
        """Confidence, corners (2, 2) and eye centres (right, left) (2, 2) of the most certain face."""
        height, width = region.shape[:2]
        scale = _DETECTOR_SIZE / max(height, width)
        move = np.array(
            [[scale, 0, (_DETECTOR_SIZE - scale * width) / 2], [0, scale, (_DETECTOR_SIZE - scale * height) / 2]]
        )
        size = (max(round(width * scale), 1), max(round(height * scale), 1))
        square = np.zeros((_DETECTOR_SIZE, _DETECTOR_SIZE, 3), np.uint8)
        x, y = (_DETECTOR_SIZE - size[0]) // 2, (_DETECTOR_SIZE - size[1]) // 2
        square[y : y + size[1], x : x + size[0]] = shrink(region, size)
        scores, boxes = _run(self._detector, square, 1 / 127.5, 127.5)
        best = int(np.argmax(scores))
        confidence = _sigmoid(float(scores.ravel()[best]))
        if confidence < self._min_face:
            return None
        cells = _DETECTOR_SIZE // _DETECTOR_STRIDE
        anchor = (np.array([best % cells, best // cells]) + 0.5) * _DETECTOR_STRIDE
        values = boxes.reshape(-1, 16)[best].astype(np.float64)
        centre, extent = anchor + values[:2], values[2:4]
        points = np.stack([centre - extent / 2, centre + extent / 2, anchor + values[4:6], anchor + values[6:8]])
        points = (points - move[:, 2]) / scale
        if not np.isfinite(points).all() or (points[1] <= points[0]).any():
            return None
        return confidence, points[:2], points[2:]

    def _landmarks(self, image: Image, corners: Points, eyes: Points) -> tuple[float, Points]:
        """Confidence and mesh (468, 3) in pixels of the frame; z has the same scale."""
        along = eyes[1] - eyes[0]
        angle = math.atan2(along[1], along[0])
        size = _FACE_MARGIN * float((corners[1] - corners[0]).max())
        turn = _to_square(corners.mean(axis=0), size, angle, _MESH_SIZE)
        outputs = _run(self._mesh, cv2.warpAffine(image, turn, (_MESH_SIZE, _MESH_SIZE)), 1 / 255, 0)
        flag, values = sorted((output.ravel() for output in outputs), key=len)
        points = values.reshape(-1, 3).astype(np.float64)
        mesh = np.column_stack([_back(turn, points[:, :2]), points[:, 2] * size / _MESH_SIZE])
        return _sigmoid(float(flag[0])), mesh

    def _iris_centre(self, image: Image, mesh: Points, eye: Sequence[int], mirrored: bool) -> Points:
        """The centre of an iris, (2,); the model knows right eyes, so that a left one is shown mirrored."""
        outer, inner = mesh[eye[0], :2], mesh[eye[3], :2]
        along = outer - inner if mirrored else inner - outer
        size = _EYE_MARGIN * float(np.hypot(*along))
        turn = _to_square((outer + inner) / 2, size, math.atan2(along[1], along[0]), _IRIS_SIZE)
        if mirrored:
            turn = np.array([[-1, 0, _IRIS_SIZE], [0, 1, 0]]) @ np.vstack([turn, [0, 0, 1]])
        picture = cv2.warpAffine(image, turn, (_IRIS_SIZE, _IRIS_SIZE))
        iris = min((output.ravel() for output in _run(self._iris, picture, 1 / 255, 0)), key=len)
        centre: Points = _back(turn, iris.reshape(-1, 3)[:1, :2].astype(np.float64))[0]
        return centre


def features(face: Face) -> NDArray[np.float32]:
    """The channels (C,) of one face, in the order of `CHANNELS`."""
    left_iris, right_iris = face.irises
    values = (
        face.face_conf,
        face.mesh_conf,
        *head_pose(face.mesh),
        _eye_aspect(face.mesh, _LEFT_EYE),
        _eye_aspect(face.mesh, _RIGHT_EYE),
        _mouth_ratio(face.mesh),
        *_iris_offset(face.mesh, _LEFT_EYE, left_iris),
        *_iris_offset(face.mesh, _RIGHT_EYE, right_iris),
    )
    return np.array(values, np.float32)


def head_axes(mesh: Points) -> Points:
    """The head's axes (3, 3), one unit vector a row: towards its left, its chin, and the back of the head.

    Across goes from the mean of four landmarks on the right side of the face to that of their mirror images; down from
    the forehead to the chin, made perpendicular to it.
    """
    across = _unit(mesh[list(_LEFT_SIDE)].mean(axis=0) - mesh[list(_RIGHT_SIDE)].mean(axis=0))
    down = mesh[_CHIN] - mesh[_FOREHEAD]
    down = _unit(down - across * (down @ across))
    return np.stack([across, down, np.cross(across, down)])


def head_pose(mesh: Points) -> tuple[float, float, float]:
    """Yaw, pitch and roll in degrees, in the senses that the module's docstring gives."""
    across, _, back = head_axes(mesh)
    yaw = math.atan2(-back[0], back[2])
    pitch = math.asin(max(-1.0, min(1.0, float(back[1]))))
    roll = math.atan2(across[1], across[0])
    return math.degrees(yaw), math.degrees(pitch), math.degrees(roll)


def _unit(vector: Points) -> Points:
    unit: Points = vector / max(float(np.linalg.norm(vector)), 1e-9)
    return unit


def _eye_aspect(mesh: Points, eye: Sequence[int]) -> float:
    outer, upper1, upper2, inner, lower2, lower1 = mesh[list(eye), :2]
    width = float(np.hypot(*(outer - inner)))
    return float(np.hypot(*(upper1 - lower1)) + np.hypot(*(upper2 - lower2))) / (2 * max(width, 1e-9))


def _mouth_ratio(mesh: Points) -> float:
    right, upper, left, lower = mesh[list(_MOUTH), :2]
    return float(np.hypot(*(upper - lower)) / max(float(np.hypot(*(right - left))), 1e-9))


def _iris_offset(mesh: Points, eye: Sequence[int], iris: Points) -> tuple[float, float]:
    """The iris against the middle of the eye's corners, in eye widths: to the image's right and down, along the eye."""
    corners = mesh[[eye[0], eye[3]], :2]
    first, last = corners[np.argsort(corners[:, 0])]
    along = last - first
    width = max(float(np.hypot(*along)), 1e-9)
    offset = iris - (first + last) / 2
    return float(offset @ along) / width**2, float(along[0] * offset[1] - along[1] * offset[0]) / width**2


def _cut(image: Image, box: Box | None) -> tuple[int, int, Image]:
    """Left, top and picture of `box` with its margin, within the frame."""
    if box is None:
        return 0, 0, image
    height, width = image.shape[:2]
    extent = box[2:] - box[:2]
    low = np.floor(box[:2] - _BOX_MARGIN * extent)
    high = np.ceil(box[2:] + _BOX_MARGIN * extent)
    left, top = (int(value) for value in np.clip(low, 0, (width, height)))
    right, bottom = (int(value) for value in np.clip(high, 0, (width, height)))
    return left, top, image[top:bottom, left:right]


def _to_square(centre: Points, size: float, angle: float, pixels: int) -> Points:
    """The affine map (2, 3) that takes a square turned by `angle` to an upright one of `pixels`."""
    scale = pixels / max(size, 1e-6)
    cos, sin = scale * math.cos(angle), scale * math.sin(angle)
    turn = np.array([[cos, sin], [-sin, cos]])
    return np.column_stack([turn, pixels / 2 - turn @ centre])


def _back(turn: Points, points: Points) -> Points:
    return cast(Points, np.linalg.solve(turn[:, :2], (points - turn[:, 2]).T).T)


def _run(net: cv2.dnn.Net, picture: NDArray[Any], scale: float, mean: float) -> list[NDArray[np.float32]]:
    net.setInput(cv2.dnn.blobFromImage(picture, scale, mean=(mean, mean, mean), swapRB=True))
    return cast(list[NDArray[np.float32]], list(net.forward(net.getUnconnectedOutLayersNames())))


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-max(-80.0, min(80.0, value))))
