"""The `flow` extractor: an embedding of how things move in a window, without any weights.

Belongs here: dense optical flow between neighbouring ticks and its pooling. Does not belong here: which frames belong
to a window, or whether all of them are there (`run_route`).

Source: Kroeger et al., "Fast Optical Flow using Dense Inverse Search" (arXiv:1603.03590), as OpenCV implements it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from dms_assets.extraction.extractor import Box, Image, NoOptions
from dms_assets.extraction.images import shrink

if TYPE_CHECKING:
    from dms_assets.baselines import Baseline

_WIDTH, _HEIGHT = 160, 100
_VALUES = 8  # mean flow (x, y) in each quarter of the box


@dataclass(frozen=True, slots=True)
class Step:
    """A small grey picture (100, 160) and the pooled flow (8,) that led to it, None without a tick before."""

    grey: NDArray[np.uint8]
    flow: NDArray[np.float32] | None


class Flow:
    """Mean optical flow in the four quarters of the driver's box, from tick to tick, in frame widths."""

    Options: ClassVar[type[BaseModel]] = NoOptions
    model_ids = ("dis-ultrafast",)

    def __init__(self, baseline: Baseline, weights: Mapping[str, Path]) -> None:
        self.dim = _VALUES * (baseline.win_len - 1)
        self.lib_versions = {"opencv": cv2.__version__}
        self._search = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)

    def prepare(self, image: Image, box: Box, previous: Step | None) -> Step:
        """The step from `previous` to `image`, pooled in `box`."""
        grey = cv2.cvtColor(shrink(image, (_WIDTH, _HEIGHT)), cv2.COLOR_BGR2GRAY).astype(np.uint8, copy=False)
        if previous is None:
            return Step(grey, None)
        flow = self._search.calc(previous.grey, grey, None)  # type: ignore[call-overload]
        scale = np.array([_WIDTH / image.shape[1], _HEIGHT / image.shape[0]])
        x0, y0 = np.clip(np.floor(box[:2] * scale).astype(int), 0, (_WIDTH - 2, _HEIGHT - 2))
        x1, y1 = np.clip(np.ceil(box[2:] * scale).astype(int), (x0 + 2, y0 + 2), (_WIDTH, _HEIGHT))
        xm, ym = (x0 + x1) // 2, (y0 + y1) // 2
        quarters = (flow[y0:ym, x0:xm], flow[y0:ym, xm:x1], flow[ym:y1, x0:xm], flow[ym:y1, xm:x1])
        pooled = np.concatenate([quarter.reshape(-1, 2).mean(axis=0, dtype=np.float64) for quarter in quarters])
        return Step(grey, (pooled / _WIDTH).astype(np.float32))

    def window(self, frames: Sequence[Step]) -> NDArray[np.float32]:
        """The steps of one window after another, (8 (L - 1),); zero where nothing moved."""
        return np.concatenate([step.flow for step in frames[1:] if step.flow is not None])
