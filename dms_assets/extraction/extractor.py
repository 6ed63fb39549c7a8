"""What an extractor is, and how one is found by name.

Belongs here: the two protocols that an extractor file obeys, and the look-up of built-in and third-party ones. Does not
belong here: any model, and the registry of baselines (`dms_assets.baselines`), which names extractors.

A third party's package adds an extractor through the entry point group `dms_assets.extractors`: the entry's name is
what a baseline's `extractor` says, its object a class that takes `(baseline, weights)` and obeys one of the protocols.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

if TYPE_CHECKING:
    from dms_assets.baselines import Baseline

ENTRY_POINTS = "dms_assets.extractors"
EXTERNAL = "external"

_BUILT_IN = {
    "facemesh": "dms_assets.extraction.extractors.facemesh:FaceMesh",
    "flow": "dms_assets.extraction.extractors.flow:Flow",
    "onnx": "dms_assets.extraction.extractors.onnx:Onnx",
}

Image = NDArray[np.uint8]
"""A frame, (H, W, 3), blue, green, red."""

Box = NDArray[np.float32]
"""x0, y0, x1, y1 in pixels of the frame, (4,)."""


class ExtractorError(ValueError):
    """An extractor that is not known, or that can't be loaded; the text says what to install."""


class NoOptions(BaseModel):
    """The options of an extractor that has none."""

    model_config = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Row:
    """What a frame extractor found: features (C,) and the driver's box, or None where the model found no face."""

    feat: NDArray[np.floating] | None
    box: Box | None


class FrameExtractor(Protocol):
    """One row of features per frame. A row depends on its frame and box alone, never on earlier calls."""

    Options: ClassVar[type[BaseModel]]
    channels: tuple[str, ...]
    model_ids: tuple[str, ...]
    lib_versions: Mapping[str, str]
    own_detector: bool
    """Whether it finds the driver itself when no box is known; else it is given the whole frame."""

    def row(self, image: Image, box: Box | None) -> Row:
        """Features of one frame; `box` is None when nothing is known and `own_detector` is true."""
        ...


class WindowExtractor(Protocol):
    """One embedding per window of `win_len` consecutive ticks."""

    Options: ClassVar[type[BaseModel]]
    dim: int
    model_ids: tuple[str, ...]
    lib_versions: Mapping[str, str]

    def prepare(self, image: Image, box: Box, previous: Any) -> Any:
        """What a window needs of one frame; `previous` is the same of the tick before, None where there is none."""
        ...

    def window(self, frames: Sequence[Any]) -> NDArray[np.floating]:
        """The embedding (dim,) of `win_len` prepared frames, in time order."""
        ...


def names() -> list[str]:
    """Every extractor that can be named, sorted."""
    return sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS)), EXTERNAL})


def find(name: str) -> Any:
    """The class, or function, that makes the extractor `name` from `(baseline, weights)`.

    Raises:
        ExtractorError: there is none of that name, two packages claim it, or a library it needs is not installed.
    """
    points = list(entry_points(group=ENTRY_POINTS, name=name))
    if (name in _BUILT_IN and points) or len(points) > 1:
        claimed = ", ".join(sorted(point.value for point in points))
        raise ExtractorError(f"{name!r} is claimed more than once ({claimed}); uninstall all but one")
    try:
        if points:
            return points[0].load()
        if name in _BUILT_IN:
            module, _, attribute = _BUILT_IN[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ExtractorError(f"{name!r} can't be imported ({error}); install what it needs") from error
    raise ExtractorError(f"{name!r} is not known; there are: {', '.join(names())}")


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Hold a baseline's options against those that its extractor declares.

    Raises:
        ExtractorError: as `find`.
        pydantic.ValidationError: an option is unknown, missing or wrong.
    """
    model: type[BaseModel] = NoOptions if name == EXTERNAL else getattr(find(name), "Options", NoOptions)
    model.model_validate(dict(options))


def open_extractor(baseline: Baseline, weights: Mapping[str, Path]) -> FrameExtractor | WindowExtractor:
    """The extractor of `baseline`, ready to run, with its weights' verified paths.

    Raises:
        ExtractorError: as `find`, or the model does not fit the baseline's entry.
    """
    extractor: FrameExtractor | WindowExtractor = find(baseline.extractor)(baseline, weights)
    return extractor
