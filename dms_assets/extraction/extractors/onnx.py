"""The `onnx` extractor: a user's own model, by configuration alone.

Belongs here: cutting out the box, scaling and normalising as declared, running the file on ONNX Runtime. Does not
belong here: finding and verifying the file (`weights`).

Channel names come from the baseline's `channels`, else from the model's metadata entry `channels` (a JSON list or names
separated by commas). Models made with the newest `onnx` package need `opset <= 26` for ONNX Runtime 1.31.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from dms_assets.extraction.extractor import Box, ExtractorError, Image, Row
from dms_assets.extraction.images import shrink

if TYPE_CHECKING:
    from dms_assets.baselines import Baseline

_Side = Annotated[int, Field(ge=1, le=8192)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class Options(BaseModel):
    """How a model wants its input, and which of its outputs are features.

    `input_size` is width, height in pixels. A pixel value v of 0 to 255 becomes (v / 255 - mean) / std, per channel in
    the declared `colour` order. `layout` names the axes of the input tensor: n for 1, c colour, h, w, t the frames of a
    window. `crop` is the driver's box, or the whole frame. `outputs` are names of output tensors, all by default; they
    are flattened one after another.
    """

    model_config = ConfigDict(extra="forbid")

    input_size: tuple[_Side, _Side]
    mean: tuple[_Finite, _Finite, _Finite] = (0.0, 0.0, 0.0)
    std: tuple[_Positive, _Positive, _Positive] = (1.0, 1.0, 1.0)
    colour: Literal["rgb", "bgr"] = "rgb"
    layout: Literal["nchw", "nhwc", "ntchw", "ncthw", "nthwc"] | None = None
    crop: Literal["box", "frame"] = "box"
    outputs: tuple[str, ...] = ()
    providers: tuple[str, ...] = ("CPUExecutionProvider",)


class Onnx:
    """A model of single frames, or of windows, as the baseline's kind says."""

    Options: ClassVar[type[BaseModel]] = Options
    own_detector = False

    def __init__(self, baseline: Baseline, weights: Mapping[str, Path]) -> None:
        try:
            import onnxruntime
            from onnxruntime.capi import onnxruntime_pybind11_state as errors
        except ImportError as error:
            raise ExtractorError(f"{baseline.name}: needs onnxruntime; install the extra 'onnx'") from error
        self._options = Options.model_validate(dict(baseline.options))
        if len(weights) != 1:
            raise ExtractorError(f"{baseline.name}: needs one weight, the model's file; it names {sorted(weights)}")
        self._name, (path,) = baseline.name, weights.values()
        refusals: tuple[type[Exception], ...] = (
            errors.Fail,
            errors.InvalidArgument,
            errors.InvalidGraph,
            errors.InvalidProtobuf,
            errors.NoSuchFile,
            errors.NotImplemented,
            errors.RuntimeException,
            ValueError,  # an output that it does not have
        )
        windows = baseline.win_len > 0
        self._layout = self._options.layout or ("ntchw" if windows else "nchw")
        if windows != ("t" in self._layout):
            raise ExtractorError(f"{baseline.name}: layout {self._layout!r} does not fit a baseline of {baseline.kind}")
        try:
            self._session = onnxruntime.InferenceSession(str(path), providers=list(self._options.providers))
            inputs = self._session.get_inputs()
            self._input = inputs[0].name
            self._dtype = np.float16 if inputs[0].type == "tensor(float16)" else np.float32
            # One run on black frames tells the size of the outputs, whatever the file declares.
            black = np.zeros((self._options.input_size[1], self._options.input_size[0], 3), np.float32)
            values = self._run([black] * max(baseline.win_len, 1))
        except refusals as error:
            raise ExtractorError(f"{baseline.name}: {path.name}: {error}") from error
        self.dim = len(values)
        self.channels = () if windows else self._channels(baseline, path.name)
        self.model_ids = (path.name,)
        self.lib_versions = {"onnxruntime": str(onnxruntime.__version__), "opencv": cv2.__version__}

    def row(self, image: Image, box: Box | None) -> Row:
        """The model's outputs (C,) for one frame."""
        return Row(self._run([self._picture(image, box)]), box)

    def prepare(self, image: Image, box: Box, previous: object) -> NDArray[np.float32]:
        """One normalised picture of a window."""
        return self._picture(image, box)

    def window(self, frames: Sequence[NDArray[np.float32]]) -> NDArray[np.floating]:
        """The model's outputs (dim,) for one window."""
        return self._run(frames)

    def _picture(self, image: Image, box: Box | None) -> NDArray[np.float32]:
        """The cut-out, scaled and normalised, (H, W, 3)."""
        if box is not None and self._options.crop == "box":
            height, width = image.shape[:2]
            x0, y0 = np.clip(np.floor(box[:2]).astype(int), 0, (width - 1, height - 1))
            x1, y1 = np.clip(np.ceil(box[2:]).astype(int), (x0 + 1, y0 + 1), (width, height))
            image = image[y0:y1, x0:x1]
        small = shrink(image, self._options.input_size)
        ordered = small[:, :, ::-1] if self._options.colour == "rgb" else small
        mean, std = (np.array(values, np.float32) for values in (self._options.mean, self._options.std))
        return (ordered.astype(np.float32) / np.float32(255) - mean) / std

    def _run(self, pictures: Sequence[NDArray[np.float32]]) -> NDArray[np.floating]:
        """All named outputs, flattened one after another."""
        axes = {"t": 0, "h": 1, "w": 2, "c": 3}
        tensor = np.stack(pictures)
        if "t" not in self._layout:
            tensor = np.transpose(tensor[0], [axes[axis] - 1 for axis in self._layout[1:]])
        else:
            tensor = np.transpose(tensor, [axes[axis] for axis in self._layout[1:]])
        feed: dict[str, Any] = {self._input: np.ascontiguousarray(tensor[None], self._dtype)}
        outputs = self._session.run(list(self._options.outputs) or None, feed)
        return np.concatenate([np.asarray(output, np.float32).ravel() for output in outputs])

    def _channels(self, baseline: Baseline, file: str) -> tuple[str, ...]:
        channels = baseline.channels
        if not channels:
            text = self._session.get_modelmeta().custom_metadata_map.get("channels", "")
            try:
                names = json.loads(text)
            except ValueError:
                names = [name.strip() for name in text.split(",")] if text else []
            if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
                raise ExtractorError(
                    f"{baseline.name}: neither baselines.{baseline.name}.channels nor the metadata entry 'channels' of"
                    f" {file} names its {self.dim} outputs"
                )
            channels = tuple(names)
        if len(channels) != self.dim:
            raise ExtractorError(f"{baseline.name}: {len(channels)} channels are named, but {file} gives {self.dim}")
        return channels
